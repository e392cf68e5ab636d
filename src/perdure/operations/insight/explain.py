"""Explain the state of a run or a job: findings and actions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from perdure.diagnostics import PYTHON, Action, Code, Finding, Renderer, Severity, declare, message
from perdure.model.failure import Failure
from perdure.model.graph import APPROVE
from perdure.model.ids import RUN_START, JobId, Key, RunId
from perdure.model.job import FINISHED, FailedAttempt, Job, QueueInfo, Status
from perdure.model.limit import Limit, LimitInfo, LimitRule, LimitUse, limit_of
from perdure.model.partition import Partition
from perdure.model.principal import role_of
from perdure.model.run import AnswerState, RunState, RunStatus, Wait, WaitType
from perdure.model.value import Value
from perdure.model.wait import approval_id
from perdure.model.worker import WorkerState, has_code, has_tags, is_live
from perdure.store.admission import custom_limits, governing_rules, room_under


class Explanation(Value):
    """Explains the state of a run, a job, or a job of a run."""

    status: RunStatus | Status
    """The job's id, if it explains a job."""
    headline: tuple[Finding, ...]
    """The most important finding, or a count of each type."""
    findings: tuple[Finding, ...] = ()
    """Findings by part; ``about`` is the node's key, empty for the whole run."""
    run: RunId | None = None
    job: JobId | None = None

    @property
    def summary(self) -> str:
        """The headline as one sentence."""
        return self.summarize()

    def summarize(self, renderer: Renderer = PYTHON) -> str:
        text = ", ".join(message(each, renderer) for each in self.headline)
        return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


class Surroundings(Value):
    """The surroundings of a run or a job: everything that may block it."""

    jobs: tuple[Job, ...] = ()
    waits: tuple[Wait, ...] = ()
    workers: tuple[WorkerState, ...] = ()
    """Of the run's namespace, including dead ones."""
    paused_queues: tuple[QueueInfo, ...] = ()
    children: Mapping[RunId, RunStatus] = {}
    """Child runs that it waits for."""
    details: Mapping[str, Any] = {}
    """Details of the waits, by key, as far as they can be decoded."""
    failures: Mapping[JobId, FailedAttempt] = {}
    """The last failure of jobs that ended or wait for a retry."""
    paused_at: datetime | None = None
    """When the run was paused, if it is and its log still has the event."""
    limit_uses: Mapping[LimitRule, LimitUse] = {}
    """Usage of the limits that apply to waiting jobs."""
    holders: Mapping[JobId, Job] = {}
    """Jobs that use up those limits."""
    place_holders: tuple[RunId, ...] = ()
    """Runs that hold the places it waits for."""


FINDINGS_MAX = 100
"""Maximum findings of one explanation; the last one counts the rest."""
HOLDERS_MAX = 3
WORKERS_MAX = 20
"""Maximum workers that a finding names with their last heartbeat."""

# A run, or an ended job.

RUN_STATUS = declare("explain.run_status", "run {run!r} is {status}")
JOB_STATUS = declare("explain.job_status", "job {job!r} is {status}")
PROGRESSING = declare(
    "explain.progressing", "the run progressed during this call; run explain again"
)
MORE = declare("explain.more", "{count:more finding|more findings}")
PAUSED = declare(
    "explain.paused", "run {run!r} has been paused[ by {by}][ since {since}][: {reason}]"
)
CANCELLED = declare("explain.cancelled", "run {run!r} was cancelled[ by {by}][: {reason}]")
SKIPPED = declare(
    "explain.skipped", "run {run!r} was skipped[ by {by}][: {reason}]", "Submit it again later"
)
COMPENSATING = declare(
    "explain.compensating",
    "run {run!r} will be {status}[ because node {node!r} failed with {error}][ by {by}]"
    "[: {reason}]; still to undo: {left:and}",
)
NODE_FAILED = declare("explain.node_failed", "node {node!r} failed with {error}[: {reason}]")
RUN_FAILED = declare("explain.run_failed", "run {run!r} failed with {error}[: {reason}]")
FAILING = declare(
    "explain.failing",
    "node {node!r} failed with {error}[: {reason}]; other branches finish first",
)
JOB_FAILED = declare(
    "explain.job_failed", "task {task!r} failed[ at {at}][ with {error}][: {reason}]"
)
DEAD_LETTER = declare(
    "explain.dead_letter",
    "task {task!r} became a dead letter[ at {at}]; it failed[ with {error}][: {reason}]",
)
JOB_CANCELLED = declare(
    "explain.job_cancelled",
    "task {task!r} was cancelled[ at {at}][, after {error}][: {reason}]",
)

# A job that is running, or will run without intervention.

RUNNING = declare(
    "explain.running",
    "attempt {attempt} of task {task!r}[ ({purpose})] is running on worker {worker}"
    "[, started at {since}]",
)
STOPPING = declare(
    "explain.stopping",
    "attempt {attempt} of task {task!r}[ ({purpose})] is running on worker {worker}"
    "[, started at {since},] and was asked to stop",
)
LEASE_EXPIRED = declare(
    "explain.lease_expired",
    "attempt {attempt} of task {task!r}[ ({purpose})] was running on worker {worker}"
    "[, started at {since}]; its lease expired at {lease_until}, and the next live worker takes it "
    "over",
)
ABANDONED = declare(
    "explain.abandoned",
    "attempt {attempt} of task {task!r}[ ({purpose})] was running on worker {worker}"
    "[, started at {since}]; its lease expired at {lease_until}, and no worker is live",
    "Start a worker",
)
SCHEDULED = declare(
    "explain.scheduled",
    "task {task!r}[ ({purpose})] starts at {at}[; no live worker can take {unserved!r}]",
    "[Start a worker with {unserved!r}]",
)
RETRY = declare(
    "explain.retry",
    "attempt {attempt} of task {task!r}[ ({purpose})] starts at {at}"
    "[; no live worker can take {unserved!r}]"
    "[; the last one failed at {failed_at} with {error}][: {reason}]",
    "[Start a worker with {unserved!r}]",
)
QUEUED = declare(
    "explain.queued",
    "task {task!r}[ ({purpose})] has been waiting in queue {queue!r} since {since}; "
    "{workers:live worker|live workers} can take it[, {busy} busy], last seen {seen} ago at most",
)
CUSTOM_LIMIT = declare(
    "explain.custom_limit",
    "waiting[ since {since}] for the limiter of {limit!r} to grant a place",
)
STICKY = declare(
    "explain.sticky",
    "task {task!r}[ ({purpose})] waits for worker {worker}, which executed the last node, "
    "until {until}; then any live worker may take it",
)
SUSPECTED = declare(
    "explain.suspected",
    "task {task!r}[ ({purpose})] is suspected of crashing its worker ({crashes:crash|crashes}, "
    "{alone} alone): {workers:live worker|live workers}, last seen {seen} ago at most, can run it "
    "alongside at most {others:other job|other jobs}",
)

# A job that no worker claims.

NO_WORKER = declare(
    "explain.no_worker",
    "no worker is live; the job has been ready since {since}",
    "Start a worker",
)
NO_VERSION = declare(
    "explain.no_version",
    "no live worker has {flow}[; the nearest version that a live worker has is {nearest}]; "
    "the job has been ready since {since}",
    "Start a worker with this version[, or migrate the run to {nearest}]",
)
NO_TASK = declare(
    "explain.no_task",
    "no live worker has task {task!r}; the job has been ready since {since}",
    "Start a worker with this task",
)
NO_QUEUE = declare(
    "explain.no_queue",
    "no live worker that has task {task!r}[ of {flow}] serves queue {queue!r}; "
    "the job has been ready since {since}",
    "Start a worker for this queue",
)
NO_TAGS = declare(
    "explain.no_tags",
    "no live worker that has task {task!r}[ of {flow}] and serves queue {queue!r} has tags "
    "{tags:and}; the job has been ready since {since}",
    "Start a worker with these tags",
)
QUEUE_PAUSED = declare(
    "explain.queue_paused", "queue {queue!r} has been paused[ by {by}] since {since}"
)
DISABLED = declare("explain.disabled", "task {task!r} is disabled until an operator enables it")
JOB_PAUSED = declare("explain.job_paused", "task {task!r} is paused until it is resumed")
LIMIT_FULL = declare(
    "explain.limit_full",
    "limit {limit!r} is full: {running} of {most} running[, held by job {holder}]"
    "[ ({holder_node} of run {holder_run!r})][ on worker {holder_worker}][ since {held_since}]"
    "[ and {more} more]; "
    "the job has been ready since {since}",
)
LIMIT_USED_UP = declare(
    "explain.limit_used_up",
    "limit {limit!r} is used up: {starts} started within {window}"
    "[; the next one may start at {opens_at}]; the job has been ready since {since}",
)
LIMIT_SPACING = declare(
    "explain.limit_spacing",
    "limit {limit!r} allows one start every {spacing}"
    "[; the next one may start at {opens_at}]; the job has been ready since {since}",
)
LIMIT_CLOSED = declare(
    "explain.limit_closed",
    "limit {limit!r} is closed until {until}, as a job requested; "
    "the job has been ready since {since}",
)

# What a node waits for.

RUN_QUEUED = declare(
    "explain.run_queued", "run {run!r} is queued and starts at {until}[ ({overdue} overdue)]"
)
RUN_QUEUED_UNSERVED = declare(
    "explain.run_queued_no_worker",
    "run {run!r} is queued[ until {until}][ ({overdue} overdue)]; no worker is live to start it",
    "Start a worker",
)
RUN_WAITS_FOR_PLACE = declare(
    "explain.run_waits_for_place",
    "run {run!r} is queued[ (since {since})]: {held} of {most} places of flow {flow!r}"
    "[ and key {key!r}] are taken[, by {holders:and}][ and {more} more]",
)
TIMER = declare("explain.timer", "waiting since {since} until {until}[ ({overdue} overdue)]")
TIMER_UNSERVED = declare(
    "explain.timer_no_worker",
    "waiting since {since} until {until}[ ({overdue} overdue)]; no worker is live to continue it",
    "Start a worker",
)
SIGNAL = declare(
    "explain.signal",
    "waiting for signal {signal!r}[ with a payload that fits {where}] since {since}"
    "[, until {until}][ ({overdue} overdue)]",
)
APPROVAL = declare(
    "explain.approval",
    "waiting for a decision on {title!r}[ by {deciders:or}] since {since}"
    "[, until {until}][ ({overdue} overdue)][; answers so far: {answers}]",
)
NOTIFYING = declare("explain.notifying", "people are notified of approval {node!r}[ at {at}]")
REMINDING = declare("explain.reminding", "people are reminded of approval {node!r}[ at {at}]")
REPORT = declare(
    "explain.report",
    "waiting for a report[ at {step!r}] since {since}[, until {until}][ ({overdue} overdue)]"
    "[; next poll at {poll_at}]",
)
POLLING = declare("explain.polling", "the external work of node {node!r} is polled[ at {at}]")
CHILD = declare("explain.child", "waiting for child run {child!r} ({status}) since {since}")
CHILD_NOT_FOUND = declare(
    "explain.child_not_found",
    "waiting since {since} for child run {child!r}, which does not exist",
)

STATES_STATUS = frozenset(
    each.name for each in (RUN_STATUS, JOB_STATUS, PAUSED, CANCELLED, SKIPPED)
)
"""Headlines that name the run or job and its status."""

_STUCK = tuple(
    each.name
    for each in (
        NO_WORKER,
        NO_VERSION,
        NO_TASK,
        NO_QUEUE,
        NO_TAGS,
        QUEUE_PAUSED,
        DISABLED,
        LIMIT_FULL,
        LIMIT_USED_UP,
        LIMIT_SPACING,
        LIMIT_CLOSED,
    )
)
"""Reasons why a ready job does not start, the most actionable first."""


def _count(name: str, sentence: str, *codes: Code) -> tuple[Code, frozenset[str]]:
    return declare(f"explain.count_{name}", sentence), frozenset(each.name for each in codes)


_COUNTS = (
    _count("running", "{count:job is|jobs are} running", RUNNING, STOPPING),
    _count("lost", "{count:job has|jobs have} an expired lease", LEASE_EXPIRED, ABANDONED),
    _count("queued", "{count:job waits|jobs wait} for a worker with a free slot", QUEUED, STICKY),
    _count("scheduled", "{count:job is|jobs are} scheduled", SCHEDULED),
    _count("retrying", "{count:job waits|jobs wait} for a retry", RETRY),
    _count("timers", "{count:timer is|timers are} set", TIMER, TIMER_UNSERVED),
    _count("signals", "{count:signal is|signals are} pending", SIGNAL),
    _count(
        "approvals", "{count:approval is|approvals are} pending", APPROVAL, NOTIFYING, REMINDING
    ),
    _count("reports", "{count:report is|reports are} pending", REPORT, POLLING),
    _count("children", "{count:child run is|child runs are} pending", CHILD, CHILD_NOT_FOUND),
)
_HELD_BACK = declare("explain.count_held_back", "{count:job is|jobs are} held back")


def explain_run(run: RunId, state: RunState, around: Surroundings, now: datetime) -> Explanation:
    found = [
        *_of_run(run, state, around.paused_at),
        *_of_jobs(f"{state.flow}@{state.version}", around, now),
        *_of_waits(state, around, now),
        *_auxiliary(run, state, around, now),
    ]
    headline = _headline(run, state, found)
    if len(found) > FINDINGS_MAX:
        count = len(found) - FINDINGS_MAX
        found = [*found[:FINDINGS_MAX], MORE.finding(severity=Severity.OK, count=count)]
    return Explanation(run=run, status=state.status, headline=headline, findings=tuple(found))


def _headline(run: RunId, state: RunState, found: Sequence[Finding]) -> tuple[Finding, ...]:
    if state.status is RunStatus.COMPLETED:
        return (RUN_STATUS.finding(severity=Severity.OK, run=run, status=state.status),)
    if state.status is RunStatus.FAILED:
        return tuple(each for each in found if each.code in (NODE_FAILED.name, RUN_FAILED.name))[:1]
    whole = [each for each in found if not each.about]
    if whole:  # paused, cancelled, skipped or compensating
        return (whole[0],)
    counts = Counter(each.code for each in found)
    if not counts[RUNNING.name] + counts[STOPPING.name]:
        for code in _STUCK:
            if counts[code]:
                return (next(each for each in found if each.code == code),)
    totals = [(code, sum(counts[each] for each in codes)) for code, codes in _COUNTS]
    totals.append((_HELD_BACK, sum(counts[code] for code in _STUCK)))
    return tuple(
        code.finding(severity=Severity.OK, count=count) for code, count in totals if count
    ) or (PROGRESSING.finding(severity=Severity.OK),)


def explain_job(job: Job, around: Surroundings, now: datetime) -> Explanation:
    """Explain a standalone job; ``around`` has only that job."""
    found = (*_of_jobs("", around, now), *_ended_job(job, around.failures.get(job.id)))
    status = JOB_STATUS.finding(severity=Severity.OK, job=job.id, status=job.status)
    return Explanation(
        job=job.id, status=job.status, headline=found[:1] or (status,), findings=found
    )


def explain_job_of_run(job: Job, of_run: Explanation) -> Explanation:
    """Return the part of a run's explanation that is about one of its jobs."""
    assert job.node is not None
    found = tuple(each for each in of_run.findings if each.about in ("", job.node.key))
    own = tuple(each for each in found if each.about)[:1]
    return Explanation(
        run=of_run.run,
        job=job.id,
        status=job.status,
        headline=own or of_run.headline,
        findings=found,
    )


# The run as a whole


def _of_run(run: RunId, state: RunState, paused_at: datetime | None) -> Iterator[Finding]:
    why: dict[str, Any] = {"run": run, "by": state.by, "reason": state.reason}
    if state.is_paused:
        # While it is compensating, the reason is that of the end, not of the pause.
        paused = why if state.ends_as is None else {"run": run}
        yield PAUSED.finding("", Action("runs.resume", {"id": run}), since=paused_at, **paused)
    if state.ends_as is not None:
        left = tuple(state.undoes[:FINDINGS_MAX])
        if state.ends_as is RunStatus.FAILED:
            why = {"run": run, "node": state.failed_node, **_failure(state.failure)}
        yield COMPENSATING.finding("", severity=Severity.OK, status=state.ends_as, left=left, **why)
        return
    is_undone = any(node.is_undone for node in state.nodes.values())
    again = (
        Action("runs.fork", {"id": run}, ("after",))
        if is_undone
        else Action("runs.retry", {"id": run})
    )
    if state.failure is not None:
        failed = {"node": state.failed_node, **_failure(state.failure)}
        if state.status is RunStatus.FAILED and not state.failed_node:
            yield RUN_FAILED.finding("", again, run=run, **_failure(state.failure))
        elif state.status is RunStatus.FAILED:
            yield NODE_FAILED.finding(state.failed_node, again, **failed)
        else:
            yield FAILING.finding(state.failed_node, severity=Severity.WARNING, **failed)
    elif state.status is RunStatus.CANCELLED:
        yield CANCELLED.finding("", again, **why)
    elif state.status is RunStatus.SKIPPED:
        yield SKIPPED.finding("", **why)


def _failure(failure: Failure | None) -> dict[str, Any]:
    return {} if failure is None else {"error": failure.type, "reason": failure.message}


# Jobs


def _of_jobs(flow: str, around: Surroundings, now: datetime) -> Iterator[Finding]:
    """``flow`` is the version of their run's flow; empty without a run."""
    live = [each for each in around.workers if is_live(each, now)]
    pauses = {each.queue: each for each in around.paused_queues}
    for job in around.jobs:
        key = "" if job.node is None else job.node.key
        match job.status:
            case Status.ACTIVE | Status.ABORTING:
                yield _held(job, key, live, now)
            case Status.SCHEDULED:
                yield _scheduled(job, key, flow, around.failures.get(job.id), live)
            case Status.WAITING if job.queue in pauses:
                pause = pauses[job.queue]
                yield QUEUE_PAUSED.finding(
                    key,
                    Action("queues.resume", {"name": job.queue}),
                    queue=job.queue,
                    by=pause.paused_by,
                    since=pause.paused_at,
                )
            case Status.WAITING:
                yield from _unclaimed(job, key, flow, live, around, now)
            case Status.DISABLED:
                enable = Action("jobs.enable", {"id": job.id})
                yield DISABLED.finding(key, enable, task=job.task)
            case Status.PAUSED if job.node is None:
                resume = Action("jobs.resume", {"id": job.id})
                yield JOB_PAUSED.finding(key, resume, task=job.task)


def _ended_job(job: Job, failed: FailedAttempt | None) -> Iterator[Finding]:
    if job.status not in FINISHED or job.status is Status.COMPLETED:
        return
    codes = {Status.DEAD: DEAD_LETTER, Status.CANCELLED: JOB_CANCELLED}
    yield codes.get(job.status, JOB_FAILED).finding(
        "",
        Action("jobs.retry", {"id": job.id}),
        task=job.task,
        at=job.finished_at,
        **_failure(None if failed is None else failed.failure),
    )


def _task(job: Job) -> dict[str, Any]:
    """The task name, or the purpose of a job beside a node, such as ``poll:charge``."""
    purpose = "" if job.node is None else Key.parse(job.node.key).part
    purpose = purpose if purpose in ("poll", "cancel", "notify") else ""
    return {"task": job.task, **({"purpose": purpose} if purpose else {})}


def _held(job: Job, key: str, live: Sequence[WorkerState], now: datetime) -> Finding:
    args = {**_task(job), "attempt": job.attempt, "worker": job.worker, "since": job.started_at}
    if job.lease_until is None or job.lease_until > now:
        code = STOPPING if job.status is Status.ABORTING else RUNNING
        return code.finding(key, severity=Severity.OK, **args)
    args["lease_until"] = job.lease_until
    if live:
        return LEASE_EXPIRED.finding(key, severity=Severity.WARNING, **args)
    return ABANDONED.finding(key, START_WORKER, **args)


def _scheduled(
    job: Job, key: str, flow: str, failed: FailedAttempt | None, live: Sequence[WorkerState]
) -> Finding:
    is_served = any(
        has_code(each.info, task=job.task, flow=flow)
        and job.queue in each.info.queues
        and has_tags(each.info.tags, job.tags)
        for each in live
    )
    args = {**_task(job), "at": job.ready_at}
    if not is_served:
        args["unserved"] = flow or job.task
    actions = () if is_served else (START_WORKER,)
    severity = Severity.OK if is_served else Severity.WARNING
    if not job.attempt:
        return SCHEDULED.finding(key, *actions, severity=severity, **args)
    if failed is not None:
        args |= {"failed_at": failed.at, **_failure(failed.failure)}
    return RETRY.finding(key, *actions, severity=severity, attempt=job.attempt + 1, **args)


START_WORKER = Action("worker.run", asks=("module",))


def _unclaimed(
    job: Job,
    key: str,
    flow: str,
    live: Sequence[WorkerState],
    around: Surroundings,
    now: datetime,
) -> Iterator[Finding]:
    """Why no worker has claimed a ready job: narrow down which could."""
    of = {"task": job.task, **({"flow": flow} if flow else {})}
    ready: dict[str, Any] = {**of, "queue": job.queue, "since": job.ready_at}
    if not live:
        yield NO_WORKER.finding(key, START_WORKER, **ready)
    elif not (versed := [each for each in live if has_code(each.info, task=job.task, flow=flow)]):
        yield (
            _no_version(job, key, flow, live)
            if flow
            else NO_TASK.finding(key, START_WORKER, **ready)
        )
    elif not (serving := [each for each in versed if job.queue in each.info.queues]):
        start = Action("worker.run", {"queues": (job.queue,)}, ("module",))
        yield NO_QUEUE.finding(key, start, **ready)
    elif not (able := [each for each in serving if has_tags(each.info.tags, job.tags)]):
        start = Action("worker.run", {"queues": (job.queue,), "tags": job.tags}, ("module",))
        yield NO_TAGS.finding(key, start, tags=job.tags, **ready)
    elif full := _full_limits(job, key, flow, able, around, now):
        yield from full
    else:
        for name in sorted(_custom_keys(job, flow, able)):
            yield CUSTOM_LIMIT.finding(key, severity=Severity.OK, limit=name, since=job.ready_at)
        # A killed worker is taken for live until its lease ends, so say when each was last seen.
        could: dict[str, Any] = {
            "workers": len(able),
            "seen": max(now - each.seen_at for each in able),
            "seen_at": {each.info.id: each.seen_at for each in able[:WORKERS_MAX]},
            **_task(job),
        }
        if job.sticky_worker is not None:
            yield STICKY.finding(
                key,
                severity=Severity.OK,
                worker=job.sticky_worker,
                until=job.sticky_until,
                **_task(job),
            )
        elif job.suspicion.crashes:
            yield SUSPECTED.finding(
                key,
                severity=Severity.OK,
                crashes=job.suspicion.crashes,
                alone=job.suspicion.alone,
                others=max(job.suspicion.slots(each.info.concurrency) for each in able) - 1,
                **could,
            )
        else:
            busy = sum(len(each.running) >= each.info.concurrency for each in able)
            yield QUEUED.finding(
                key,
                severity=Severity.OK,
                queue=job.queue,
                since=job.ready_at,
                busy=busy or None,
                **could,
            )


def _no_version(job: Job, key: str, flow: str, live: Sequence[WorkerState]) -> Finding:
    assert job.node is not None
    name = flow.rpartition("@")[0]
    known = Counter(
        each for worker in live for each in worker.info.flows if each.rpartition("@")[0] == name
    )
    nearest = max(known, key=lambda each: (known[each], each), default=None)
    migrate = Action("runs.migrate", {"id": job.node.run}, ("to",))
    return NO_VERSION.finding(
        key,
        START_WORKER,
        *(() if nearest is None else (migrate,)),
        flow=flow,
        nearest=nearest,
        task=job.task,
        queue=job.queue,
        since=job.ready_at,
    )


# Limits


def rules_for(job: Job, flow: str, worker: WorkerState) -> tuple[LimitRule, ...]:
    """The limits that a worker checks to claim such a job; ``flow`` is empty without a run."""
    return governing_rules(*_limits_for(job, flow, worker))


def _custom_keys(job: Job, flow: str, able: Sequence[WorkerState]) -> set[str]:
    """The keys that every worker which could claim the job asks a limiter for."""
    keys = ({key for key, _ in custom_limits(*_limits_for(job, flow, each))} for each in able)
    return set.intersection(*keys)


def _limits_for(
    job: Job, flow: str, worker: WorkerState
) -> tuple[Partition, list[Limit], list[Limit]]:
    """The partition of a job, and the limits of its task and of a worker."""
    partition = Partition(
        queue=job.queue, task=job.task, tags=job.tags, keys=job.limit_keys, flow=flow
    )
    of_task = [
        info
        for each in worker.info.task_limits
        if (each.task, each.flow) == (job.task, flow)
        for info in each.limits
    ]
    return partition, _limits(of_task), _limits(worker.info.limits)


def _limits(infos: Iterable[LimitInfo]) -> list[Limit]:
    return [limit for limit in map(limit_of, infos) if limit is not None]


def _full_limits(
    job: Job,
    key: str,
    flow: str,
    able: Sequence[WorkerState],
    around: Surroundings,
    now: datetime,
) -> list[Finding]:
    """The limits that block every worker that could claim the job; empty if one could."""
    found: dict[LimitRule, Finding] = {}
    for worker in able:
        full = {
            rule: _limited(job, key, rule, use, around, now)
            for rule in rules_for(job, flow, worker)
            if (use := around.limit_uses.get(rule)) is not None
            and not room_under(rule, use.usage, now).count
        }
        if not full:
            return []
        found |= full
    return list(found.values())


def _limited(
    job: Job, key: str, rule: LimitRule, use: LimitUse, around: Surroundings, now: datetime
) -> Finding:
    usage = use.usage
    args: dict[str, Any] = {"limit": rule.key, "since": job.ready_at}
    opens_at = room_under(rule, usage, now).opens_at
    if usage.closed_until is not None and usage.closed_until > now:
        return LIMIT_CLOSED.finding(
            key, severity=Severity.WARNING, until=usage.closed_until, **args
        )
    if rule.live_max is not None and usage.live >= rule.live_max:
        args |= {"running": usage.live, "most": rule.live_max, "more": None}
        args["holders"] = use.held_by[:HOLDERS_MAX]
        for holder in use.held_by[:1]:
            args |= {"holder": holder, "more": usage.live - 1 or None}
            held = around.holders.get(holder)
            if held is not None:
                args |= {"holder_worker": held.worker, "held_since": held.started_at}
            if held is not None and held.node is not None:
                args |= {"holder_node": held.node.key, "holder_run": held.node.run}
        actions = [Action("jobs.explain", {"id": each}) for each in use.held_by[:1]]
        return LIMIT_FULL.finding(key, *actions, severity=Severity.WARNING, **args)
    if rule.starts_max is not None and usage.starts >= rule.starts_max:
        return LIMIT_USED_UP.finding(
            key,
            severity=Severity.WARNING,
            starts=usage.starts,
            window=rule.window,
            opens_at=opens_at,
            **args,
        )
    return LIMIT_SPACING.finding(
        key, severity=Severity.WARNING, spacing=rule.spacing, opens_at=opens_at, **args
    )


# Waits


def wait_actions(
    wait: Wait, detail: Any = None, answers: Sequence[AnswerState] = ()
) -> tuple[Action, ...]:
    """What ends a wait; ``detail`` is its decoded detail, and ``answers`` are those so far."""
    match wait.type:
        case WaitType.SIGNAL:
            signal = {"id": wait.run, "name": wait.name}
            return (Action("runs.signal", signal, ("payload",)),)
        case WaitType.CHILD:
            return (Action("runs.explain", {"id": wait.name}),)
        case WaitType.EXTERNAL:
            return (_report(wait.run, wait.key),)
        case WaitType.APPROVAL:
            args: dict[str, Any] = {"id": approval_id(wait.run, wait.key)}
            if isinstance(detail, dict):
                choices = detail.get("answers") or (APPROVE,)
                args["decision"] = APPROVE if APPROVE in choices else choices[0]
            asks = [] if "decision" in args else ["decision"]
            # A role may answer again through another person, a user may not.
            answered = {name for each in answers for name in (each.by, *each.stands_for)}
            left = [each for each in wait.deciders if each not in answered]
            roles = [each for each in wait.deciders if role_of(each) is not None]
            for decider in (left or roles)[:1]:
                role = role_of(decider)
                args |= {"by": decider} if role is None else {"roles": (role,)}
            if "by" not in args:
                asks.append("by")
            if answers and isinstance(detail, dict) and "form" in detail:  # it may be edited
                asks.append("revision")
            return (Action("approvals.decide", args, tuple(asks)),)
        case WaitType.TIMER:
            return ()


def _report(run: RunId, node: str) -> Action:
    return Action("runs.report", {"id": run, "node": node, "status": "completed"}, ("result",))


def _of_waits(state: RunState, around: Surroundings, now: datetime) -> Iterator[Finding]:
    timers = {wait.key: wait for wait in around.waits if wait.type is WaitType.TIMER}
    is_served = any(is_live(each, now) for each in around.workers)
    for wait in around.waits:
        detail = around.details.get(wait.key)
        approval = state.approvals.get(wait.key)
        given = () if approval is None else approval.answers
        actions = wait_actions(wait, detail, given)
        args: dict[str, Any] = {"since": wait.opened_at}
        if wait.due_at is not None:
            args |= {"until": wait.due_at, "overdue": _overdue(wait.due_at, now)}
        match wait.type:
            case WaitType.TIMER if (
                wait.key == RUN_START
                and wait.due_at is None
                and (is_served or around.place_holders)
            ):
                yield _without_place(state, around, wait)
            case WaitType.TIMER if wait.key == RUN_START:
                code, asks = (
                    (RUN_QUEUED, ()) if is_served else (RUN_QUEUED_UNSERVED, (START_WORKER,))
                )
                severity = Severity.OK if is_served else Severity.WARNING
                yield code.finding("", *asks, severity=severity, run=wait.run, **args)
            case WaitType.TIMER:
                if Key.parse(wait.key).part:  # it accompanies another wait
                    continue
                if is_served:
                    yield TIMER.finding(wait.key, severity=Severity.OK, **args)
                else:
                    yield TIMER_UNSERVED.finding(
                        wait.key, START_WORKER, severity=Severity.WARNING, **args
                    )
            case WaitType.SIGNAL:
                if isinstance(detail, dict):
                    args["where"] = detail.get("where")
                yield SIGNAL.finding(
                    wait.key, *actions, severity=Severity.OK, signal=wait.name, **args
                )
            case WaitType.CHILD:
                child = RunId(wait.name)
                status = around.children.get(child)
                code = CHILD_NOT_FOUND if status is None else CHILD
                severity = Severity.ERROR if status is None else Severity.OK
                yield code.finding(
                    wait.key, *actions, severity=severity, child=child, status=status, **args
                )
            case WaitType.EXTERNAL:
                poll = timers.get(f"poll:{wait.key}")
                poll_at = None if poll is None else poll.due_at
                args |= {"step": wait.name, "poll_at": poll_at}
                yield REPORT.finding(wait.key, *actions, severity=Severity.OK, **args)
            case WaitType.APPROVAL:
                answers = {each.by or "anonymous": each.decision for each in given}
                title = detail["title"] if isinstance(detail, dict) and "title" in detail else ""
                args |= {"title": wait.name or title, "deciders": wait.deciders, "answers": answers}
                yield APPROVAL.finding(wait.key, *actions, severity=Severity.OK, **args)


def _without_place(state: RunState, around: Surroundings, wait: Wait) -> Finding:
    holders, settings = around.place_holders, state.settings
    return RUN_WAITS_FOR_PLACE.finding(
        "",
        *(Action("runs.explain", {"id": each}) for each in holders[:1]),
        severity=Severity.OK,
        run=wait.run,
        since=wait.opened_at,
        flow=state.flow,
        key=settings.running_key or None,
        most=settings.max_running,
        held=len(holders),
        holders=holders[:HOLDERS_MAX],
        more=len(holders[HOLDERS_MAX:]) or None,
    )


def _overdue(due_at: datetime, now: datetime) -> timedelta | None:
    """How long it is overdue; the next live worker processes it."""
    return now - due_at if due_at <= now else None


def _auxiliary(
    run: RunId, state: RunState, around: Surroundings, now: datetime
) -> Iterator[Finding]:
    """Whether it accompanies a node and is not reported with its wait or its job."""
    waits = {wait.key: wait for wait in around.waits}
    jobs = {job.node.key for job in around.jobs if job.node is not None}
    for text in sorted({*state.live, *waits} - jobs):
        key = Key.parse(text)
        if key.part not in ("poll", "remind", "notify"):
            continue
        node = replace(key, part="").text if key.part == "poll" else key.node
        if node in waits or node in jobs:
            continue
        wait = waits.get(text)
        args = {"node": node, "at": None if wait is None else wait.due_at}
        if key.part == "poll":
            yield POLLING.finding(text, _report(run, node), severity=Severity.OK, **args)
        else:
            code = NOTIFYING if key.part == "notify" else REMINDING
            show = Action("approvals.get", {"id": approval_id(run, node)})
            yield code.finding(text, show, severity=Severity.OK, **args)
