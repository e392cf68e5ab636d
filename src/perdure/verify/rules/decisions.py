"""I10 and I7: the log equals what the engine decides, and live rows equal what it requested."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from perdure.diagnostics import Finding, declare
from perdure.engine.plan import call_of
from perdure.model.ids import RUN_START, RUN_TIMEOUT
from perdure.model.job import FINISHED
from perdure.model.partition import UNSUSPECTED, Partition, with_suspicion
from perdure.model.run import LiveType, Wait, WaitType
from perdure.model.settings import effective_priority, placed
from perdure.model.times import nearest_duration
from perdure.model.wait import MESSAGE_MAX, TITLE_MAX, bounded
from perdure.store.admission import rank_of
from perdure.verify.load import AuditedRun, decoded, is_json
from perdure.verify.redecide import Opened

ROUNDING = timedelta(milliseconds=2)
RANK_ROUNDING = 0.01
"""In seconds: ranks are floats."""
IN_ONE_COMMIT = timedelta(seconds=60)
"""Maximum difference between the times that one commit writes."""


def log_as_decided(view: AuditedRun) -> Iterator[Finding]:
    """Deciding each trigger again gives the logged events."""
    fault = view.redecided.fault
    if fault is not None:
        yield view.finding("I10", fault.code, fault.number, **fault.args)


WAITS_AS_OPENED_DIFFERS = declare(
    "verify.waits_as_opened.differs",
    "the {name} of its wait is {kept!r}, but it was opened with {asked!r}",
)
WAITS_AS_OPENED_DETAIL = declare(
    "verify.waits_as_opened.detail",
    "the detail of its wait is {detail!r}, which is not what it was opened with",
)
WAITS_AS_OPENED_DUE = declare(
    "verify.waits_as_opened.due",
    "its wait is due at {due_at}, but it was opened at {at}[ for {wanted}][ to last {delay}]",
)


def waits_as_opened(view: AuditedRun) -> Iterator[Finding]:
    """An open wait equals the requested one: type, name, deciders, detail and time."""
    if view.jobs is None or view.redecided.fault:
        return
    for wait in view.waits:
        opened = view.redecided.opened.get(wait.key)
        is_of_run = wait.key in (RUN_START, RUN_TIMEOUT)
        if opened is None or (
            not is_of_run and view.state.live.get(wait.key) in (None, LiveType.JOB)
        ):
            continue  # another rule reports it
        wanted = opened.wait
        pairs = (
            ("type", wait.type, wanted.type),
            ("name", wait.name, wanted.name),
            ("deciders", wait.deciders, wanted.deciders),
        )
        for name, kept, asked in pairs:
            if kept != asked:
                yield view.finding(
                    "I7", WAITS_AS_OPENED_DIFFERS, key=wait.key, name=name, kept=kept, asked=asked
                )
        if not _same_json(view, wait.detail, wanted.detail) and not (
            wanted.type is WaitType.APPROVAL and _is_longer(view, wait.detail, wanted.detail)
        ):
            yield view.finding("I7", WAITS_AS_OPENED_DETAIL, key=wait.key, detail=wait.detail[:80])
        if wait.key == RUN_TIMEOUT and not view.state.settings.timeout_counts_waiting:
            continue  # its clock stops and continues with the status
        if wait.key == RUN_START and view.state.settings.max_running is not None:
            continue  # due when there is a place
        if wanted.type is not WaitType.CHILD and not _is_due_in_time(wait, opened):
            due_at, delay = wanted.due_at, wanted.delay
            yield view.finding(
                "I7",
                WAITS_AS_OPENED_DUE,
                key=wait.key,
                due_at=wait.due_at,
                at=opened.at,
                wanted=due_at,
                delay=delay,
            )


def _same_json(view: AuditedRun, kept: bytes | None, asked: bytes) -> bool:
    """Whether a stored value equals this JSON; None equals only None."""
    json = decoded(kept, view.settings)
    if json == asked or not json or not asked:
        return json == asked
    if not is_json(json) or not is_json(asked):
        return False
    return bool(msgspec.json.decode(json) == msgspec.json.decode(asked))


def _is_longer(view: AuditedRun, kept: bytes, asked: bytes) -> bool:
    """Whether the stored request of an approval is older than the bounds of its texts."""
    json = decoded(kept, view.settings)
    request = msgspec.json.decode(json) if is_json(json) else None
    if not isinstance(request, dict):
        return False
    for name, most in (("title", TITLE_MAX), ("message", MESSAGE_MAX)):
        if isinstance(text := request.get(name), str):
            request[name] = bounded(text, most)
    return bool(request == msgspec.json.decode(asked))


def _is_due_in_time(wait: Wait, opened: Opened) -> bool:
    wanted = opened.wait
    if wanted.type is WaitType.EXTERNAL:  # only the wait has its deadline
        return wait.due_at is None or wait.due_at >= wait.opened_at
    if wanted.due_at is not None:
        return wait.due_at is not None and abs(wait.due_at - wanted.due_at) <= ROUNDING
    if wanted.delay is None or wait.due_at is None:
        return wanted.delay is None and wait.due_at is None
    delay = nearest_duration(wanted.delay)
    earliest = max(opened.at, opened.at + delay - opened.sooner) - ROUNDING
    return earliest <= wait.due_at <= opened.at + delay + IN_ONE_COMMIT


JOBS_AS_SCHEDULED_DIFFERS = declare(
    "verify.jobs_as_scheduled.differs",
    "the {name} of its job is {kept!r}, but {asked!r} was scheduled",
)
JOBS_AS_SCHEDULED_RANK = declare(
    "verify.jobs_as_scheduled.rank",
    "the rank of its job is {stored}, but {rank} by its time and priority",
)
JOBS_AS_SCHEDULED_INPUT = declare(
    "verify.jobs_as_scheduled.input", "the input of its job is not what was scheduled"
)


def jobs_as_scheduled(view: AuditedRun) -> Iterator[Finding]:
    """The job of a key equals the requested one: partition, priority, policy, input, rank."""
    if view.jobs is None or view.redecided.fault:
        return
    for job in view.jobs:
        schedule = None if job.node is None else view.redecided.scheduled.get(job.node.key)
        if schedule is None or view.state.live.get(schedule.key.text) is not LiveType.JOB:
            continue  # another rule reports it
        details = None if view.details is None else view.details.get(job.id)
        key, call = schedule.key.text, schedule.call
        priority = effective_priority(view.state.priority, call.priority)
        pairs: list[tuple[str, object, object]] = [("priority", job.priority, priority)]
        if details is not None:
            flow = f"{view.state.flow}@{view.state.version}"
            own = Partition(queue=call.queue, task=call.task, tags=call.tags, flow=flow)
            partition = placed(own, view.state.settings, schedule.key.node)
            policy = None if call.policy is None else call.policy.encode()
            pairs += [
                ("queue", details.queue, partition.queue),
                ("task", details.task, call.task),
                ("partition", with_suspicion(details.partition, UNSUSPECTED), partition.text),
                ("policy", details.policy, policy),
            ]
        for name, kept, asked in pairs:
            if kept != asked:
                yield view.finding(
                    "I7",
                    JOBS_AS_SCHEDULED_DIFFERS,
                    key=key,
                    job=job.id,
                    name=name,
                    kept=kept,
                    asked=asked,
                )
        if details is None or job.status in FINISHED:
            continue
        rank = rank_of(job.ready_at, job.priority, timedelta(milliseconds=view.state.aging_ms))
        if abs(details.rank - rank) > RANK_ROUNDING:
            yield view.finding(
                "I7", JOBS_AS_SCHEDULED_RANK, key=key, job=job.id, stored=details.rank, rank=rank
            )
        if not _same_json(view, details.input, call_of(schedule)):
            yield view.finding("I7", JOBS_AS_SCHEDULED_INPUT, key=key, job=job.id)


RULES = (log_as_decided, waits_as_opened, jobs_as_scheduled)
