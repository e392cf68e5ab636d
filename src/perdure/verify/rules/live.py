"""I6 and I7: every live key has exactly one job, wait or child; none is stuck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perdure.diagnostics import Finding, declare
from perdure.model.ids import RUN_START, RUN_TIMEOUT
from perdure.model.job import CLAIMED, FINISHED, Status
from perdure.model.partition import UNREADABLE, Partition
from perdure.model.run import ENDED, LiveType, RunState, RunStatus, Wait, WaitType
from perdure.verify.load import NOT_STORED, AuditedRun

LIVE_JOBS_MISSING = declare("verify.live_jobs.missing", "live, but no job would execute it")
LIVE_JOBS_SEVERAL = declare("verify.live_jobs.several", "{count:job|jobs} would execute it")
LIVE_JOBS_EXTRA = declare(
    "verify.live_jobs.extra",
    "a job ({status}) of a key that is not live; the run is {state_status}",
)


def live_jobs(view: AuditedRun) -> Iterator[Finding]:
    """Each live key with a job has exactly one, and other keys have none."""
    if view.jobs is None:
        return
    wanted = {key for key, live_type in view.state.live.items() if live_type is LiveType.JOB}
    counts = Counter(job.node.key for job in view.jobs if job.node is not None)
    for key in sorted(wanted - counts.keys()):
        yield view.finding("I7", LIVE_JOBS_MISSING, key=key)
    for key, count in sorted(counts.items()):
        if key not in wanted:
            job = next(job for job in view.jobs if job.node is not None and job.node.key == key)
            yield view.finding(
                "I8" if view.state.is_ended else "I7",
                LIVE_JOBS_EXTRA,
                key=key,
                job=job.id,
                status=job.status,
                state_status=view.state.status,
            )
        elif count > 1:
            yield view.finding("I2", LIVE_JOBS_SEVERAL, key=key, count=count)


LIVE_WAITS_BESIDE_JOB = declare(
    "verify.live_waits.beside_job", "has both a job and a wait ({type})"
)
LIVE_WAITS_MISSING = declare(
    "verify.live_waits.missing",
    "waits according to the log ({type}), but has no wait: nothing will wake it",
)
LIVE_WAITS_OTHER_TYPE = declare(
    "verify.live_waits.other_type",
    "a {type} according to the log, but its wait is of type {wait_type}",
)
LIVE_WAITS_OTHER_CHILD = declare(
    "verify.live_waits.other_child", "waits for run {children!r}, but its wait is for run {name!r}"
)
LIVE_WAITS_EXTRA = declare("verify.live_waits.extra", "a wait ({type}) of a key that is not live")
LIVE_WAITS_NEVER_DUE = declare(
    "verify.live_waits.never_due",
    "abandoned child {name!r} will not be cancelled: the wait for it is never due",
)


def live_waits(view: AuditedRun) -> Iterator[Finding]:
    """Each live key that waits has one wait of the right type, and other keys have none.

    The wait for an abandoned child stays until the child is cancelled.
    """
    if view.jobs is None:
        return
    waits = {wait.key: wait for wait in view.waits}
    for key in _timers(view.state):
        if waits.pop(key, None) is None:
            yield view.finding("I7", LIVE_WAITS_MISSING, key=key, type=WaitType.TIMER)
    for key, live_type in view.state.live.items():
        wait = waits.pop(key, None)
        if live_type is LiveType.JOB:
            if wait is not None and wait.type is not WaitType.CHILD:
                yield view.finding("I7", LIVE_WAITS_BESIDE_JOB, key=key, type=wait.type)
        elif wait is None:
            yield view.finding("I7", LIVE_WAITS_MISSING, key=key, type=live_type)
        elif (wait.type is WaitType.CHILD) is not (live_type is LiveType.CHILD):
            yield view.finding(
                "I7", LIVE_WAITS_OTHER_TYPE, key=key, type=live_type, wait_type=wait.type
            )
        elif live_type is LiveType.CHILD and wait.name != view.state.children.get(key):
            yield view.finding(
                "I7",
                LIVE_WAITS_OTHER_CHILD,
                key=key,
                children=view.state.children.get(key),
                name=wait.name,
            )
    for key, wait in waits.items():
        if wait.type is not WaitType.CHILD:
            invariant = "I8" if view.state.is_ended else "I7"
            yield view.finding(invariant, LIVE_WAITS_EXTRA, key=key, type=wait.type)
        elif wait.due_at is None:
            yield view.finding("I7", LIVE_WAITS_NEVER_DUE, key=key, name=wait.name)


def _timers(state: RunState) -> Iterator[str]:
    """The timers of the run itself: its start, and its timeout."""
    settings = state.settings
    if state.is_ended or state.ends_as is not None:
        return
    if state.is_queued:
        yield RUN_START
    if settings.deadline is not None or (settings.timeout_ms is not None and not state.is_queued):
        yield RUN_TIMEOUT


IDLE_RUN_HOLDS_NO_JOB = declare(
    "verify.idle_run_holds_no_job", "the run is {status}, but worker {worker} holds a job of it"
)


def idle_run_holds_no_job(view: AuditedRun) -> Iterator[Finding]:
    """A waiting, paused or ended run has no claimed job."""
    if view.jobs is None or view.run.status in (RunStatus.RUNNING, RunStatus.COMPENSATING):
        return
    for job in view.jobs:
        if job.status in CLAIMED:
            key = "" if job.node is None else job.node.key
            yield view.finding(
                "I6",
                IDLE_RUN_HOLDS_NO_JOB,
                key=key,
                job=job.id,
                status=view.run.status,
                worker=job.worker,
            )


PAUSED_RUN_PARKED_FINISHED = declare(
    "verify.paused_run_parked.finished", "a finished job ({status}) of the run was left behind"
)
PAUSED_RUN_PARKED_JOB = declare(
    "verify.paused_run_parked.job", "the run is paused, but its job is {status}"
)
PAUSED_RUN_PARKED_PARKED_JOB = declare(
    "verify.paused_run_parked.parked_job", "the run is not paused, but its job is"
)
PAUSED_RUN_PARKED_WAIT = declare(
    "verify.paused_run_parked.wait", "the run is paused, but its wait may become due"
)
PAUSED_RUN_PARKED_SUSPENDED_WAIT = declare(
    "verify.paused_run_parked.suspended_wait", "the run is not paused, but its wait is suspended"
)


def paused_run_parked(view: AuditedRun) -> Iterator[Finding]:
    """In a paused run all jobs are parked and all waits suspended; in others none is."""
    if view.jobs is None:
        return
    is_paused = view.state.is_paused
    for job in view.jobs:
        key = "" if job.node is None else job.node.key
        if job.status in FINISHED:
            yield view.finding(
                "I7", PAUSED_RUN_PARKED_FINISHED, key=key, job=job.id, status=job.status
            )
        elif is_paused and job.status is not Status.PAUSED:
            yield view.finding("I7", PAUSED_RUN_PARKED_JOB, key=key, job=job.id, status=job.status)
        elif not is_paused and job.status is Status.PAUSED:
            yield view.finding("I7", PAUSED_RUN_PARKED_PARKED_JOB, key=key, job=job.id)
    if view.suspended is None:
        return
    for wait in view.waits:
        if _is_given_up(view, wait) or wait.key == RUN_TIMEOUT:
            continue
        if is_paused and wait.key not in view.suspended:
            yield view.finding("I7", PAUSED_RUN_PARKED_WAIT, key=wait.key)
        if not is_paused and wait.key in view.suspended:
            yield view.finding("I7", PAUSED_RUN_PARKED_SUSPENDED_WAIT, key=wait.key)


def _is_given_up(view: AuditedRun, wait: Wait) -> bool:
    """Whether it waits for a child that is being cancelled; a pause does not suspend it."""
    is_awaited = (
        view.state.live.get(wait.key) is LiveType.CHILD
        and view.state.children.get(wait.key) == wait.name
    )
    return wait.type is WaitType.CHILD and not is_awaited


RUN_JOB_PARTITION_UNREADABLE = declare(
    "verify.run_job_partition.unreadable",
    "its partition {partition!r} cannot be read: no worker will claim it",
)
RUN_JOB_PARTITION_OTHER_FLOW = declare(
    "verify.run_job_partition.other_flow",
    "its partition is for {flow!r}, but the run is of {wanted!r}: no worker will claim it",
)


def run_job_partition(view: AuditedRun) -> Iterator[Finding]:
    """A run's job is in the partition of the run's version, from which its workers claim."""
    if view.jobs is None or view.details is None:
        return
    for job in view.jobs:
        details = view.details.get(job.id)
        if details is None:
            continue
        key = "" if job.node is None else job.node.key
        wanted = f"{view.state.flow}@{view.state.version}"
        partition = Partition.parse(details.partition)
        if partition == UNREADABLE:
            yield view.finding(
                "I7", RUN_JOB_PARTITION_UNREADABLE, key=key, job=job.id, partition=details.partition
            )
        elif partition.flow != wanted:
            yield view.finding(
                "I7",
                RUN_JOB_PARTITION_OTHER_FLOW,
                key=key,
                job=job.id,
                flow=partition.flow,
                wanted=wanted,
            )


RUN_DEFINITION = declare("verify.run_definition", "the definition of {flow}@{version} {fault}")


def run_definition(view: AuditedRun) -> Iterator[Finding]:
    """A run needs its flow's definition, to continue and to be retried or forked."""
    fault = view.definition_faults.get(view.state.version)
    if fault is not None:
        yield view.finding(
            "I7" if fault == NOT_STORED else "I5",
            RUN_DEFINITION,
            flow=view.state.flow,
            version=view.state.version,
            fault=fault,
        )


RUN_OVERDUE_LEASE = declare(
    "verify.run_overdue.lease",
    "the lease of worker {worker} expired {late} ago, and no worker took the job over",
)
RUN_OVERDUE_SCHEDULED = declare(
    "verify.run_overdue.scheduled", "was scheduled for {late} ago, but is not waiting yet"
)
RUN_OVERDUE_WAIT = declare(
    "verify.run_overdue.wait", "its wait ({type}) was due {late} ago, and no worker processed it"
)


def run_overdue(view: AuditedRun) -> Iterator[Finding]:
    """Due work is processed while a worker is alive."""
    if view.jobs is None:
        return
    for job in view.jobs:
        key = "" if job.node is None else job.node.key
        if job.status in CLAIMED and (late := view.late_by(job.lease_until)) is not None:
            yield view.finding(
                "I7", RUN_OVERDUE_LEASE, key=key, job=job.id, worker=job.worker, late=late
            )
        if job.status is Status.SCHEDULED and (late := view.late_by(job.ready_at)) is not None:
            yield view.finding("I7", RUN_OVERDUE_SCHEDULED, key=key, job=job.id, late=late)
    for wait in view.waits:
        late = view.late_by(wait.due_at)
        is_kept = view.state.is_paused and wait.key != RUN_TIMEOUT and not _is_given_up(view, wait)
        if late is None or is_kept or _waits_for_a_live_child(view, wait):
            continue
        yield view.finding("I7", RUN_OVERDUE_WAIT, key=wait.key, type=wait.type, late=late)


def _waits_for_a_live_child(view: AuditedRun, wait: Wait) -> bool:
    """Restarted before its parent handled its end, or being compensated."""
    child = view.children.get(wait.name)
    if wait.type is not WaitType.CHILD or child is None or child.status in ENDED:
        return False
    return not _is_given_up(view, wait) or child.status is RunStatus.COMPENSATING


RULES = (
    live_jobs,
    live_waits,
    idle_run_holds_no_job,
    paused_run_parked,
    run_job_partition,
    run_definition,
    run_overdue,
)
