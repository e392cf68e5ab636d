"""What becomes of a job, in words: who executes it, or why nobody does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from perdure.model.explanation import Finding, FindingKind, Surroundings
from perdure.model.failure import Failure
from perdure.model.job import FailedAttempt, Job, Status
from perdure.model.key import Key
from perdure.model.worker import WorkerState
from perdure.rules.explain_limits import full_limits
from perdure.rules.explain_waits import moment
from perdure.rules.serving import has_code, has_tags, is_live

_ERRANDS = {
    "poll": "which asks after the work of an outside party",
    "notify": "which tells people of an approval",
}
"""What jobs are for that stand beside a node, by the part of their key."""


def findings_of_jobs(flow: str, around: Surroundings, now: datetime) -> Iterator[Finding]:
    """Of the jobs around; ``flow`` is the version of their run's flow, and empty without a run."""
    live = [each for each in around.workers if is_live(each, now)]
    pauses = {each.queue: each for each in around.paused_queues}
    for job in around.jobs:
        match job.status:
            case Status.ACTIVE | Status.ABORTING:
                yield _held(job, live, now)
            case Status.SCHEDULED:
                yield _scheduled(job, flow, around.failures.get(job.id), live)
            case Status.WAITING if job.queue in pauses:
                pause = pauses[job.queue]
                by = "" if pause.paused_by is None else f" by {pause.paused_by}"
                text = f"queue {job.queue!r} is paused{by} since {moment(pause.paused_at)}"
                help = f"client.resume_queue({job.queue!r})"
                yield _finding(FindingKind.QUEUE_PAUSED, job, text, help)
            case Status.WAITING:
                for found in _waiting(job, flow, live, around, now):
                    yield _ready_since(job, found)
            case Status.DISABLED:
                text = f"task {job.task!r} was disabled, and does not run until it is enabled"
                help = f"client.enable({job.id!r})"
                yield _finding(FindingKind.DISABLED, job, text, help)
            case Status.PAUSED if job.node is None:
                text = f"task {job.task!r} paused, and goes on once it is resumed"
                yield _finding(FindingKind.PAUSED, job, text, f"client.resume({job.id!r})")


def told(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}"


def _held(job: Job, live: Sequence[WorkerState], now: datetime) -> Finding:
    since = "" if job.started_at is None else f" since {moment(job.started_at)}"
    what = f"attempt {job.attempt} of {_task(job)}"
    if job.lease_until is None or job.lease_until > now:
        asked = ", and was asked to stop" if job.status is Status.ABORTING else ""
        return _finding(
            FindingKind.RUNNING, job, f"{what} runs on worker {job.worker}{since}{asked}"
        )
    text = f"{what} ran on worker {job.worker}{since}, which has been silent since its lease ended"
    text += f" at {moment(job.lease_until)}"
    if live:
        return _finding(FindingKind.LOST, job, f"{text}: the next live worker takes it over")
    return _finding(FindingKind.LOST, job, f"{text}, and no worker is live", _start_with(job))


def _scheduled(
    job: Job, flow: str, failed: FailedAttempt | None, live: Sequence[WorkerState]
) -> Finding:
    """It needs nobody to act, as long as there is somebody to work."""
    is_served = any(
        has_code(each.info, task=job.task, flow=flow)
        and job.queue in each.info.queues
        and has_tags(each.info.tags, job.tags)
        for each in live
    )
    how = "by itself" if is_served else "once a live worker can take it"
    when = f"at {moment(job.ready_at)}, {how}"
    help = "" if is_served else _start_with(job)
    if not job.attempt:
        return _finding(FindingKind.SCHEDULED, job, f"{_task(job)} is to start {when}", help)
    text = f"attempt {job.attempt + 1} of {_task(job)} is due {when}"
    if failed is not None:
        text += f"; the last one failed at {moment(failed.at)}: {told(failed.failure)}"
    return _finding(FindingKind.RETRY, job, text, help)


def _ready_since(job: Job, found: Finding) -> Finding:
    if found.kind is FindingKind.QUEUED:  # which says so itself
        return found
    return replace(found, text=f"{found.text}; the job is ready since {moment(job.ready_at)}")


def _waiting(
    job: Job, flow: str, live: Sequence[WorkerState], around: Surroundings, now: datetime
) -> Iterator[Finding]:
    """Why nobody has taken a job, narrowing down who could."""
    if not live:
        yield _finding(FindingKind.NO_WORKER, job, "no worker is live", _start_with(job))
        return
    what = flow or f"task {job.task!r}"
    versed = [each for each in live if has_code(each.info, task=job.task, flow=flow)]
    if not versed:
        yield _without_version(job, flow, live) if flow else _without_task(job)
        return
    serving = [each for each in versed if job.queue in each.info.queues]
    if not serving:
        text = f"no live worker that has {what} serves queue {job.queue!r}"
        help = f"start a worker with queues=[{job.queue!r}]"
        yield _finding(FindingKind.NO_QUEUE, job, text, help)
        return
    able = [each for each in serving if has_tags(each.info.tags, job.tags)]
    if not able:
        tags = ", ".join(map(repr, job.tags))
        text = f"no live worker that has {what} and serves queue {job.queue!r} has tags {tags}"
        yield _finding(FindingKind.NO_TAGS, job, text, f"start a worker with tags=[{tags}]")
        return
    yield from full_limits(job, flow, able, around, now) or [_queued(job, able)]


def _queued(job: Job, able: Sequence[WorkerState]) -> Finding:
    many = "1 live worker" if len(able) == 1 else f"{len(able)} live workers"
    text = f"{_task(job)} waits in queue {job.queue!r} since {moment(job.ready_at)}; "
    busy = sum(len(each.running) >= each.info.concurrency for each in able)
    full = "" if not busy else ", and is busy" if len(able) == 1 else f", of which {busy} are busy"
    return _finding(FindingKind.QUEUED, job, f"{text}{many} can take it{full}")


def _without_task(job: Job) -> Finding:
    text = f"no live worker has task {job.task!r}"
    return _finding(FindingKind.NO_TASK, job, text, "start a worker with this task")


def _without_version(job: Job, flow: str, live: Sequence[WorkerState]) -> Finding:
    name = flow.rpartition("@")[0]
    known = Counter(
        each for worker in live for each in worker.info.flows if each.rpartition("@")[0] == name
    )
    text = f"no live worker has {flow}"
    if not known:
        text += f", nor any other version of flow {name!r}"
        return _finding(FindingKind.NO_VERSION, job, text, "start a worker with this version")
    nearest = max(known, key=lambda each: (known[each], each))
    text += f"; the nearest version that a live worker has is {nearest}"
    run = None if job.node is None else job.node.run
    help = f"start a worker with this version, or client.migrate({run!r}, to={name})"
    return _finding(FindingKind.NO_VERSION, job, text, help)


def _start_with(job: Job) -> str:
    return (
        "start a worker with this flow" if job.node is not None else "start a worker with this task"
    )


def _task(job: Job) -> str:
    part = "" if job.node is None else Key.parse(job.node.key).part
    errand = _ERRANDS.get(part)
    return f"task {job.task!r}" if errand is None else f"task {job.task!r}, {errand},"


def _finding(kind: FindingKind, job: Job, text: str, help: str = "") -> Finding:
    return Finding(kind=kind, key="" if job.node is None else job.node.key, text=text, help=help)
