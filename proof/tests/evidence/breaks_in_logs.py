"""Ways to break what was accepted, committed and written down: I1 to I5, and I12."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from perdure.model import event as events
from perdure.model.event import Effects
from perdure.model.ids import JobId
from perdure.model.run import LoadedRun, RunStatus
from perdure.store.contract import EventsAfter
from perdure.store.memory.runs import MemoryRuns
from perdure.store.memory.store import MemoryStore
from proof.evidence import EvidenceSettings, Expected
from proof.evidence.log import Accepted, CommandSent, Refused
from proof.tests.evidence.broken import NAMESPACE, Broken, Case

NONCE = "wit-" + "0" * 32


# I1, I12: what was accepted, and what was refused


def lose_a_run(broken: Broken) -> None:
    broken.remove_run("chain two")


def lose_an_expected_run(broken: Broken) -> None:
    broken.settings = EvidenceSettings(expected={"gone": Expected(status=RunStatus.COMPLETED)})


def lose_a_job(broken: Broken) -> None:
    broken.state.put(JobId(broken.plain["done"]), None)


def keep_what_was_refused(broken: Broken) -> None:
    broken.lines = [line for line in broken.lines if not isinstance(line, Accepted)]
    refused = Refused(at=0, namespace=NAMESPACE, errors=("InvalidInput",), run="chain")
    broken.lines.append(refused)


def keep_a_refused_job(broken: Broken) -> None:
    errors = ("PayloadTooLarge", "InvalidInput")
    job = broken.plain["idle"]
    broken.lines.append(Refused(at=0, namespace=NAMESPACE, errors=errors, job=job))


def lose_a_signal(broken: Broken) -> None:
    command = CommandSent(
        at=0, namespace=NAMESPACE, command="signal", run="asking", key="go", nonce=NONCE
    )
    broken.lines.append(command)


def keep_a_refused_signal(broken: Broken) -> None:
    [command, *_] = [each for each in broken.lines if isinstance(each, CommandSent) and each.nonce]
    broken.change_line(command, errors=("InvalidInput",))


def lose_a_cancel(broken: Broken) -> None:
    broken.lines.append(CommandSent(at=0, namespace=NAMESPACE, command="cancel", run="asking"))


def lose_an_answer(broken: Broken) -> None:
    command = CommandSent(
        at=0, namespace=NAMESPACE, command="decide", run="open", key="ok", by="bob"
    )
    broken.lines.append(command)


# I2: committed once


def complete_a_node_twice(broken: Broken) -> None:
    number = broken.find("asking", events.NodeCompleted)
    broken.insert("asking", number + 1, broken.event("asking", number), b"1")


def complete_an_item_twice(broken: Broken) -> None:
    number = broken.find("mapped", events.ItemCompleted)
    broken.insert("mapped", number + 1, broken.event("mapped", number), b"1")


def complete_what_was_not_started(broken: Broken) -> None:
    broken.append("asking", events.NodeCompleted(node="b"), b"1")


def start_a_key_twice(broken: Broken) -> None:
    number = broken.find("chain", events.NodeCompleted)
    completed = broken.event("chain", number)
    assert isinstance(completed, events.NodeCompleted)
    twice = Effects(started=(*completed.effects.started, *completed.effects.started))
    broken.rewrite("chain", number, replace(completed, effects=twice))


def start_a_key_of_a_live_run_twice(broken: Broken) -> None:
    submitted = broken.event("queued", 1)
    assert isinstance(submitted, events.RunSubmitted)
    broken.rewrite("queued", 1, replace(submitted, effects=Effects(started=("n", "n"))))


def commit_one_execution_in_two_events(broken: Broken) -> None:
    number = broken.find("mapped", events.ItemCompleted)
    value = broken.log("mapped")[number - 1].event.value
    broken.insert("mapped", number + 1, broken.event("mapped", number), value)


def start_what_is_under_way(broken: Broken) -> None:
    first = broken.find("mapped", events.ItemCompleted, 0)
    done = broken.event("mapped", first)
    under_way = broken.event("mapped", broken.find("mapped", events.ItemCompleted, 1))
    assert isinstance(done, events.ItemCompleted)
    assert isinstance(under_way, events.ItemCompleted)
    broken.rewrite("mapped", first, replace(done, effects=Effects(started=(under_way.key,))))


def have_two_jobs_of_a_key(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.add_job_like(job.id, "second")


def lose_an_output(broken: Broken) -> None:
    broken.set_value("chain", broken.find("chain", events.NodeCompleted, -1), None)


def commit_what_nobody_executed(broken: Broken) -> None:
    line = broken.began(run="chain", key="a")
    broken.lines.remove(line)


def commit_an_output_of_nobody(broken: Broken) -> None:
    number = broken.find("chain", events.NodeCompleted)
    broken.set_value("chain", number, b'{"nonce":"%b"}' % NONCE.encode())


def commit_two_executions_at_once(broken: Broken) -> None:
    line = broken.began(run="chain", key="b")
    broken.lines.append(replace(line, nonce=NONCE))
    value = f'["{line.nonce}","{NONCE}"]'.encode()
    broken.set_value("chain", broken.find("chain", events.NodeCompleted, 1), value)


def commit_one_execution_in_two_items(broken: Broken) -> None:
    """The later item has the earlier one's output."""
    first = broken.find("mapped", events.ItemCompleted, 0)
    second = broken.find("mapped", events.ItemCompleted, 1)
    value = broken.log("mapped")[first - 1].event.value
    broken.set_value("mapped", second, value)


def complete_a_job_that_nobody_executed(broken: Broken) -> None:
    broken.lines.remove(broken.began(job=broken.plain["done"]))


def change_an_idempotency_key(broken: Broken) -> None:
    line = broken.began(run="flaky", key="a", place=1)
    broken.change_line(line, idempotency_key="another")


def share_an_idempotency_key(broken: Broken) -> None:
    first = broken.began(run="chain", key="a")
    broken.change_line(broken.began(run="chain", key="b"), idempotency_key=first.idempotency_key)


def take_a_signal_twice(broken: Broken) -> None:
    """The second node has the signal of the first."""
    first = broken.event("answered", broken.find("answered", events.NodeCompleted, 0))
    number = broken.find("answered", events.NodeCompleted, 1)
    second = broken.event("answered", number)
    assert isinstance(first, events.NodeCompleted)
    assert isinstance(second, events.NodeCompleted)
    broken.rewrite("answered", number, replace(second, ref=first.ref))


def take_what_is_no_signal(broken: Broken) -> None:
    number = broken.find("answered", events.NodeCompleted, 0)
    taken = broken.event("answered", number)
    assert isinstance(taken, events.NodeCompleted)
    broken.rewrite("answered", number, replace(taken, ref=1))


def take_a_later_signal_first(broken: Broken) -> None:
    """An older one of the name has been there all the time."""
    broken.insert("answered", 2, events.SignalReceived(name="go"), b"1")
    for number in range(3, len(broken.log("answered")) + 1):
        event = broken.event("answered", number)
        if isinstance(event, events.NodeCompleted):
            broken.rewrite("answered", number, replace(event, ref=event.ref + 1))


def count_a_report_twice(broken: Broken) -> None:
    """A second last report in a pause of its run, in which the first one waits."""
    broken.append("reported", events.RunPaused())
    number = broken.find("reported", events.NodeReported)
    report = broken.event("reported", number)
    broken.insert("reported", number, report, b'{"status":"completed"}')


def answer_twice(broken: Broken) -> None:
    number = broken.find("open", events.ApprovalAnswered)
    broken.append("open", broken.event("open", number), b"null")


def answer_without_being_asked(broken: Broken) -> None:
    answer = events.ApprovalAnswered(node="ok", decision="approve", by="eve")
    broken.append("open", answer, b"null")


def answer_what_is_no_answer(broken: Broken) -> None:
    answer = events.ApprovalAnswered(node="ok", decision="maybe", by="bob", stands_for=("bob",))
    broken.append("open", answer, b"null")


def go_on_without_a_quorum(broken: Broken) -> None:
    number = broken.find("approved", events.ApprovalAnswered, 1)
    for place in range(number, len(broken.log("approved"))):
        broken.rewrite("approved", place, broken.event("approved", place + 1))
    del broken.log("approved")[-1]
    broken.change_run("approved", number=len(broken.log("approved")))


def tell_of_a_node_that_did_not_complete(broken: Broken) -> None:
    broken.lines.append(broken.event_seen("node.completed", run="chain", node="never"))


def tell_of_an_end_that_a_run_never_had(broken: Broken) -> None:
    broken.lines.append(broken.event_seen("run.failed", run="chain"))


def tell_of_an_end_that_a_job_never_had(broken: Broken) -> None:
    broken.lines.append(broken.event_seen("job.dead", job=broken.plain["done"]))


# I3: no stale write


def commit_a_stale_output(broken: Broken) -> None:
    line = broken.began(run="chain", key="a")
    broken.lines.append(replace(line, nonce=NONCE, epoch=line.epoch + 1, attempt=2))


def complete_a_job_by_a_stale_claim(broken: Broken) -> None:
    id = broken.plain["done"]
    broken.change_job(id, epoch=broken.state.jobs[JobId(id)].epoch + 1)


# I4, I5: the log, and what it adds up to


def lose_an_event(broken: Broken) -> None:
    del broken.log("chain")[1]


def have_an_event_twice(broken: Broken) -> None:
    log = broken.log("chain")
    log.insert(1, log[1])


def lose_the_last_event(broken: Broken) -> None:
    del broken.log("chain")[-1]


def lose_all_events(broken: Broken) -> None:
    broken.log("chain").clear()


def lose_the_log(broken: Broken) -> None:
    del broken.records.events[broken.run("chain").place]


def submit_it_twice(broken: Broken) -> None:
    broken.insert("asking", 2, broken.event("asking", 1), b"1")


def garble_an_event(broken: Broken) -> None:
    log = broken.log("chain")
    log[1] = replace(log[1], event=replace(log[1].event, data=b"{"))


def write_an_unknown_event(broken: Broken) -> None:
    log = broken.log("chain")
    log[1] = replace(log[1], event=replace(log[1].event, data=b'{"type":"NodeInvented"}'))


def mark_an_ended_run_as_running(broken: Broken) -> None:
    broken.change_run("chain", status=RunStatus.RUNNING, finished_at=None)


def mark_a_waiting_run_as_running(broken: Broken) -> None:
    broken.change_run("asking", status=RunStatus.RUNNING)


def change_the_end(broken: Broken) -> None:
    finished_at = broken.run("chain").finished_at
    assert finished_at is not None
    broken.change_run("chain", finished_at=finished_at + timedelta(seconds=1))


def change_the_version(broken: Broken) -> None:
    broken.change_run("asking", version="other")


def change_the_summary(broken: Broken) -> None:
    broken.change_run("failed", summary=b"{}")


def change_a_snapshot(broken: Broken) -> None:
    """Its checksum is right."""
    kept = broken.run("long").snapshot
    assert kept is not None
    state = broken.folded("long", kept.number)
    broken.set_snapshot("long", replace(state, jobs=state.jobs + 1))


def spoil_a_snapshot(broken: Broken) -> None:
    broken.spoil_snapshot("long")


def take_a_snapshot_of_the_future(broken: Broken) -> None:
    broken.set_snapshot("chain", replace(broken.folded("chain"), number=99))


def load_too_little_with_a_snapshot(broken: Broken) -> None:
    broken.store = Forgetful(broken)


def take_over_the_log_of_an_older_run(broken: Broken) -> None:
    later = broken.run("chain").created_at + timedelta(minutes=1)
    broken.change_run("chain", created_at=later)


class Forgetful(MemoryStore):
    """Loads a run from its snapshot with another event than the one that followed."""

    def __init__(self, broken: Broken) -> None:
        super().__init__("memory://", session=broken.store._session)
        self.runs = ForgetfulRuns(self._session)


class ForgetfulRuns(MemoryRuns):
    async def load(self, runs: Sequence[EventsAfter]) -> list[LoadedRun | None]:
        found = await super().load(runs)
        return [
            replace(each, events=each.events[1:]) if each and wanted.number is None else each
            for wanted, each in zip(runs, found, strict=True)
        ]


IN_LOGS: list[Case] = [
    (lose_a_run, "I1", "accepted"),
    (lose_an_expected_run, "I1", "expected_is_there"),
    (lose_a_job, "I1", "accepted"),
    (keep_what_was_refused, "I12", "refused"),
    (keep_a_refused_job, "I12", "refused"),
    (lose_a_signal, "I1", "commands_are_logged"),
    (keep_a_refused_signal, "I12", "commands_are_logged"),
    (lose_a_cancel, "I1", "cancels_are_kept"),
    (lose_an_answer, "I1", "decided_by_those_who_did"),
    (complete_a_node_twice, "I2", "key_committed_once"),
    (complete_an_item_twice, "I2", "key_committed_once"),
    (complete_what_was_not_started, "I2", "key_was_live"),
    (start_a_key_twice, "I2", "key_started_once"),
    (start_a_key_of_a_live_run_twice, "I2", "live_job_count"),
    (commit_one_execution_in_two_events, "I2", "committed_in_one_event"),
    (start_what_is_under_way, "I2", "key_started_once"),
    (have_two_jobs_of_a_key, "I2", "live_jobs"),
    (lose_an_output, "I2", "outputs_exist"),
    (commit_what_nobody_executed, "I2", "outputs_have_executions"),
    (commit_an_output_of_nobody, "I2", "outputs_have_executions"),
    (commit_two_executions_at_once, "I2", "outputs_have_executions"),
    (commit_one_execution_in_two_items, "I2", "outputs_have_executions"),
    (complete_a_job_that_nobody_executed, "I2", "output_is_current"),
    (change_an_idempotency_key, "I2", "keys_are_stable"),
    (share_an_idempotency_key, "I2", "keys_are_stable"),
    (take_a_signal_twice, "I2", "signals_consumed_once"),
    (take_what_is_no_signal, "I2", "signals_consumed_once"),
    (take_a_later_signal_first, "I2", "signals_in_order"),
    (count_a_report_twice, "I2", "reports_applied_once"),
    (answer_twice, "I2", "approvals_by_deciders"),
    (answer_without_being_asked, "I2", "approvals_by_deciders"),
    (answer_what_is_no_answer, "I2", "approvals_by_deciders"),
    (go_on_without_a_quorum, "I2", "approvals_as_decided"),
    (tell_of_a_node_that_did_not_complete, "I8", "events_are_kept"),
    (tell_of_an_end_that_a_run_never_had, "I8", "ends_are_kept"),
    (tell_of_an_end_that_a_job_never_had, "I8", "ends_are_final"),
    (commit_a_stale_output, "I3", "no_stale_output"),
    (complete_a_job_by_a_stale_claim, "I3", "output_is_current"),
    (lose_an_event, "I4", "event_numbers"),
    (have_an_event_twice, "I4", "event_numbers"),
    (lose_the_last_event, "I4", "run_number"),
    (lose_all_events, "I4", "event_numbers"),
    (lose_the_log, "I4", "run_loadable"),
    (submit_it_twice, "I4", "submitted_first"),
    (garble_an_event, "I5", "log_folds"),
    (write_an_unknown_event, "I5", "log_folds"),
    (mark_an_ended_run_as_running, "I5", "run_row"),
    (mark_a_waiting_run_as_running, "I5", "run_row"),
    (change_the_end, "I5", "run_end_time"),
    (change_the_version, "I5", "run_row"),
    (change_the_summary, "I5", "run_summary"),
    (change_a_snapshot, "I5", "snapshot_state"),
    (spoil_a_snapshot, "I5", "snapshot_state"),
    (load_too_little_with_a_snapshot, "I5", "events_after_snapshot"),
    (take_over_the_log_of_an_older_run, "I4", "first_event_time"),
    (take_a_snapshot_of_the_future, "I5", "snapshot_state"),
]
