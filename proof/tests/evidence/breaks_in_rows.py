"""Ways to break what stands beside the logs: jobs, definitions, limits, schedules, values."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from perdure.model import event as events
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Status
from perdure.model.partition import Partition, Suspicion
from perdure.model.run import WaitType
from perdure.store.memory.state import LimitRecord
from proof.tests.evidence.broken import NAMESPACE, Broken, Case

# I1: what was accepted is there as it was


def lose_the_input_of_a_run(broken: Broken) -> None:
    broken.set_value("chain", 1, None)


def garble_the_input_of_a_run(broken: Broken) -> None:
    broken.set_value("queued", 1, b"\xff\x00")


def garble_the_input_of_a_job(broken: Broken) -> None:
    broken.change_job(broken.plain["idle"], input=b"\xff\x00")


def give_a_job_an_input_that_is_no_call(broken: Broken) -> None:
    broken.change_job(broken.plain["idle"], input=b"7")


def garble_the_policy_of_a_job(broken: Broken) -> None:
    broken.change_job(broken.plain["idle"], policy=b"\xff\x00")


def move_a_job_to_another_namespace(broken: Broken) -> None:
    broken.change_job(broken.plain["done"], namespace="other")


# I2, I3: outputs


def garble_an_output(broken: Broken) -> None:
    broken.set_value("retried", broken.find("retried", events.NodeCompleted), b"\xff\x00")


def lose_the_output_of_a_job(broken: Broken) -> None:
    broken.change_job(broken.plain["done"], output=None)


def lose_the_output_of_a_job_that_signs(broken: Broken) -> None:
    broken.change_job(broken.plain["done"], output=b"null")


def have_two_live_jobs_of_one_fingerprint(broken: Broken) -> None:
    broken.change_job(broken.plain["idle"], fingerprint="same")
    broken.add_job_like(broken.plain["idle"], "duplicate")


def hide_a_stale_output(broken: Broken) -> None:
    job = broken.state.jobs[JobId(broken.plain["done"])]
    broken.change_job(job.id, epoch=job.epoch + 1, is_hidden=True)


# I5: a version is its content


def give_a_flow_another_definition(broken: Broken) -> None:
    definitions = broken.records.definitions
    run, other = broken.run("asking"), broken.run("chain")
    data = definitions[NAMESPACE, other.flow, other.version]
    definitions[NAMESPACE, run.flow, run.version] = data


def garble_a_definition(broken: Broken) -> None:
    run = broken.run("asking")
    broken.records.definitions[NAMESPACE, run.flow, run.version] = b"\xff\x00"


def add_to_a_definition(broken: Broken) -> None:
    """Finding 12: decoding ignores the addition, so re-encoding would hide it."""
    run = broken.run("asking")
    place = NAMESPACE, run.flow, run.version
    broken.records.definitions[place] = broken.records.definitions[place][:-1] + b',"more":1}'


# I7: no rows are where nothing reads them


def put_a_job_into_no_partition(broken: Broken) -> None:
    broken.change_job(broken.plain["idle"], partition=Partition(queue="", task=""))


def suspect_a_job_that_crashed_no_worker(broken: Broken) -> None:
    broken.change_job(broken.plain["idle"], suspicion=Suspicion(crashes=2))


def put_a_job_into_the_partition_of_a_flow(broken: Broken) -> None:
    job = broken.state.jobs[JobId(broken.plain["idle"])]
    broken.change_job(job.id, partition=replace(job.partition, flow="chain@1"))


def put_a_job_of_a_run_into_another_queue(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.change_job(job.id, partition=replace(job.partition, queue="elsewhere"))


def make_a_job_of_a_run_less_urgent(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.change_job(job.id, rank=job.rank + AGES.total_seconds())


def call_the_job_of_a_run_with_something_else(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.change_job(job.id, input=b"[[999],{}]")


def put_a_job_behind_all_others(broken: Broken) -> None:
    broken.change_job(broken.plain["idle"], rank=1e300)


def look_for_a_schedule_at_no_time(broken: Broken) -> None:
    schedules = broken.state.schedules
    [schedule] = schedules.by_place.values()
    schedules.due.move(schedule, None)


def let_a_schedule_be_due_in_ages(broken: Broken) -> None:
    change_due_at(broken, forgotten=False)


def forget_when_a_schedule_is_due(broken: Broken) -> None:
    change_due_at(broken, forgotten=True)


# I8: what was reported to clients is final


def reopen_a_job(broken: Broken) -> None:
    broken.change_job(broken.plain["done"], status=Status.WAITING, finished_at=None, output=None)


def fail_a_completed_job(broken: Broken) -> None:
    broken.change_job(broken.plain["done"], status=Status.FAILED, output=None)


def forget_the_end_of_a_run(broken: Broken) -> None:
    broken.lines.append(broken.end_seen("asking", "completed"))


# I11: limits


def close_a_limit_for_ages(broken: Broken) -> None:
    broken.state.limits.setdefault((NAMESPACE, "printer"), LimitRecord()).closed_until = (
        broken.now + AGES
    )


def count_starts_of_the_future(broken: Broken) -> None:
    broken.state.limits.setdefault((NAMESPACE, "plain"), LimitRecord()).starts.append(
        (broken.now + AGES, 1000)
    )


def hold_a_job_that_does_not_count(broken: Broken) -> None:
    broken.change_job(
        broken.plain["done"],  # with an execution of its last claim
        status=Status.ACTIVE,
        worker=WorkerId("w1"),
        lease_until=broken.now + timedelta(minutes=1),
    )


def change_due_at(broken: Broken, *, forgotten: bool) -> None:
    [(place, schedule)] = broken.state.schedules.by_place.items()
    due_at = schedule.state.due_at
    assert due_at is not None
    state = replace(schedule.state, due_at=None if forgotten else due_at + AGES)
    broken.state.schedules.put(place, replace(schedule, state=state))


IN_ROWS: list[Case] = [
    (lose_the_input_of_a_run, "I1", "run_input"),
    (garble_the_input_of_a_run, "I1", "run_input"),
    (garble_the_input_of_a_job, "I1", "job_callable"),
    (give_a_job_an_input_that_is_no_call, "I1", "job_callable"),
    (garble_the_policy_of_a_job, "I1", "job_callable"),
    (move_a_job_to_another_namespace, "I1", "accepted"),
    (garble_an_output, "I2", "event_values"),
    (lose_the_output_of_a_job, "I2", "job_consistent"),
    (lose_the_output_of_a_job_that_signs, "I2", "output_is_current"),
    (have_two_live_jobs_of_one_fingerprint, "I2", "shared_fingerprints"),
    (hide_a_stale_output, "I3", "output_is_current"),
    (give_a_flow_another_definition, "I5", "run_definition"),
    (garble_a_definition, "I5", "run_definition"),
    (add_to_a_definition, "I5", "run_definition"),
    (put_a_job_into_no_partition, "I7", "job_partition"),
    (suspect_a_job_that_crashed_no_worker, "I7", "job_suspicion"),
    (put_a_job_into_the_partition_of_a_flow, "I7", "job_partition"),
    (put_a_job_of_a_run_into_another_queue, "I7", "jobs_as_scheduled"),
    (make_a_job_of_a_run_less_urgent, "I7", "jobs_as_scheduled"),
    (call_the_job_of_a_run_with_something_else, "I7", "jobs_as_scheduled"),
    (put_a_job_behind_all_others, "I7", "job_rank"),
    (look_for_a_schedule_at_no_time, "I7", "schedule_due_time"),
    (let_a_schedule_be_due_in_ages, "I7", "schedule_next_tick"),
    (forget_when_a_schedule_is_due, "I7", "schedule_next_tick"),
    (reopen_a_job, "I8", "ends_are_final"),
    (fail_a_completed_job, "I8", "ends_are_final"),
    (forget_the_end_of_a_run, "I8", "ends_are_kept"),
    (close_a_limit_for_ages, "I11", "limit_reopens"),
    (count_starts_of_the_future, "I11", "limit_starts_in_past"),
    (hold_a_job_that_does_not_count, "I11", "is_counted"),
]


# Ways to break what was decided: logs that the rules never write, waits that no decision opened.


AGES = timedelta(days=18_000)


# I10: the log is what the rules decide


def leave_a_node_out(broken: Broken) -> None:
    """The whole log agrees that the chain had one node only."""
    first = broken.event("chain", 2)
    last = broken.event("chain", 4)
    assert isinstance(first, events.NodeCompleted)
    assert isinstance(last, events.RunCompleted)
    log = broken.log("chain")
    del log[2]
    broken.rewrite("chain", 2, replace(first, effects=events.NOTHING))
    log[2] = replace(log[2], event=replace(log[2].event, number=3))
    broken.rewrite("chain", 3, replace(last, ref=2))
    broken.change_run("chain", number=3)


def give_the_output_of_another_node(broken: Broken) -> None:
    number = broken.find("chain", events.RunCompleted)
    broken.rewrite("chain", number, events.RunCompleted(ref=2))


def start_what_does_not_follow(broken: Broken) -> None:
    event = broken.event("mapped", 1)
    assert isinstance(event, events.RunSubmitted)
    fewer = replace(event.effects, mapped=(("m", 2),), started=event.effects.started[:2])
    broken.rewrite("mapped", 1, replace(event, effects=fewer))


def gather_other_items(broken: Broken) -> None:
    completed = broken.find("mapped", events.NodeCompleted)
    broken.set_value("mapped", completed, b'["wrong"]')


# I7: what is open is what was asked for


def forget_when_a_timer_is_due(broken: Broken) -> None:
    broken.change_wait("sleeping", "d", due_at=None)


def let_a_timer_be_due_in_ages(broken: Broken) -> None:
    due_at = broken.wait("sleeping", "d").opened_at + AGES
    broken.change_wait("sleeping", "d", due_at=due_at)


def let_a_timer_be_due_early(broken: Broken) -> None:
    due_at = broken.wait("sleeping", "d").opened_at + timedelta(hours=1)
    broken.change_wait("sleeping", "d", due_at=due_at)


def turn_a_timer_into_a_wait_for_a_signal(broken: Broken) -> None:
    broken.change_wait("sleeping", "d", type=WaitType.SIGNAL)


def turn_an_approval_into_a_timer(broken: Broken) -> None:
    broken.change_wait("open", "ok", type=WaitType.TIMER)


def listen_for_another_signal(broken: Broken) -> None:
    broken.change_wait("asking", "w", name="other")


def ask_nobody(broken: Broken) -> None:
    broken.change_wait("open", "ok", deciders=())


def lose_what_is_asked(broken: Broken) -> None:
    broken.change_wait("open", "ok", detail=b"")


def garble_what_is_asked(broken: Broken) -> None:
    broken.change_wait("open", "ok", detail=b"\xff\x00")


DECISIONS: list[Case] = [
    (leave_a_node_out, "I10", "log_as_decided"),
    (give_the_output_of_another_node, "I10", "log_as_decided"),
    (start_what_does_not_follow, "I10", "log_as_decided"),
    (gather_other_items, "I10", "log_as_decided"),
    (forget_when_a_timer_is_due, "I7", "waits_as_opened"),
    (let_a_timer_be_due_in_ages, "I7", "waits_as_opened"),
    (let_a_timer_be_due_early, "I7", "waits_as_opened"),
    (turn_a_timer_into_a_wait_for_a_signal, "I7", "waits_as_opened"),
    (turn_an_approval_into_a_timer, "I7", "waits_as_opened"),
    (listen_for_another_signal, "I7", "waits_as_opened"),
    (ask_nobody, "I7", "waits_as_opened"),
    (lose_what_is_asked, "I7", "waits_as_opened"),
    (garble_what_is_asked, "I7", "waits_as_opened"),
]
