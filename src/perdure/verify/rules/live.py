"""I6 and I7: what is live has the one job, wait or child that carries it on; none is stuck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perdure.model.job import FINISHED, HELD, Job, Status
from perdure.model.lane import UNREADABLE, Lane
from perdure.model.run import ENDED, LiveKind, RunStatus, Wait, WaitKind
from perdure.verify.finding import Finding
from perdure.verify.load import NOT_STORED, RunView


def jobs_match(view: RunView) -> Iterator[Finding]:
    """Each live key with a job has one, and no other key has any."""
    if view.jobs is None:
        return
    wanted = {key for key, kind in view.state.live.items() if kind is LiveKind.JOB}
    counts = Counter(job.node.key for job in view.jobs if job.node is not None)
    for key in sorted(wanted - counts.keys()):
        text = "live, and there is no job that would execute it: nobody will go on with it"
        yield view.finding("I7", "jobs_match", text, key=key)
    for key, count in sorted(counts.items()):
        if key not in wanted:
            yield _extra_job(view, key)
        elif count > 1:
            text = f"{count} jobs would execute it"
            yield view.finding("I2", "jobs_match", text, key=key)


def _extra_job(view: RunView, key: str) -> Finding:
    assert view.jobs is not None
    job = next(job for job in view.jobs if job.node is not None and job.node.key == key)
    is_ended = view.state.is_ended
    text = f"a job ({job.status}) of a key that is not live; the run is {view.state.status}"
    return view.finding("I8" if is_ended else "I7", "jobs_match", text, key=key, job=job.id)


def waits_match(view: RunView) -> Iterator[Finding]:
    """Each live key that waits has its wait, of the right kind, and no other key has one.

    That of a child whose parent gave it up stays until the child has been cancelled.
    """
    if view.jobs is None:
        return
    waits = {wait.key: wait for wait in view.waits}
    for key, kind in view.state.live.items():
        wait = waits.pop(key, None)
        if kind is LiveKind.JOB:
            if wait is not None and wait.kind is not WaitKind.CHILD:
                text = f"has a job, and a wait ({wait.kind}) as well"
                yield view.finding("I7", "waits_match", text, key=key)
        elif wait is None:
            text = f"waits by the log ({kind}), and there is no wait: nothing will wake it"
            yield view.finding("I7", "waits_match", text, key=key)
        elif (wait.kind is WaitKind.CHILD) is not (kind is LiveKind.CHILD):
            text = f"a {kind} by the log, and its wait is for a {wait.kind}"
            yield view.finding("I7", "waits_match", text, key=key)
        elif kind is LiveKind.CHILD and wait.name != view.state.children.get(key):
            text = f"waits for run {view.state.children.get(key)!r}, its wait is for {wait.name!r}"
            yield view.finding("I7", "waits_match", text, key=key)
    for key, wait in waits.items():
        if wait.kind is not WaitKind.CHILD:
            invariant = "I8" if view.state.is_ended else "I7"
            text = f"a wait ({wait.kind}) of a key that is not live"
            yield view.finding(invariant, "waits_match", text, key=key)
        elif wait.due_at is None:
            text = f"nobody cancels child {wait.name!r}, given up: the wait for it is never due"
            yield view.finding("I7", "waits_match", text, key=key)


def waiting_holds_nothing(view: RunView) -> Iterator[Finding]:
    """A run that waits, is paused or is over has no job at a worker."""
    if view.jobs is None or view.run.status in (RunStatus.RUNNING, RunStatus.COMPENSATING):
        return
    for job in view.jobs:
        if job.status in HELD:
            text = f"the run is {view.run.status}, and worker {job.worker} holds a job of it"
            key = "" if job.node is None else job.node.key
            yield view.finding("I6", "waiting_holds_nothing", text, key=key, job=job.id)


def parked_in_a_pause(view: RunView) -> Iterator[Finding]:
    """In a pause all jobs are parked and all waits held; outside none is."""
    if view.jobs is None:
        return
    is_paused = view.state.is_paused
    for job in view.jobs:
        if job.status in FINISHED:
            text = f"a job of a run stays behind as {job.status}"
        elif (job.status is Status.PAUSED) is not is_paused:
            which = "paused" if is_paused else "not paused"
            text = f"the run is {which}, and its job is {job.status}"
        else:
            continue
        key = "" if job.node is None else job.node.key
        yield view.finding("I7", "parked_in_a_pause", text, key=key, job=job.id)
    if view.suspended is None:
        return
    for wait in view.waits:
        if _is_given_up(view, wait):
            continue
        if (wait.key in view.suspended) is not is_paused:
            which = "paused, and its wait may become due" if is_paused else "not paused, and"
            text = f"the run is {which}{'' if is_paused else ' its wait is kept from being due'}"
            yield view.finding("I7", "parked_in_a_pause", text, key=wait.key)


def _is_given_up(view: RunView, wait: Wait) -> bool:
    """A wait for a child that is to be cancelled, which a pause does not keep back."""
    is_awaited = (
        view.state.live.get(wait.key) is LiveKind.CHILD
        and view.state.children.get(wait.key) == wait.name
    )
    return wait.kind is WaitKind.CHILD and not is_awaited


def in_their_lanes(view: RunView) -> Iterator[Finding]:
    """The lane of a run's job is that of the run's version, so that workers who have it find it."""
    if view.jobs is None or view.details is None:
        return
    for job in view.jobs:
        details = view.details.get(job.id)
        if details is None:
            continue
        key = "" if job.node is None else job.node.key
        wanted = f"{view.state.flow}@{view.state.version}"
        lane = Lane.parse(details.lane)
        if lane == UNREADABLE:
            fault = f"its lane {details.lane!r} cannot be read"
        elif lane.flow != wanted:
            fault = f"its lane is for {lane.flow!r}, the run is of {wanted!r}: nobody takes it"
        else:
            continue
        yield view.finding("I7", "in_their_lanes", fault, key=key, job=job.id)


def has_definition(view: RunView) -> Iterator[Finding]:
    """A run needs its flow's definition, to go on and to be retried or forked."""
    fault = view.definition_faults.get(view.state.version)
    if fault is not None:
        text = f"the definition of {view.state.flow}@{view.state.version} {fault}"
        yield view.finding("I7" if fault == NOT_STORED else "I5", "has_definition", text)


def job_in_time(job: Job, view: RunView) -> Iterator[Finding]:
    key = "" if job.node is None else job.node.key
    if job.status in HELD and (late := view.late_by(job.lease_until)) is not None:
        text = f"the lease of worker {job.worker} ran out {late} ago, and nobody took the job over"
        yield view.finding("I7", "runs_in_time", text, key=key, job=job.id)
    if job.status is Status.SCHEDULED and (late := view.late_by(job.ready_at)) is not None:
        text = f"scheduled for {late} ago, and it still does not wait"
        yield view.finding("I7", "runs_in_time", text, key=key, job=job.id)


def runs_in_time(view: RunView) -> Iterator[Finding]:
    """What is due is seen to while a worker lives."""
    if view.jobs is None:
        return
    for job in view.jobs:
        yield from job_in_time(job, view)
    for wait in view.waits:
        late = view.late_by(wait.due_at)
        is_kept = view.state.is_paused and not _is_given_up(view, wait)
        if late is None or is_kept or _waits_for_a_live_child(view, wait):
            continue
        text = f"its wait ({wait.kind}) was due {late} ago, and nobody ended it"
        yield view.finding("I7", "runs_in_time", text, key=wait.key)


def _waits_for_a_live_child(view: RunView, wait: Wait) -> bool:
    """One that was started anew before its parent heard of its end, or that is being undone."""
    child = view.children.get(wait.name)
    if wait.kind is not WaitKind.CHILD or child is None or child.status in ENDED:
        return False
    return not _is_given_up(view, wait) or child.status is RunStatus.COMPENSATING


RULES = (
    jobs_match,
    waits_match,
    waiting_holds_nothing,
    parked_in_a_pause,
    in_their_lanes,
    has_definition,
    runs_in_time,
)
