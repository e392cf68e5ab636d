"""Ways to break progress, ends, counts and limits: I6 to I11, and schedules."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from perdure.model import event as events
from perdure.model.event import Effects, Parent
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import NodeRef, Status
from perdure.model.limit import LimitRule
from perdure.model.retry import Retry, encode_policy
from perdure.model.run import RunStatus, WaitType
from perdure.model.schedule import TickRecord, TickResult
from proof.evidence import EvidenceSettings, Expected
from proof.evidence.log import BodyEnded, BodyStarted, Requeued
from proof.tests.evidence.broken import NAMESPACE, Broken, Case

WORKER = WorkerId("w1")


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


def end_the_job_of_a_node(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.change_job(job.id, status=Status.DEAD, finished_at=broken.state.jobs[job.id].created_at)


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
    broken.change_wait("parent", "c", type=WaitType.TIMER)


def leave_a_job_of_a_paused_run_waiting(broken: Broken) -> None:
    [job] = broken.jobs_of("parked")
    broken.change_job(job.id, status=Status.WAITING)


def leave_a_job_parked_after_the_pause(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.change_job(job.id, status=Status.PAUSED)


def let_a_wait_of_a_paused_run_go(broken: Broken) -> None:
    broken.change_wait("held", "d", is_suspended=False)


def keep_a_wait_held_after_the_pause(broken: Broken) -> None:
    broken.change_wait("unpaused", "w", is_suspended=True)


def leave_a_job_in_the_partition_of_another_version(broken: Broken) -> None:
    [job] = broken.jobs_of("queued")
    broken.change_job(job.id, partition=replace(job.partition, flow="queued@other"))


def leave_a_job_behind_in_a_migration(broken: Broken) -> None:
    [job] = broken.jobs_of("moved")
    before = broken.event("moved", 1)
    assert isinstance(before, events.RunSubmitted)
    broken.change_job(job.id, partition=replace(job.partition, flow=f"moved@{before.version}"))


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


def keep_a_job_for_its_worker_for_too_long(broken: Broken) -> None:
    broken.add_worker(WORKER, broken.now, incarnation=1)
    wait_for_worker(broken, until=timedelta(minutes=-30))


def keep_a_job_for_a_worker_that_died(broken: Broken) -> None:
    late(broken)
    broken.add_worker(WORKER, broken.now - timedelta(minutes=30), incarnation=1)
    wait_for_worker(broken, until=timedelta(hours=1))


def keep_a_job_for_a_worker_that_has_no_row(broken: Broken) -> None:
    late(broken)
    wait_for_worker(broken, until=timedelta(hours=1))


def leave_a_claim_of_an_earlier_start(broken: Broken) -> None:
    broken.add_worker(WORKER, broken.now, incarnation=2)
    lease_until = broken.now + timedelta(seconds=30)
    claim = held(broken) | {"lease_until": lease_until, "incarnation": 1}
    broken.change_job(broken.plain["idle"], **claim)


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
    broken.add_job_like(job.id, "orphan", node=NodeRef(run=RunId("gone"), key="n"))


def leave_a_wait_without_a_run(broken: Broken) -> None:
    wait = replace(broken.wait("asking", "w"), run=RunId("gone"))
    broken.records.put_wait(wait.place, wait)


# I8: terminal is final


def write_after_the_end(broken: Broken) -> None:
    broken.append("chain", events.SignalReceived(name="late"), b"1")


def retry_what_was_completed(broken: Broken) -> None:
    broken.append("chain", events.RunRetried(effects=Effects()))


def retry_what_goes_on(broken: Broken) -> None:
    broken.append("sleeping", events.RunRetried(effects=Effects()))


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
    broken.lines.append(Requeued(at=0, job=line.job, attempt=1))


def fail_the_same_attempt_twice(broken: Broken) -> None:
    number = broken.find("flaky", events.NodeRetried)
    broken.insert("flaky", number + 1, broken.event("flaky", number))


def complete_another_attempt(broken: Broken) -> None:
    broken.change_job(broken.plain["done"], attempt=0)


def retry_a_job_beyond_its_attempts(broken: Broken) -> None:
    broken.change_job(broken.plain["idle"], max_attempts=3, failures=1, snoozes=2)


def retry_a_job_beyond_its_policy(broken: Broken) -> None:
    policy = encode_policy(Retry(2), None)
    broken.change_job(broken.plain["idle"], policy=policy, failures=3, incarnation=1)


def fail_a_dead_job_once_too_often(broken: Broken) -> None:
    changes = {"status": Status.DEAD, "finished_at": broken.now}
    broken.change_job(broken.plain["idle"], max_attempts=1, failures=2, **changes)


# I10, I11: results and limits


def end_otherwise_than_expected(broken: Broken) -> None:
    expected = {"chain": Expected(status=RunStatus.FAILED)}
    broken.settings = EvidenceSettings(expected=expected)


def give_another_result(broken: Broken) -> None:
    expected = {"chain": Expected(status=RunStatus.COMPLETED, result={"a": 1})}
    broken.settings = EvidenceSettings(expected=expected)


def exceed_a_limit(broken: Broken) -> None:
    """Two committed executions under one key, both at work at one moment."""
    first, second = broken.began(run="chain", key="a"), broken.began(run="chain two", key="a")
    end = next(each for each in broken.lines if is_end_of(each, second))
    broken.change_line(second, at=first.at)
    broken.change_line(end, at=second.at + 100)


def exceed_a_rate(broken: Broken) -> None:
    window = timedelta(minutes=1)
    broken.settings = EvidenceSettings(
        limits=(LimitRule(key="plain", starts_max=1, window=window),)
    )


def start_too_close_to_each_other(broken: Broken) -> None:
    spacing = timedelta(hours=1)
    broken.settings = EvidenceSettings(limits=(LimitRule(key="plain", spacing=spacing),))


def exceed_a_rate_by_the_evidence(broken: Broken) -> None:
    hour = timedelta(hours=1)
    rule = LimitRule(key="printer", starts_max=1, window=hour)
    broken.settings = EvidenceSettings(limits=(rule,), start_slack=timedelta(seconds=1))


# Schedules


def start_a_tick_twice(broken: Broken) -> None:
    schedule = broken.state.schedules.by_place[NAMESPACE, "nightly"]
    [triggered] = schedule.state.history
    tick = replace(triggered, reason="")
    again = replace(tick, run=RunId("chain"))
    change_schedule(broken, history=(tick, again), started=2)


def lose_count_of_ticks(broken: Broken) -> None:
    change_schedule(broken, started=0)


def lose_what_a_tick_started(broken: Broken) -> None:
    tick = TickRecord(
        at=broken.run("chain").created_at, result=TickResult.STARTED, run=RunId("gone")
    )
    change_schedule(broken, history=(tick,))


def held(broken: Broken) -> dict[str, object]:
    long_ago = broken.run("chain").created_at - timedelta(hours=1)
    return {"status": Status.ACTIVE, "worker": WORKER, "lease_until": long_ago, "epoch": 9}


def hold(broken: Broken, run: str, key: str) -> None:
    [job] = broken.jobs_of("queued")
    node = NodeRef(run=RunId(run), key=key)
    broken.add_job_like(job.id, "held", node=node, **held(broken))


def wait_for_worker(broken: Broken, until: timedelta) -> None:
    """A job of a run that has not changed for an hour."""
    hour_ago = broken.now - timedelta(hours=1)
    broken.change_run("queued", updated_at=hour_ago)
    [job] = broken.jobs_of("queued")
    broken.change_job(
        job.id, ready_at=hour_ago, sticky_worker=WORKER, sticky_until=broken.now + until
    )


def late(broken: Broken) -> None:
    broken.settings = EvidenceSettings(grace=timedelta(minutes=5))


def change_schedule(broken: Broken, **changes: object) -> None:
    place = (NAMESPACE, "nightly")
    schedule = broken.state.schedules.by_place[place]
    after = replace(schedule, state=replace(schedule.state, **changes))
    broken.state.schedules.put(place, after)


def is_end_of(line: object, began: BodyStarted) -> bool:
    return isinstance(line, BodyEnded) and line.nonce == began.nonce


AT_WORK: list[Case] = [
    (hold_a_job_of_a_waiting_run, "I6", "idle_run_holds_no_job"),
    (hold_a_job_of_a_paused_run, "I6", "idle_run_holds_no_job"),
    (lose_the_job_of_a_key, "I7", "live_jobs"),
    (have_a_job_too_many, "I7", "live_jobs"),
    (lose_a_wait, "I7", "live_waits"),
    (lose_a_timer, "I7", "live_waits"),
    (have_a_wait_too_many, "I7", "live_waits"),
    (wait_for_another_child, "I7", "live_waits"),
    (wait_for_the_wrong_kind, "I7", "live_waits"),
    (leave_a_job_of_a_paused_run_waiting, "I7", "paused_run_parked"),
    (leave_a_job_parked_after_the_pause, "I7", "paused_run_parked"),
    (let_a_wait_of_a_paused_run_go, "I7", "paused_run_parked"),
    (keep_a_wait_held_after_the_pause, "I7", "paused_run_parked"),
    (leave_a_job_in_the_partition_of_another_version, "I7", "run_job_partition"),
    (leave_a_job_behind_in_a_migration, "I7", "run_job_partition"),
    (lose_a_definition, "I7", "run_definition"),
    (let_a_timer_be_overdue, "I7", "run_overdue"),
    (let_a_lease_be_overdue, "I7", "run_overdue"),
    (let_a_plain_lease_be_overdue, "I7", "job_overdue"),
    (let_a_scheduled_job_be_overdue, "I7", "job_overdue"),
    (let_a_deadline_be_overdue, "I7", "job_overdue"),
    (keep_a_job_for_its_worker_for_too_long, "I7", "job_sticky"),
    (keep_a_job_for_a_worker_that_died, "I7", "job_sticky"),
    (keep_a_job_for_a_worker_that_has_no_row, "I7", "job_sticky"),
    (leave_a_claim_of_an_earlier_start, "I7", "job_former_claim"),
    (let_a_schedule_be_overdue, "I7", "schedule_overdue"),
    (hold_a_job_without_a_lease, "I7", "job_consistent"),
    (lose_a_parent, "I7", "parent_exists"),
    (forget_a_child, "I7", "child_awaited"),
    (not_hear_of_a_childs_end, "I7", "awaited_children"),
    (take_anothers_child, "I7", "child_parent"),
    (lose_a_child, "I7", "awaited_children"),
    (leave_a_job_without_a_run, "I7", "run_exists"),
    (leave_a_wait_without_a_run, "I7", "run_exists"),
    (write_after_the_end, "I8", "nothing_after_end"),
    (retry_what_was_completed, "I8", "nothing_after_end"),
    (retry_what_goes_on, "I8", "retry_of_ended_run"),
    (fork_from_elsewhere, "I8", "fork_origin"),
    (go_on_in_a_pause, "I8", "nothing_while_paused"),
    (pause_twice, "I8", "pauses_alternate"),
    (complete_with_something_live, "I8", "completed_run_done"),
    (leave_a_job_of_an_ended_run, "I8", "live_jobs"),
    (leave_a_wait_of_an_ended_run, "I8", "live_waits"),
    (leave_events_of_a_run_that_is_gone, "I8", "orphans"),
    (end_a_job_without_a_time, "I8", "job_consistent"),
    (end_the_job_of_a_node, "I13", "job_consistent"),
    (count_an_attempt_too_many, "I9", "attempts_follow"),
    (jump_an_attempt, "I9", "attempts_follow"),
    (count_what_was_given_back, "I9", "attempts_follow"),
    (fail_the_same_attempt_twice, "I9", "attempts_increase"),
    (complete_another_attempt, "I9", "output_is_current"),
    (retry_a_job_beyond_its_attempts, "I9", "job_attempts_bound"),
    (retry_a_job_beyond_its_policy, "I9", "job_attempts_bound"),
    (fail_a_dead_job_once_too_often, "I9", "job_attempts_bound"),
    (end_otherwise_than_expected, "I10", "as_expected"),
    (give_another_result, "I10", "as_expected"),
    (exceed_a_limit, "I11", "limits_hold"),
    (exceed_a_rate, "I11", "limits_hold"),
    (start_too_close_to_each_other, "I11", "limits_hold"),
    (exceed_a_rate_by_the_evidence, "I11", "limits_hold"),
    (start_a_tick_twice, "I2", "one_start_per_tick"),
    (lose_count_of_ticks, "I2", "tick_counts"),
    (lose_what_a_tick_started, "I1", "started_work_exists"),
]
