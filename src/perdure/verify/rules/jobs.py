"""Jobs: consistent rows, nothing overdue, and readable inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.diagnostics import Code, Finding, declare
from perdure.engine.failures import TOO_MANY_CRASHES
from perdure.model.ids import WorkerId
from perdure.model.job import CLAIMED, FINISHED, Job, JobState, Status
from perdure.model.partition import UNREADABLE, Partition, is_sticky, worker_suffix
from perdure.model.retry import decode_policy
from perdure.model.run import Run
from perdure.model.times import DURATION_MAX
from perdure.model.worker import WorkerState
from perdure.store.contract.audit import AuditedJob
from perdure.verify.finding import VerifySettings, contradiction
from perdure.verify.load import decoded, late_by

ROUNDING_SECONDS = 0.01
POLICY_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding a stored policy may raise."""


class JobView:
    """The context of a job for the rules."""

    def __init__(self, job: Job, state: JobState | None, settings: VerifySettings) -> None:
        self.job = job
        self.state = state
        self.settings = settings
        self.now = job.created_at
        self.grace: timedelta | None = None
        self.details: AuditedJob | None = None
        """Its stored columns; None if the store cannot be audited."""
        self.run: Run | None = None
        """Its run; None for a plain job."""
        self.workers: Mapping[WorkerId, WorkerState] = {}
        """All workers, as of after the job was listed and before its columns were read."""

    @property
    def is_plain(self) -> bool:
        return self.job.node is None

    def finding(self, invariant: str, code: Code, **args: Any) -> Finding:
        node = self.job.node
        return contradiction(
            invariant,
            code,
            namespace=self.job.namespace,
            run="" if node is None else node.run,
            key="" if node is None else node.key,
            job=self.job.id,
            **args,
        )

    def late_by(self, due_at: datetime | None) -> timedelta | None:
        return late_by(due_at, self.now, self.grace)


JOB_CONSISTENT_NO_LEASE = declare("verify.job_consistent.no_lease", "{status} without a lease")
JOB_CONSISTENT_LEASE = declare(
    "verify.job_consistent.lease", "{status}, but has a lease until {lease_until}"
)
JOB_CONSISTENT_NO_HOLDER = declare(
    "verify.job_consistent.no_holder", "{status}, but no worker holds it"
)
JOB_CONSISTENT_NO_END = declare("verify.job_consistent.no_end", "{status} without an end time")
JOB_CONSISTENT_END = declare("verify.job_consistent.end", "{status}, but ended at {finished_at}")
JOB_CONSISTENT_NO_OUTPUT = declare("verify.job_consistent.no_output", "completed without an output")
JOB_CONSISTENT_ATTEMPT = declare(
    "verify.job_consistent.attempt",
    "attempt {attempt} of a job that was claimed at most {epoch:time|times}",
)


JOB_CONSISTENT_NODE = declare(
    "verify.job_consistent.node",
    "{status}, but it executes a node, which only its run can end or stop",
)


def job_consistent(view: JobView) -> Iterator[Finding]:
    """Claimed jobs have a lease and a worker, finished ones an end, others neither."""
    job = view.job
    is_claimed, is_finished = job.status in CLAIMED, job.status in FINISHED
    if job.node is not None and (is_finished or job.status in (Status.ABORTING, Status.DISABLED)):
        yield view.finding("I13", JOB_CONSISTENT_NODE, status=job.status)
    if is_claimed and job.lease_until is None:
        yield view.finding("I7", JOB_CONSISTENT_NO_LEASE, status=job.status)
    if not is_claimed and job.lease_until is not None:
        yield view.finding(
            "I7", JOB_CONSISTENT_LEASE, status=job.status, lease_until=job.lease_until
        )
    if is_claimed and job.worker is None:
        yield view.finding("I7", JOB_CONSISTENT_NO_HOLDER, status=job.status)
    if is_finished and job.finished_at is None:
        yield view.finding("I8", JOB_CONSISTENT_NO_END, status=job.status)
    if not is_finished and job.finished_at is not None:
        yield view.finding("I8", JOB_CONSISTENT_END, status=job.status, finished_at=job.finished_at)
    state = view.state
    if state is not None and state.status is Status.COMPLETED and state.output is None:
        yield view.finding("I2", JOB_CONSISTENT_NO_OUTPUT)
    if job.attempt > job.epoch:
        yield view.finding("I9", JOB_CONSISTENT_ATTEMPT, attempt=job.attempt, epoch=job.epoch)


JOB_OVERDUE_LEASE = declare(
    "verify.job_overdue.lease",
    "the lease of worker {worker} expired {late} ago, and no worker took the job over",
)
JOB_OVERDUE_SCHEDULED = declare(
    "verify.job_overdue.scheduled", "was scheduled for {late} ago, but is not waiting yet"
)
JOB_OVERDUE_DEADLINE = declare(
    "verify.job_overdue.deadline", "its deadline passed {late} ago, but it did not fail"
)


def job_overdue(view: JobView) -> Iterator[Finding]:
    job = view.job
    if not view.is_plain:  # checked with its run
        return
    if job.status in CLAIMED and (late := view.late_by(job.lease_until)) is not None:
        yield view.finding("I7", JOB_OVERDUE_LEASE, worker=job.worker, late=late)
    if job.status is Status.SCHEDULED and (late := view.late_by(job.ready_at)) is not None:
        yield view.finding("I7", JOB_OVERDUE_SCHEDULED, late=late)
    is_unheld = job.status in (Status.WAITING, Status.SCHEDULED, Status.PAUSED)
    if is_unheld and (late := view.late_by(job.deadline_at)) is not None:
        yield view.finding("I7", JOB_OVERDUE_DEADLINE, late=late)


JOB_PARTITION_UNREADABLE = declare(
    "verify.job_partition.unreadable",
    "its partition {partition!r} cannot be read: no worker will claim it",
)
JOB_PARTITION_OTHER_TASK = declare(
    "verify.job_partition.other_task",
    "its partition is for task {task!r} in queue {queue!r}, but the job is of task "
    "{details_task!r} in queue {details_queue!r}",
)
JOB_PARTITION_FLOW_WITHOUT_RUN = declare(
    "verify.job_partition.flow_without_run",
    "its partition is for flow {flow!r}, but it belongs to no run",
)


def job_partition(view: JobView) -> Iterator[Finding]:
    """The partition of a job is that of its queue and task; otherwise no worker would claim it."""
    details = view.details
    if details is None:
        return
    partition = Partition.parse(details.partition)
    if partition == UNREADABLE:
        yield view.finding("I7", JOB_PARTITION_UNREADABLE, partition=details.partition)
    elif (partition.queue, partition.task) != (details.queue, details.task):
        yield view.finding(
            "I7",
            JOB_PARTITION_OTHER_TASK,
            task=partition.task,
            queue=partition.queue,
            details_task=details.task,
            details_queue=details.queue,
        )
    elif view.is_plain and partition.flow:
        yield view.finding("I7", JOB_PARTITION_FLOW_WITHOUT_RUN, flow=partition.flow)


JOB_STICKY_PARTITION = declare(
    "verify.job_sticky.partition",
    "its partition {partition!r} is that of one worker, but it waits for worker {worker!r} until "
    "{until}",
)
JOB_STICKY_UNTIL = declare(
    "verify.job_sticky.until",
    "stopped waiting for worker {worker!r} {late} ago, but no other worker can claim it yet",
)
JOB_STICKY_GONE = declare(
    "verify.job_sticky.gone",
    "waits for worker {worker!r}, which is gone, and no worker released it for {late}",
)


def job_sticky(view: JobView) -> Iterator[Finding]:
    """A job that waits for one worker is in its partition, and is released in time.

    No time tells when a resumed or requeued job became waiting. A resumed one was not before the
    last change of its run, and a requeued one is left to its worker while that is live.
    """
    job, details = view.job, view.details
    if details is None or job.status is not Status.WAITING or not is_sticky(details.partition):
        return
    id, until = job.sticky_worker, job.sticky_until
    if until is None or not details.partition.endswith(f"]{worker_suffix(id)}"):
        yield view.finding(
            "I7", JOB_STICKY_PARTITION, partition=details.partition, worker=id, until=until
        )
        return
    since = job.ready_at if view.run is None else max(job.ready_at, view.run.updated_at)
    worker = None if id is None else view.workers.get(id)
    gone_at = since if worker is None else max(since, worker.seen_at + worker.info.lease)
    was_requeued = job.started_at is not None and job.started_at >= job.ready_at
    if (late := view.late_by(gone_at)) is not None:
        yield view.finding("I7", JOB_STICKY_GONE, worker=id, late=late)
    elif not was_requeued and (late := view.late_by(max(since, until))) is not None:
        yield view.finding("I7", JOB_STICKY_UNTIL, worker=id, late=late)


JOB_FORMER_CLAIM = declare(
    "verify.job_former_claim",
    "claimed by an earlier start of worker {worker!r}; the current one is {late} late to take the "
    "job over",
)


def job_former_claim(view: JobView) -> Iterator[Finding]:
    """A worker that starts takes over what earlier starts of it had claimed.

    A live one that it replaces may claim until its next heartbeat. ``JobQueue`` has no starts.
    """
    job, details = view.job, view.details
    worker = None if job.worker is None else view.workers.get(job.worker)
    if details is None or worker is None or job.status not in CLAIMED:
        return
    info = worker.info
    if info.namespace != job.namespace or details.incarnation in (None, info.incarnation):
        return
    started_at = max(worker.started_at, job.started_at or worker.started_at)
    if (late := view.late_by(started_at + info.lease)) is not None:
        yield view.finding("I7", JOB_FORMER_CLAIM, worker=info.id, late=late)


JOB_ATTEMPTS_BOUND = declare(
    "verify.job_attempts_bound",
    "{status} after {failures:failed attempt|failed attempts} and {snoozes:snooze|snoozes}, "
    "but may have {most:attempt|attempts}",
)


def job_attempts_bound(view: JobView) -> Iterator[Finding]:
    """A plain job is not retried beyond its own bound on failures and snoozes.

    A bound of its task or of ``JobQueue`` is not stored.
    """
    job, most = view.job, _attempts_max(view.job, view.details)
    spent = job.failures + job.snoozes + (job.status not in FINISHED)
    if view.is_plain and most is not None and spent > most:
        yield view.finding(
            "I9",
            JOB_ATTEMPTS_BOUND,
            status=job.status,
            failures=job.failures,
            snoozes=job.snoozes,
            most=most,
        )


def _attempts_max(job: Job, details: AuditedJob | None) -> int | None:
    if job.max_attempts is not None:
        return job.max_attempts
    if details is None or details.policy is None or details.incarnation is None:
        return None
    try:
        retries = decode_policy(details.policy).retries
    except POLICY_UNREADABLE:  # found by another rule
        return None
    return None if retries is None else retries + 1


JOB_SUSPICION_CRASHES = declare(
    "verify.job_suspicion.crashes",
    "suspected by {suspected} crashes, {alone} of them alone, but {crashes} workers crashed",
)
JOB_SUSPICION_CONDEMNED = declare(
    "verify.job_suspicion.condemned",
    "dead because its workers crashed, but all of them were running other jobs too",
)


def job_suspicion(view: JobView) -> Iterator[Finding]:
    """A suspicion is backed by crashes, and no job is condemned for the crash of another."""
    job, suspicion = view.job, view.job.suspicion
    if suspicion.crashes > job.crashes or suspicion.alone > max(0, job.crashes - 1):
        yield view.finding(
            "I7",
            JOB_SUSPICION_CRASHES,
            suspected=suspicion.crashes,
            alone=suspicion.alone,
            crashes=job.crashes,
        )
    failure = None if view.state is None else view.state.failure
    is_condemned = failure is not None and failure.code == TOO_MANY_CRASHES.name
    if job.status is Status.DEAD and is_condemned and not suspicion.alone:
        yield view.finding("I7", JOB_SUSPICION_CONDEMNED)


JOB_RANK = declare("verify.job_rank", "its rank {rank} is impossible for a job ready at {ready_at}")


def job_rank(view: JobView) -> Iterator[Finding]:
    """The rank of a job follows from its ready time and priority, so that it is claimed in turn.

    Each client chooses its aging: only ranks that no aging explains are reported.
    """
    job, details = view.job, view.details
    if details is None or job.status in FINISHED:
        return
    offset = details.rank - job.ready_at.timestamp()
    most = job.priority * DURATION_MAX.total_seconds()
    if not -ROUNDING_SECONDS <= offset <= most + ROUNDING_SECONDS:
        yield view.finding("I7", JOB_RANK, rank=details.rank, ready_at=job.ready_at)


JOB_CALLABLE_INPUT = declare(
    "verify.job_callable.input", "its arguments are missing or cannot be read"
)
JOB_CALLABLE_POLICY = declare("verify.job_callable.policy", "its policy cannot be read: {error}")


def job_callable(view: JobView) -> Iterator[Finding]:
    """The input and policy of a job are readable."""
    job, details = view.job, view.details
    if details is None or job.status in FINISHED:
        return
    try:
        arguments, named, *_ = msgspec.json.decode(decoded(details.input, view.settings))
        is_call = isinstance(arguments, list) and isinstance(named, dict)
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError):
        is_call = False
    if not is_call:
        yield view.finding("I1", JOB_CALLABLE_INPUT)
    try:
        if details.policy is not None:
            decode_policy(details.policy)
    except POLICY_UNREADABLE as error:
        yield view.finding("I1", JOB_CALLABLE_POLICY, error=error)


RULES = (
    job_consistent,
    job_overdue,
    job_partition,
    job_sticky,
    job_former_claim,
    job_attempts_bound,
    job_suspicion,
    job_rank,
    job_callable,
)
