"""Explaining runs and jobs: what they are at, what they wait for, and why nothing happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from perdure.model.explanation import Explanation, Finding, FindingKind, Surroundings
from perdure.model.ids import RunId
from perdure.model.job import FINISHED, FailedAttempt, Job, Status
from perdure.model.run import RunState, RunStatus
from perdure.rules.explain_jobs import findings_of_jobs, told
from perdure.rules.explain_waits import findings_beside, findings_of_waits, moment

FINDINGS_MAX = 100
"""Findings that one explanation has at most; how many more there are is the last of them."""

_STUCK = (
    FindingKind.NO_WORKER,
    FindingKind.NO_VERSION,
    FindingKind.NO_TASK,
    FindingKind.NO_QUEUE,
    FindingKind.NO_TAGS,
    FindingKind.QUEUE_PAUSED,
    FindingKind.DISABLED,
    FindingKind.LIMITED,
)
"""Why a job is not started that could be; the more there is to do about it, the earlier."""

_NAMES = {
    FindingKind.RUNNING: ("job runs", "jobs run"),
    FindingKind.LOST: ("job lost its worker", "jobs lost their worker"),
    FindingKind.QUEUED: ("job waits for a worker with room", "jobs wait for a worker with room"),
    FindingKind.SCHEDULED: ("job waits for its time", "jobs wait for their time"),
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
        *_of_run(run, state, around.paused_at),
        *findings_of_jobs(f"{state.flow}@{state.version}", around, now),
        *findings_of_waits(run, state, around, now),
        *findings_beside(run, state, around, now),
    ]
    summary = _summary(state, found)
    if len(found) > FINDINGS_MAX:
        more = Finding(kind=FindingKind.MORE, text=f"and {len(found) - FINDINGS_MAX} more")
        found = [*found[:FINDINGS_MAX], more]
    return Explanation(run=run, status=state.status, summary=summary, findings=tuple(found))


# The run as a whole


def _of_run(run: RunId, state: RunState, paused_at: datetime | None) -> Iterator[Finding]:
    if state.is_paused:
        since = "" if paused_at is None else f" since {moment(paused_at)}"
        why = _reason(state, since) if state.ends_as is None else since
        yield Finding(
            kind=FindingKind.PAUSED,
            text=f"it is paused{why}",
            help=f"client.unpause({run!r})",
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
    return f"node {state.failed_node!r} failed: {told(state.failure)}"


def _reason(state: RunState, since: str = "") -> str:
    by = since if state.by is None else f" by {state.by}{since}"
    return by if state.reason is None else f"{by}: {state.reason}"


# One job


def explain_job(job: Job, around: Surroundings, now: datetime) -> Explanation:
    """Why a job of no run is where it is; ``around`` has that job alone."""
    found = [*findings_of_jobs("", around, now), *_ended_job(job, around.failures.get(job.id))]
    is_stuck = bool(found) and found[0].kind in _STUCK
    summary = f"It is {job.status}."
    if found:
        text = found[0].text
        summary = f"It does not run: {text}." if is_stuck else _sentence(text)
    return Explanation(job=job.id, status=job.status, summary=summary, findings=tuple(found))


def explain_job_of_run(job: Job, of_run: Explanation) -> Explanation:
    """The same of a job of a run, from what is known of that run: its part of it."""
    assert job.node is not None
    found = tuple(each for each in of_run.findings if each.key in ("", job.node.key))
    own = next((each.text for each in found if each.key), "")
    summary = _sentence(own) if own else of_run.summary
    return Explanation(
        run=of_run.run, job=job.id, status=job.status, summary=summary, findings=found
    )


def _ended_job(job: Job, failed: FailedAttempt | None) -> Iterator[Finding]:
    if job.status not in FINISHED or job.status is Status.COMPLETED:
        return
    when = "" if job.finished_at is None else f" at {moment(job.finished_at)}"
    why = "" if failed is None else f", after {told(failed.failure)}"
    match job.status:
        case Status.DEAD:
            kind, what = FindingKind.FAILED, f"task {job.task!r} is in the dead letter{when}"
        case Status.CANCELLED:
            kind, what = FindingKind.CANCELLED, f"task {job.task!r} was cancelled{when}"
        case _:
            kind, what = FindingKind.FAILED, f"task {job.task!r} failed{when}"
    help = f"client.retry({job.id!r})"
    yield Finding(kind=kind, text=f"{what}{why}", help=help)


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
    parts = [f"{counts[kind]} {_NAMES[kind][counts[kind] > 1]}" for kind in _NAMES if counts[kind]]
    held_back = sum(counts[kind] for kind in _STUCK)
    if held_back:
        parts.append(f"{held_back} held back")
    return _sentence(", ".join(parts)) if parts else "It has just moved on; look again."


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
