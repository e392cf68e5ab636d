"""Stores and logs that break a promise: the checker catches each, and says which it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from perdure.model import event as events
from perdure.model.event import Parent, Then
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import NodeRef, Status
from perdure.model.limit import LimitRule
from perdure.model.run import LoadedRun, RunStatus, WaitKind
from perdure.model.schedule import TickRecord, TickResult
from perdure.store.contract import RunAfter
from perdure.store.memory.store import MemoryStore
from perdure.testing.check import CheckSettings, Expected, check
from perdure.testing.check.checker import RUN_RULES
from perdure.testing.check.rules import jobs, schedules, witnessed
from perdure.testing.check.witness import Accepted, Acted, BodyBegan, BodyEnded, GivenBack, Refused
from tests.testing.broken import NAMESPACE, Broken
from tests.testing.history import Made, Maker

Break = Callable[[Broken], None]

NONCE = "wit-" + "0" * 32
WORKER = WorkerId("w1")


@pytest.fixture(scope="module")
def made() -> Made:
    """Made once: each test breaks a copy of it."""
    return asyncio.run(Maker(MemoryStore("memory://")).make())


# I1, I12: what was accepted, and what was refused


def lose_a_run(broken: Broken) -> None:
    broken.remove_run("chain two")


def lose_an_expected_run(broken: Broken) -> None:
    broken.settings = CheckSettings(expected={"gone": Expected(status=RunStatus.COMPLETED)})


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
    act = Acted(at=0, namespace=NAMESPACE, act="signal", run="asking", key="go", nonce=NONCE)
    broken.lines.append(act)


def keep_a_refused_signal(broken: Broken) -> None:
    [act, *_] = [each for each in broken.lines if isinstance(each, Acted) and each.nonce]
    broken.change_line(act, errors=("InvalidInput",))


def lose_a_cancel(broken: Broken) -> None:
    broken.lines.append(Acted(at=0, namespace=NAMESPACE, act="cancel", run="asking"))


def lose_an_answer(broken: Broken) -> None:
    act = Acted(at=0, namespace=NAMESPACE, act="decide", run="open", key="ok", by="bob")
    broken.lines.append(act)


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
    twice = Then(started=(*completed.then.started, *completed.then.started))
    broken.rewrite("chain", number, replace(completed, then=twice))


def start_a_key_of_a_live_run_twice(broken: Broken) -> None:
    submitted = broken.event("queued", 1)
    assert isinstance(submitted, events.RunSubmitted)
    broken.rewrite("queued", 1, replace(submitted, then=Then(started=("n", "n"))))


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
    broken.rewrite("mapped", first, replace(done, then=Then(started=(under_way.key,))))


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


# I6, I7: nothing held in vain, nothing stuck


def hold_a_job_of_a_waiting_run(broken: Broken) -> None:
    hold(broken, "asking", "w")


def hold_a_job_of_a_paused_run(broken: Broken) -> None:
    [job] = broken.jobs_of("parked")
    broken.change_job(job.id, **held(broken))


def lose_the_job_of_a_key(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.state.put(job.id, None)


def have_a_job_too_many(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.add_job_like(job.id, "more", node=NodeRef(run=RunId("queued"), key="other"))


def lose_a_wait(broken: Broken) -> None:
    broken.remove_wait("asking", "w")


def lose_a_timer(broken: Broken) -> None:
    broken.remove_wait("sleeping", "d")


def have_a_wait_too_many(broken: Broken) -> None:
    wait = broken.wait("asking", "w")
    more = replace(wait, key="other")
    broken.records.put_wait(more.place, more)


def wait_for_another_child(broken: Broken) -> None:
    broken.change_wait("parent", "c", name="another")


def wait_for_the_wrong_kind(broken: Broken) -> None:
    broken.change_wait("parent", "c", kind=WaitKind.TIMER)


def leave_a_job_of_a_paused_run_waiting(broken: Broken) -> None:
    [job] = broken.jobs_of("parked")
    broken.change_job(job.id, status=Status.WAITING)


def leave_a_job_parked_after_the_pause(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.change_job(job.id, status=Status.PAUSED)


def let_a_wait_of_a_paused_run_go(broken: Broken) -> None:
    broken.change_wait("held", "d", is_held=False)


def keep_a_wait_held_after_the_pause(broken: Broken) -> None:
    broken.change_wait("unpaused", "w", is_held=True)


def leave_a_job_in_the_lane_of_another_version(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.change_job(job.id, lane=replace(job.lane, flow="queued@other"))


def leave_a_job_behind_in_a_migration(broken: Broken) -> None:
    [job] = broken.jobs_of("moved")
    before = broken.event("moved", 1)
    assert isinstance(before, events.RunSubmitted)
    broken.change_job(job.id, lane=replace(job.lane, flow=f"moved@{before.version}"))


def lose_a_definition(broken: Broken) -> None:
    run = broken.run("asking")
    del broken.records.definitions[NAMESPACE, run.flow, run.version]


def let_a_timer_be_overdue(broken: Broken) -> None:
    late(broken)
    due_at = broken.wait("sleeping", "d").opened_at - timedelta(hours=1)
    broken.change_wait("sleeping", "d", due_at=due_at)


def let_a_lease_be_overdue(broken: Broken) -> None:
    late(broken)
    [job] = broken.jobs_of("queued")
    broken.change_job(job.id, **held(broken))


def let_a_plain_lease_be_overdue(broken: Broken) -> None:
    late(broken)
    broken.change_job(broken.plain["idle"], **held(broken))


def let_a_scheduled_job_be_overdue(broken: Broken) -> None:
    late(broken)
    job = broken.state.jobs[JobId(broken.plain["later"])]
    broken.change_job(job.id, ready_at=job.created_at - timedelta(hours=1))


def let_a_deadline_be_overdue(broken: Broken) -> None:
    late(broken)
    job = broken.state.jobs[JobId(broken.plain["idle"])]
    broken.change_job(job.id, deadline_at=job.created_at - timedelta(hours=1))


def let_a_schedule_be_overdue(broken: Broken) -> None:
    late(broken)
    change_schedule(broken, due_at=broken.run("chain").created_at - timedelta(hours=1))


def hold_a_job_without_a_lease(broken: Broken) -> None:
    broken.change_job(broken.plain["idle"], status=Status.ACTIVE, worker=None)


def lose_a_parent(broken: Broken) -> None:
    broken.remove_run("parent done")


def forget_a_child(broken: Broken) -> None:
    broken.remove_wait("parent", "c")


def not_hear_of_a_childs_end(broken: Broken) -> None:
    place = broken.run("parent/c").place
    broken.remove_wait("parent/c", "w")
    broken.append("parent/c", events.RunCancelled())
    last = broken.records.events[place][-1].event
    broken.change_run("parent/c", status=RunStatus.CANCELLED, finished_at=last.at)


def take_anothers_child(broken: Broken) -> None:
    broken.change_run("parent/c", parent=Parent(run=RunId("chain"), key="a"))


def lose_a_child(broken: Broken) -> None:
    broken.remove_run("parent/c")


def leave_a_job_without_a_run(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.add_job_like(job.id, "stray", node=NodeRef(run=RunId("gone"), key="n"))


def leave_a_wait_without_a_run(broken: Broken) -> None:
    wait = replace(broken.wait("asking", "w"), run=RunId("gone"))
    broken.records.put_wait(wait.place, wait)


# I8: terminal is final


def write_after_the_end(broken: Broken) -> None:
    broken.append("chain", events.SignalReceived(name="late"), b"1")


def retry_what_was_completed(broken: Broken) -> None:
    broken.append("chain", events.RunRetried(then=Then()))


def retry_what_goes_on(broken: Broken) -> None:
    broken.append("sleeping", events.RunRetried(then=Then()))


def fork_from_elsewhere(broken: Broken) -> None:
    number = broken.find("forked", events.RunForked)
    forked = broken.event("forked", number)
    assert isinstance(forked, events.RunForked)
    origin = replace(forked.origin, number=forked.origin.number + 1)
    broken.rewrite("forked", number, replace(forked, origin=origin))


def go_on_in_a_pause(broken: Broken) -> None:
    broken.append("held", events.NodeCompleted(node="d", cause="timer", ref=1))


def pause_twice(broken: Broken) -> None:
    broken.append("held", events.RunPaused())


def complete_with_something_live(broken: Broken) -> None:
    broken.append("asking", events.RunCompleted(ref=1))


def leave_a_job_of_an_ended_run(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.add_job_like(job.id, "late", node=NodeRef(run=RunId("chain"), key="a"))


def leave_a_wait_of_an_ended_run(broken: Broken) -> None:
    wait = replace(broken.wait("asking", "w"), run=RunId("chain"))
    broken.records.put_wait(wait.place, wait)


def leave_events_of_a_run_that_is_gone(broken: Broken) -> None:
    broken.records.put_events((NAMESPACE, RunId("gone")), list(broken.log("chain")))


def end_a_job_without_a_time(broken: Broken) -> None:
    id = JobId(broken.plain["done"])
    broken.state.jobs[id] = replace(broken.state.jobs[id], finished_at=None)


# I9: attempts


def count_an_attempt_too_many(broken: Broken) -> None:
    broken.change_line(broken.began(run="chain", key="a"), attempt=7)


def jump_an_attempt(broken: Broken) -> None:
    line = broken.began(run="flaky", key="a", place=1)
    broken.change_line(line, attempt=line.attempt + 1, epoch=line.epoch)


def count_what_was_given_back(broken: Broken) -> None:
    line = broken.began(run="flaky", key="a", place=1)
    broken.lines.append(GivenBack(at=0, job=line.job, attempt=1))


def fail_the_same_attempt_twice(broken: Broken) -> None:
    number = broken.find("flaky", events.NodeRetried)
    broken.insert("flaky", number + 1, broken.event("flaky", number))


def complete_another_attempt(broken: Broken) -> None:
    broken.change_job(broken.plain["done"], attempt=0)


# I10, I11: results and limits


def end_otherwise_than_expected(broken: Broken) -> None:
    expected = {"chain": Expected(status=RunStatus.FAILED)}
    broken.settings = CheckSettings(expected=expected)


def give_another_result(broken: Broken) -> None:
    expected = {"chain": Expected(status=RunStatus.COMPLETED, result={"a": 1})}
    broken.settings = CheckSettings(expected=expected)


def exceed_a_limit(broken: Broken) -> None:
    """Two committed executions under one key, both at work at one moment."""
    first, second = broken.began(run="chain", key="a"), broken.began(run="chain two", key="a")
    end = next(each for each in broken.lines if is_end_of(each, second))
    broken.change_line(second, at=first.at)
    broken.change_line(end, at=second.at + 100)


def exceed_a_rate(broken: Broken) -> None:
    window = timedelta(minutes=1)
    broken.settings = CheckSettings(limits=(LimitRule(key="plain", starts_max=1, window=window),))


def start_too_close_to_each_other(broken: Broken) -> None:
    spacing = timedelta(hours=1)
    broken.settings = CheckSettings(limits=(LimitRule(key="plain", spacing=spacing),))


def exceed_a_rate_by_the_witness(broken: Broken) -> None:
    hour = timedelta(hours=1)
    rule = LimitRule(key="printer", starts_max=1, window=hour)
    broken.settings = CheckSettings(limits=(rule,), start_slack=timedelta(seconds=1))


# Schedules


def start_a_tick_twice(broken: Broken) -> None:
    schedule = broken.state.schedules.by_place[NAMESPACE, "nightly"]
    [tick] = schedule.state.history
    again = replace(tick, run=RunId("chain"))
    change_schedule(broken, history=(tick, again), started=2)


def lose_count_of_ticks(broken: Broken) -> None:
    change_schedule(broken, started=0)


def lose_what_a_tick_started(broken: Broken) -> None:
    tick = TickRecord(
        at=broken.run("chain").created_at, result=TickResult.STARTED, run=RunId("gone")
    )
    change_schedule(broken, history=(tick,))


CASES: list[tuple[Break, str, str]] = [
    (lose_a_run, "I1", "accepted"),
    (lose_an_expected_run, "I1", "expected_is_there"),
    (lose_a_job, "I1", "accepted"),
    (keep_what_was_refused, "I12", "refused"),
    (keep_a_refused_job, "I12", "refused"),
    (lose_a_signal, "I1", "acts_are_kept"),
    (keep_a_refused_signal, "I12", "acts_are_kept"),
    (lose_a_cancel, "I1", "cancels_are_kept"),
    (lose_an_answer, "I1", "decided_by_those_who_did"),
    (complete_a_node_twice, "I2", "committed_once"),
    (complete_an_item_twice, "I2", "committed_once"),
    (complete_what_was_not_started, "I2", "was_live"),
    (start_a_key_twice, "I2", "started_once"),
    (start_a_key_of_a_live_run_twice, "I2", "counted"),
    (commit_one_execution_in_two_events, "I2", "committed_in_one_event"),
    (start_what_is_under_way, "I2", "started_once"),
    (have_two_jobs_of_a_key, "I2", "jobs_match"),
    (lose_an_output, "I2", "outputs_are_there"),
    (commit_what_nobody_executed, "I2", "outputs_have_executions"),
    (commit_an_output_of_nobody, "I2", "outputs_have_executions"),
    (commit_two_executions_at_once, "I2", "outputs_have_executions"),
    (commit_one_execution_in_two_items, "I2", "outputs_have_executions"),
    (complete_a_job_that_nobody_executed, "I2", "output_is_current"),
    (change_an_idempotency_key, "I2", "keys_are_stable"),
    (share_an_idempotency_key, "I2", "keys_are_stable"),
    (take_a_signal_twice, "I2", "signals_taken_once"),
    (take_what_is_no_signal, "I2", "signals_taken_once"),
    (take_a_later_signal_first, "I2", "signals_in_order"),
    (count_a_report_twice, "I2", "reports_count_once"),
    (answer_twice, "I2", "approvals_by_deciders"),
    (answer_without_being_asked, "I2", "approvals_by_deciders"),
    (answer_what_is_no_answer, "I2", "approvals_by_deciders"),
    (go_on_without_a_quorum, "I2", "approvals_as_decided"),
    (commit_a_stale_output, "I3", "no_stale_output"),
    (complete_a_job_by_a_stale_claim, "I3", "output_is_current"),
    (lose_an_event, "I4", "contiguous"),
    (have_an_event_twice, "I4", "contiguous"),
    (lose_the_last_event, "I4", "numbered"),
    (lose_all_events, "I4", "contiguous"),
    (lose_the_log, "I4", "loadable"),
    (submit_it_twice, "I4", "begins"),
    (garble_an_event, "I5", "foldable"),
    (write_an_unknown_event, "I5", "foldable"),
    (mark_an_ended_run_as_running, "I5", "row_agrees"),
    (mark_a_waiting_run_as_running, "I5", "row_agrees"),
    (change_the_end, "I5", "ended_in_time"),
    (change_the_version, "I5", "row_agrees"),
    (change_the_summary, "I5", "summarised"),
    (change_a_snapshot, "I5", "snapshot_agrees"),
    (spoil_a_snapshot, "I5", "snapshot_agrees"),
    (load_too_little_with_a_snapshot, "I5", "tail_agrees"),
    (take_over_the_log_of_an_older_run, "I4", "in_time"),
    (take_a_snapshot_of_the_future, "I5", "snapshot_agrees"),
    (hold_a_job_of_a_waiting_run, "I6", "waiting_holds_nothing"),
    (hold_a_job_of_a_paused_run, "I6", "waiting_holds_nothing"),
    (lose_the_job_of_a_key, "I7", "jobs_match"),
    (have_a_job_too_many, "I7", "jobs_match"),
    (lose_a_wait, "I7", "waits_match"),
    (lose_a_timer, "I7", "waits_match"),
    (have_a_wait_too_many, "I7", "waits_match"),
    (wait_for_another_child, "I7", "waits_match"),
    (wait_for_the_wrong_kind, "I7", "waits_match"),
    (leave_a_job_of_a_paused_run_waiting, "I7", "parked_in_a_pause"),
    (leave_a_job_parked_after_the_pause, "I7", "parked_in_a_pause"),
    (let_a_wait_of_a_paused_run_go, "I7", "parked_in_a_pause"),
    (keep_a_wait_held_after_the_pause, "I7", "parked_in_a_pause"),
    (leave_a_job_in_the_lane_of_another_version, "I7", "in_their_lanes"),
    (leave_a_job_behind_in_a_migration, "I7", "in_their_lanes"),
    (lose_a_definition, "I7", "has_definition"),
    (let_a_timer_be_overdue, "I7", "in_time"),
    (let_a_lease_be_overdue, "I7", "in_time"),
    (let_a_plain_lease_be_overdue, "I7", "in_time"),
    (let_a_scheduled_job_be_overdue, "I7", "in_time"),
    (let_a_deadline_be_overdue, "I7", "in_time"),
    (let_a_schedule_be_overdue, "I7", "in_time"),
    (hold_a_job_without_a_lease, "I7", "is_whole"),
    (lose_a_parent, "I7", "has_parent"),
    (forget_a_child, "I7", "is_awaited"),
    (not_hear_of_a_childs_end, "I7", "children_are_there"),
    (take_anothers_child, "I7", "children_know"),
    (lose_a_child, "I7", "children_are_there"),
    (leave_a_job_without_a_run, "I7", "has_run"),
    (leave_a_wait_without_a_run, "I7", "has_run"),
    (write_after_the_end, "I8", "final"),
    (retry_what_was_completed, "I8", "final"),
    (retry_what_goes_on, "I8", "retried_when_over"),
    (fork_from_elsewhere, "I8", "forked_where_it_says"),
    (go_on_in_a_pause, "I8", "nothing_in_a_pause"),
    (pause_twice, "I8", "pauses_alternate"),
    (complete_with_something_live, "I8", "completed_when_done"),
    (leave_a_job_of_an_ended_run, "I8", "jobs_match"),
    (leave_a_wait_of_an_ended_run, "I8", "waits_match"),
    (leave_events_of_a_run_that_is_gone, "I8", "strays"),
    (end_a_job_without_a_time, "I8", "is_whole"),
    (count_an_attempt_too_many, "I9", "attempts_follow"),
    (jump_an_attempt, "I9", "attempts_follow"),
    (count_what_was_given_back, "I9", "attempts_follow"),
    (fail_the_same_attempt_twice, "I9", "attempts_count_up"),
    (complete_another_attempt, "I9", "output_is_current"),
    (end_otherwise_than_expected, "I10", "as_expected"),
    (give_another_result, "I10", "as_expected"),
    (exceed_a_limit, "I11", "limits_hold"),
    (exceed_a_rate, "I11", "limits_hold"),
    (start_too_close_to_each_other, "I11", "limits_hold"),
    (exceed_a_rate_by_the_witness, "I11", "limits_hold"),
    (start_a_tick_twice, "I2", "one_start_a_tick"),
    (lose_count_of_ticks, "I2", "counts_agree"),
    (lose_what_a_tick_started, "I1", "started_is_there"),
]


def names(cases: list[tuple[Break, str, str]]) -> Iterator[str]:
    return (f"{invariant}-{act.__name__}" for act, invariant, _ in cases)


async def test_the_history_itself_is_sound(made: Made) -> None:
    broken = Broken(made)

    assert await check(broken.store, broken.lines, broken.settings) == []


@pytest.mark.parametrize("act, invariant, rule", CASES, ids=names(CASES))
async def test_catches(made: Made, act: Break, invariant: str, rule: str) -> None:
    broken = Broken(made)
    act(broken)

    findings = await check(broken.store, broken.lines, broken.settings)

    found = {(finding.invariant, finding.rule) for finding in findings}
    assert (invariant, rule) in found, [str(finding) for finding in findings]
    assert not any("could not be asked" in finding.text for finding in findings)


def test_every_invariant_has_something_that_breaks_it() -> None:
    assert {invariant for _, invariant, _ in CASES} == {f"I{n}" for n in range(1, 13)}


def test_every_rule_has_something_that_breaks_it() -> None:
    asked = [*RUN_RULES, *jobs.RULES, *schedules.RULES, *witnessed.RULES]
    caught = {rule for _, _, rule in CASES}

    # What a log that cannot be read leads to is tested where logs are read.
    assert {rule.__name__ for rule in asked} - caught == {"readable"}


# Ways to break things that several of these use


def held(broken: Broken) -> dict[str, object]:
    long_ago = broken.run("chain").created_at - timedelta(hours=1)
    return {"status": Status.ACTIVE, "worker": WORKER, "lease_until": long_ago, "epoch": 9}


def hold(broken: Broken, run: str, key: str) -> None:
    [job] = broken.jobs_of("queued")
    node = NodeRef(run=RunId(run), key=key)
    broken.add_job_like(job.id, "held", node=node, **held(broken))


class Forgetful(MemoryStore):
    """Loads a run from its snapshot with another event than the one that followed."""

    def __init__(self, broken: Broken) -> None:
        super().__init__("memory://")
        self._state = broken.state

    async def load_runs(self, runs: Sequence[RunAfter]) -> list[LoadedRun | None]:
        found = await super().load_runs(runs)
        return [
            replace(each, events=each.events[1:]) if each and wanted.number is None else each
            for wanted, each in zip(runs, found, strict=True)
        ]


def late(broken: Broken) -> None:
    broken.settings = CheckSettings(grace=timedelta(minutes=5))


def change_schedule(broken: Broken, **changes: object) -> None:
    place = (NAMESPACE, "nightly")
    schedule = broken.state.schedules.by_place[place]
    after = replace(schedule, state=replace(schedule.state, **changes))
    broken.state.schedules.put(place, after)


def is_end_of(line: object, began: BodyBegan) -> bool:
    return isinstance(line, BodyEnded) and line.nonce == began.nonce
