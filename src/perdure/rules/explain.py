"""Explaining a run: what it is at, what it waits for, and why nothing happens if nothing does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from perdure.model.explanation import Explanation, Finding, FindingKind, Surroundings
from perdure.model.failure import Failure
from perdure.model.ids import RunId
from perdure.model.job import Job, Status
from perdure.model.key import Key
from perdure.model.run import RunState, RunStatus
from perdure.model.worker import WorkerState
from perdure.rules.explain_waits import findings_beside, findings_of_waits, moment

FINDINGS_MAX = 100
"""Findings that one explanation has at most; how many more there are is the last of them."""

_STUCK = (
    FindingKind.NO_WORKER,
    FindingKind.NO_VERSION,
    FindingKind.NO_QUEUE,
    FindingKind.NO_TAGS,
    FindingKind.QUEUE_PAUSED,
)
"""Why a job is not started that could be; the more there is to do about it, the earlier."""

_ERRANDS = {
    "poll": "which asks after the work of an outside party",
    "notify": "which tells people of an approval",
}
"""What jobs are for that stand beside a node, by the part of their key."""

_NAMES = {
    FindingKind.RUNNING: ("job runs", "jobs run"),
    FindingKind.QUEUED: ("job waits for a worker with room", "jobs wait for a worker with room"),
    FindingKind.RETRY: ("job waits for another attempt", "jobs wait for another attempt"),
    FindingKind.TIMER: ("timer is set", "timers are set"),
    FindingKind.SIGNAL: ("signal is waited for", "signals are waited for"),
    FindingKind.APPROVAL: ("approval is waited for", "approvals are waited for"),
    FindingKind.OUTSIDE: ("report is waited for", "reports are waited for"),
    FindingKind.CHILD: ("child run is waited for", "child runs are waited for"),
}


def explain_run(run: RunId, state: RunState, around: Surroundings, now: datetime) -> Explanation:
    """Why the run is where it is."""
    found = [
        *_of_run(run, state),
        *_of_jobs(state, around, now),
        *findings_of_waits(run, state, around, now),
        *findings_beside(run, state, around, now),
    ]
    summary = _summary(state, found)
    if len(found) > FINDINGS_MAX:
        more = Finding(kind=FindingKind.MORE, text=f"and {len(found) - FINDINGS_MAX} more")
        found = [*found[:FINDINGS_MAX], more]
    return Explanation(run=run, status=state.status, summary=summary, findings=tuple(found))


# The run as a whole


def _of_run(run: RunId, state: RunState) -> Iterator[Finding]:
    if state.is_paused:
        why = _reason(state) if state.ends_as is None else ""
        yield Finding(
            kind=FindingKind.PAUSED, text=f"it is paused{why}", help=f"client.unpause({run!r})"
        )
    if state.ends_as is not None:
        left = ", ".join(map(repr, state.undoes[:FINDINGS_MAX]))
        text = f"{_ending(state, state.ends_as)}; still to be undone: {left}"
        yield Finding(kind=FindingKind.UNDOING, text=text)
    elif state.failure is not None:
        is_ended = state.status is RunStatus.FAILED
        rest = "" if is_ended else "; other branches are finished first"
        yield Finding(
            kind=FindingKind.FAILED,
            key=state.failed_node,
            text=f"{_failed(state)}{rest}",
            help=_how_to_start_anew(run, state) if is_ended else "",
        )
    elif state.status is RunStatus.CANCELLED:
        yield Finding(
            kind=FindingKind.CANCELLED,
            text=f"it was cancelled{_reason(state)}",
            help=_how_to_start_anew(run, state),
        )
    elif state.status is RunStatus.SKIPPED:
        yield Finding(
            kind=FindingKind.SKIPPED,
            text=f"it was skipped{_reason(state)}",
            help="submit it again later",
        )


def _how_to_start_anew(run: RunId, state: RunState) -> str:
    is_undone = any(node.is_undone for node in state.nodes.values())
    return f"client.fork({run!r}, after=...)" if is_undone else f"client.retry({run!r})"


def _ending(state: RunState, status: RunStatus) -> str:
    if status is RunStatus.FAILED:
        return _failed(state)
    return f"it was cancelled{_reason(state)}"


def _failed(state: RunState) -> str:
    assert state.failure is not None
    return f"node {state.failed_node!r} failed: {_told(state.failure)}"


def _told(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}"


def _reason(state: RunState) -> str:
    by = "" if state.by is None else f" by {state.by}"
    return by if state.reason is None else f"{by}: {state.reason}"


# Jobs


def _of_jobs(state: RunState, around: Surroundings, now: datetime) -> Iterator[Finding]:
    alive = [each for each in around.workers if now - each.seen_at <= each.info.lease]
    pauses = {each.queue: each for each in around.paused_queues}
    flow = f"{state.flow}@{state.version}"
    for job in around.jobs:
        if job.status in (Status.ACTIVE, Status.ABORTING):
            yield _running(job)
        elif job.status is Status.SCHEDULED:
            yield _scheduled(job, around.failures.get(job.id))
        elif job.status is Status.WAITING and job.queue in pauses:
            by = pauses[job.queue].paused_by
            text = f"queue {job.queue!r} is paused{'' if by is None else f' by {by}'}"
            help = f"client.resume_queue({job.queue!r})"
            yield _finding(FindingKind.QUEUE_PAUSED, job, text, help)
        elif job.status is Status.WAITING:
            yield _waiting(job, flow, alive)


def _running(job: Job) -> Finding:
    since = "" if job.started_at is None else f" since {moment(job.started_at)}"
    what = f"attempt {job.attempt} of {_task(job)}"
    text = f"{what} runs on worker {job.worker}{since}"
    return _finding(FindingKind.RUNNING, job, text)


def _scheduled(job: Job, failure: Failure | None) -> Finding:
    text = f"attempt {job.attempt + 1} of {_task(job)} is due at {moment(job.ready_at)}"
    if failure is not None:
        text += f", after {_told(failure)}"
    return _finding(FindingKind.RETRY, job, text)


def _waiting(job: Job, flow: str, alive: Sequence[WorkerState]) -> Finding:
    """Why nobody has taken a job, narrowing down who could."""
    if not alive:
        text = "no worker is live"
        return _finding(FindingKind.NO_WORKER, job, text, "start a worker with this flow")
    versed = [each for each in alive if flow in each.info.flows]
    if not versed:
        return _without_version(job, flow, alive)
    serving = [each for each in versed if job.queue in each.info.queues]
    if not serving:
        text = f"no live worker that has {flow} serves queue {job.queue!r}"
        help = f"start a worker with queues=[{job.queue!r}]"
        return _finding(FindingKind.NO_QUEUE, job, text, help)
    able = [each for each in serving if _has_tags(each, job)]
    if not able:
        tags = ", ".join(map(repr, job.tags))
        text = f"no live worker that has {flow} and serves queue {job.queue!r} has tags {tags}"
        return _finding(FindingKind.NO_TAGS, job, text, f"start a worker with tags=[{tags}]")
    text = f"{_task(job)} waits in queue {job.queue!r}; {len(able)} live workers can take it"
    return _finding(FindingKind.QUEUED, job, text)


def _without_version(job: Job, flow: str, alive: Sequence[WorkerState]) -> Finding:
    name = flow.rpartition("@")[0]
    known = Counter(
        each for worker in alive for each in worker.info.flows if each.rpartition("@")[0] == name
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


def _has_tags(worker: WorkerState, job: Job) -> bool:
    tags = worker.info.tags
    return tags is None or set(job.tags) <= set(tags)


def _task(job: Job) -> str:
    part = "" if job.node is None else Key.parse(job.node.key).part
    errand = _ERRANDS.get(part)
    return f"task {job.task!r}" if errand is None else f"task {job.task!r}, {errand},"


def _finding(kind: FindingKind, job: Job, text: str, help: str = "") -> Finding:
    return Finding(kind=kind, key="" if job.node is None else job.node.key, text=text, help=help)


# The sentence


def _summary(state: RunState, findings: Sequence[Finding]) -> str:
    first = next((each.text for each in findings if not each.key), "")
    if state.status is RunStatus.COMPLETED:
        return "It is completed."
    if state.status is RunStatus.FAILED:
        return _sentence(_failed(state))
    if first:  # paused, cancelled, skipped or being undone
        return _sentence(first)
    counts = Counter(each.kind for each in findings)
    stuck = next((kind for kind in _STUCK if counts[kind]), None)
    if stuck is not None and not counts[FindingKind.RUNNING]:
        text = next(each.text for each in findings if each.kind is stuck)
        return f"Nothing runs: {text}."
    told = [f"{counts[kind]} {_NAMES[kind][counts[kind] > 1]}" for kind in _NAMES if counts[kind]]
    held_back = sum(counts[kind] for kind in _STUCK)
    if held_back:
        told.append(f"{held_back} held back")
    return _sentence(", ".join(told)) if told else "It has just moved on; look again."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
