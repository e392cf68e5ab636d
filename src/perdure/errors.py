"""Every exception a caller may catch, in one tree, and those a task raises to say what it wants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING

from perdure.model.duration import Duration, as_duration
from perdure.model.moment import as_moment

if TYPE_CHECKING:
    from perdure.model.failure import Failure


# All of them in this one module: `Failure.type` and `Retry(on=...)` store the full name of a
# class, `perdure.errors.X`, so a class that moves or is renamed no longer matches what is stored.

MESSAGE_MAX = 20_000


class PerdureError(Exception):
    """Base of everything Perdure raises on purpose."""

    def __init__(self, *args: object) -> None:
        # A message may quote what came from outside, which may be of any length.
        super().__init__(*(_cut(each) if isinstance(each, str) else each for each in args))


# What the caller got wrong. Nothing was written.


class InvalidInput(PerdureError, ValueError):
    """An argument cannot be used; the message names it and what would be accepted."""


class UnknownTask(InvalidInput):
    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        hint = f"; registered: {', '.join(sorted(known))}" if known else "; none is registered"
        super().__init__(f"task {name!r} is not registered here{hint}. Pass it in tasks=[...]")
        self.name = name


class DuplicateTask(InvalidInput):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"two different tasks are named {name!r}; rename one of them: @task(name=...)"
        )
        self.name = name


class PayloadNotSerialisable(InvalidInput):
    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"{what} cannot be stored: {reason}. Use JSON values, dataclasses, pydantic models, "
            "datetimes, UUIDs, bytes or enums"
        )


class PayloadTooLarge(InvalidInput):
    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{what} has {size_bytes} bytes, more than the {limit_bytes} allowed. Store it "
            "elsewhere and pass a reference, or raise payload_max_bytes"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class FingerprintTaken(PerdureError):
    """``on_conflict="raise"``: a live job of the queue has this fingerprint already."""

    def __init__(self, queue: str, fingerprint: str, job_id: str) -> None:
        super().__init__(
            f"job {job_id} in queue {queue!r} is live with fingerprint {fingerprint!r}; wait for "
            'it, or enqueue with on_conflict="return" or "replace"'
        )
        self.queue = queue
        self.fingerprint = fingerprint
        self.job_id = job_id


# What the record refuses.


class JobNotFound(PerdureError, LookupError):
    def __init__(self, job_id: str, what: str = "job") -> None:
        super().__init__(
            f"there is no {what} {job_id!r} in this namespace (removed, or never there)"
        )
        self.job_id = job_id


class NoResult(PerdureError, LookupError):
    """No result is kept: nothing like it has completed yet, or what has was removed."""


class IllegalTransition(PerdureError):
    """The operation does not apply to a job in this status; nothing was changed."""

    def __init__(self, job_id: str, operation: str, status: str) -> None:
        super().__init__(f"cannot {operation} job {job_id}: it is {status}")
        self.job_id = job_id
        self.operation = operation
        self.status = status


class StaleClaim(PerdureError):
    """The caller no longer holds this claim; nothing of what it tried was written."""

    def __init__(self, job_id: str, epoch: int) -> None:
        super().__init__(
            f"claim {epoch} on job {job_id} is no longer current: its lease ran out and the job "
            "was given to another worker, or it was taken away"
        )
        self.job_id = job_id
        self.epoch = epoch


# How a job ended, as its waiter sees it.


class JobEnded(PerdureError):
    """The awaited job ended without a result. ``failure`` is what its last attempt left behind."""

    def __init__(self, job_id: str, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.failure = failure
        if failure is not None and failure.traceback:
            self.add_note(f"On the worker:\n{failure.traceback}")


class JobFailed(JobEnded):
    """It failed for good: a permanent error, or one its retry policy does not retry."""


class JobDead(JobFailed):
    """Its tries are used up, or it killed its workers: it is in the dead letter."""


class JobCancelled(JobEnded):
    """It was aborted, or replaced by another job of the same fingerprint."""


class JobDisabled(JobEnded):
    """It was disabled by an operator; ``client.enable(id)`` lets it run."""


class ResultTimeout(PerdureError, TimeoutError):
    def __init__(self, job_id: str, timeout: float, status: str) -> None:
        super().__init__(f"job {job_id} has no result after {timeout:g} s; it is {status}")
        self.job_id = job_id
        self.status = status


# Flows and runs.


class InvalidFlow(InvalidInput):
    """A flow cannot be built; ``errors`` are all its faults, each with node and place."""

    def __init__(self, flow: str, errors: tuple[str, ...]) -> None:
        listed = "".join(f"\n  - {error}" for error in errors)
        super().__init__(f"flow {flow!r} cannot be built:{listed}")
        self.flow = flow
        self.errors = errors


class UnknownFlow(InvalidInput):
    """No definition of this flow in this version is stored, or known here."""

    def __init__(self, flow: str, known: tuple[str, ...] = ()) -> None:
        hint = f"; known: {', '.join(sorted(known))}" if known else ""
        super().__init__(
            f"flow {flow!r} is not known{hint}. Submit it once, or pass it in flows=[...]"
        )
        self.flow = flow


class UnknownKind(InvalidInput):
    """No kind of node of this name comes with it, or was given."""

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        near = get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        super().__init__(
            f"there is no kind {name!r}{hint} Known: {', '.join(sorted(known))}. Pass your own in "
            "kinds=[...]"
        )
        self.name = name


class TemplateMissing(InvalidInput):
    """A template names something that is not there; ``where`` is its place in the config."""

    def __init__(self, template: str, where: str, reason: str, node: str = "") -> None:
        owner = f"node {node!r}: " if node else ""
        place = f" in {where}" if where else ""
        super().__init__(
            f"{owner}template {template!r}{place}: {reason}. Give it, correct the name, or set "
            'on_missing to "default" or "skip"'
        )
        self.template = template
        self.where = where
        self.reason = reason
        self.node = node

    def of_node(self, node: str) -> TemplateMissing:
        """The same, told with the node that the template belongs to."""
        return TemplateMissing(self.template, self.where, self.reason, node)


class RunNotFound(PerdureError, LookupError):
    def __init__(self, run_id: str, what: str = "run") -> None:
        super().__init__(
            f"there is no {what} {run_id!r} in this namespace (removed, or never there)"
        )
        self.run_id = run_id


class AmbiguousRun(InvalidInput):
    """Several namespaces have a run of this id, and a client of all of them was asked for it."""

    def __init__(self, run_id: str, namespaces: tuple[str, ...]) -> None:
        listed = ", ".join(map(repr, namespaces))
        super().__init__(
            f"run {run_id!r} may be any of those in the namespaces {listed}; open a client of one "
            "of them: namespace=..."
        )
        self.run_id = run_id
        self.namespaces = namespaces


class RunExists(PerdureError):
    """The id is taken by another run, live or ended, and nothing was said for that case."""

    def __init__(self, run_id: str, flow: str, status: str) -> None:
        super().__init__(
            f"run {run_id!r} exists already: flow {flow!r}, {status}. Choose another id; "
            'submit(...) also takes on_conflict="use_existing" or "terminate_existing", '
            "and the command --on-conflict"
        )
        self.run_id = run_id
        self.flow = flow
        self.status = status


class RunEnded(PerdureError):
    """The run is over, and ``act`` no longer applies to it; nothing was changed."""

    def __init__(self, run_id: str, act: str, status: str) -> None:
        advice = (
            "client.fork(id), or perdure runs fork, begins a new run with its past"
            if status in ("completed", "skipped")
            else "client.retry(id) or client.fork(id) start it anew, as do perdure runs retry and "
            "perdure runs fork"
        )
        super().__init__(f"cannot {act} run {run_id!r}: it is {status}, which is final. {advice}")
        self.run_id = run_id
        self.act = act
        self.status = status


class RunNotPaused(PerdureError):
    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(f"cannot unpause run {run_id!r}: it is {status}, not paused")
        self.run_id = run_id
        self.status = status


class RunNotRetryable(PerdureError):
    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f"cannot retry run {run_id!r}: {reason}")
        self.run_id = run_id


class ScheduleNotFound(PerdureError, LookupError):
    def __init__(self, name: str, nearest: str = "") -> None:
        super().__init__(f"there is no schedule {name!r} in this namespace{nearest}")
        self.name = name


class ScheduleUnreadable(PerdureError):
    """A newer version wrote the schedule. Nothing was changed; workers that know it see to it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"schedule {name!r} cannot be read here: {reason}. A newer version of perdure wrote "
            "it: upgrade this one, or delete the schedule and make it anew"
        )
        self.name = name
        self.reason = reason


class MigrationRefused(PerdureError):
    """The run cannot go on in that version; ``differences`` say why. Nothing was changed."""

    def __init__(self, run_id: str, to: str, differences: tuple[str, ...]) -> None:
        listed = "".join(f"\n  - {difference}" for difference in differences)
        super().__init__(f"cannot migrate run {run_id!r} to {to}:{listed}")
        self.run_id = run_id
        self.to = to
        self.differences = differences


class JobBelongsToRun(PerdureError):
    """A job of a run is the run's affair; nothing was changed."""

    def __init__(self, job_id: str, run_id: str) -> None:
        super().__init__(
            f"job {job_id} executes a node of run {run_id!r}: act on the run instead "
            "(cancel, pause, unpause, retry)"
        )
        self.job_id = job_id
        self.run_id = run_id


class EventLogCorrupt(PerdureError):
    """The events of a run are not what was written: nothing is done with it until it is mended."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f"the event log of run {run_id!r} is corrupt: {reason}")
        self.run_id = run_id


class UnknownEvent(PerdureError):
    """A newer version wrote this event; skipping it would be wrong. Upgrade this process."""

    def __init__(self, run_id: str, number: int, kind: str) -> None:
        super().__init__(
            f"event {number} of run {run_id!r} is a {kind!r}, which this version does not know; "
            "upgrade this process"
        )
        self.run_id = run_id
        self.number = number
        self.kind = kind


class ValueMissing(PerdureError):
    """A decision needs the values of these events, which have to be read first."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        super().__init__(f"the values of events {numbers} are not at hand")
        self.numbers = numbers


class RunEndedBadly(PerdureError):
    """The awaited run ended without a result."""

    def __init__(
        self, run_id: str, message: str, failure: Failure | None = None, node: str = ""
    ) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.failure = failure
        self.node = node
        if failure is not None and failure.traceback:
            self.add_note(f"On the worker:\n{failure.traceback}")


class RunFailed(RunEndedBadly):
    """A node failed for good; ``node`` says which and ``failure`` why."""


class RunCancelled(RunEndedBadly):
    """It was cancelled."""


class RunSkipped(RunEndedBadly):
    """It never began, because its flow was cooling down; the message says until when."""


class RunTimeout(PerdureError, TimeoutError):
    def __init__(self, run_id: str, timeout: float, status: str) -> None:
        super().__init__(f"run {run_id!r} has no result after {timeout:g} s; it is {status}")
        self.run_id = run_id
        self.status = status


class RunStuck(PerdureError):
    """``run_flow``: the run waits for something that nothing here will bring."""


class NotFaked(PerdureError):
    """``Kit(fakes_only=True)``: a task was to be executed that no fake stands for."""

    def __init__(self, task: str, key: str | None) -> None:
        place = f" at node {key!r}" if key else ""
        super().__init__(
            f"task {task!r}{place} was called, and no fake stands for it: "
            f"kit.fake({key or task!r}, ...)"
        )
        self.task = task


class NotSettled(PerdureError, TimeoutError):
    """The testing kit: something was still being executed when its patience was over."""

    def __init__(self, running: str, patience: timedelta) -> None:
        what = f"{running} was" if running else "something was"
        super().__init__(
            f"{what} still being executed after {patience.total_seconds():g} s of real time; fake "
            "what takes long, or raise Kit(patience=...)"
        )
        self.running = running


class LoopExhausted(PerdureError):
    """A loop was not done after its last iteration."""


class WaitTimedOut(PerdureError, TimeoutError):
    """No signal, answer or report came in time."""


# What people and outside parties are told.


class NodeNotFound(PerdureError):
    def __init__(self, run_id: str, node: str, known: tuple[str, ...]) -> None:
        near = get_close_matches(node, known, n=3) or known[:12]
        hint = f"; known: {', '.join(map(repr, near))}" if near else ""
        super().__init__(f"run {run_id!r} has no node {node!r}{hint}")
        self.run_id = run_id
        self.node = node


class NodeNotWaiting(PerdureError):
    """The node waits for no report; nothing was changed."""

    def __init__(self, run_id: str, node: str, status: str) -> None:
        super().__init__(
            f"node {node!r} of run {run_id!r} waits for no report: it is {status}. Only a node "
            "whose body runs or has paused can be reported on"
        )
        self.run_id = run_id
        self.node = node
        self.status = status


class ApprovalNotFound(PerdureError):
    """There is no open approval of this id, and there was none."""

    def __init__(self, approval_id: str, reason: str) -> None:
        super().__init__(f"there is no approval {approval_id!r}: {reason}")
        self.approval_id = approval_id


class ApprovalDecided(PerdureError):
    """It is decided already, or its time is over; nothing was changed."""

    def __init__(self, approval_id: str, outcome: str) -> None:
        super().__init__(f"approval {approval_id!r} is closed: {outcome}")
        self.approval_id = approval_id
        self.outcome = outcome


class NotADecider(PerdureError):
    """Somebody else has to decide; nothing was changed."""

    def __init__(self, approval_id: str, by: str | None, deciders: tuple[str, ...]) -> None:
        who = "nobody in particular" if by is None else repr(by)
        listed = ", ".join(map(repr, deciders))
        super().__init__(
            f"{who} may not decide on approval {approval_id!r}; its deciders are {listed}. Say "
            "who decides with by=..., and in which roles with roles=[...]"
        )
        self.approval_id = approval_id
        self.by = by
        self.deciders = deciders


class AlreadyAnswered(PerdureError):
    """One answer each; nothing was changed."""

    def __init__(self, approval_id: str, by: str | None, decision: str) -> None:
        super().__init__(
            f"{by or 'nobody'!r} has answered approval {approval_id!r} already: {decision}. It "
            "waits for others"
        )
        self.approval_id = approval_id
        self.by = by


class InvalidAnswer(InvalidInput):
    """The answer does not fit; ``faults`` has the reasons by field. Nothing was changed."""

    def __init__(self, approval_id: str, faults: dict[str, list[str]]) -> None:
        listed = "".join(
            f"\n  - {f'{field}: ' if field else ''}{reason}"
            for field, reasons in faults.items()
            for reason in reasons
        )
        super().__init__(f"the answer does not fit approval {approval_id!r}:{listed}")
        self.approval_id = approval_id
        self.faults = faults


class OutsideFailed(PerdureError):
    """Outside work was reported as failed; with retries left, its node begins it again."""


class Rejected(PerdureError):
    """An approval was rejected, and its node has no way to go on from there."""


# What is wrong with the store.


class StoreError(PerdureError):
    """The store cannot be used as asked."""


class InvalidStoreUrl(StoreError, InvalidInput):
    def __init__(self, url: str, reason: str) -> None:
        url = without_password(url)
        super().__init__(
            f"store URL {url!r} cannot be used: {reason}. Use memory://name, sqlite:///path.db "
            "or postgresql://user@host/database"
        )


class StoreUnreachable(StoreError, ConnectionError):
    def __init__(
        self,
        url: str,
        reason: str,
        advice: str = "Is the server running, and are host, port, database and password right?",
    ) -> None:
        super().__init__(f"cannot open the store at {without_password(url)}: {reason}. {advice}")


class SchemaMismatch(StoreError):
    """The tables found belong to a newer Perdure, or to something else."""


# What keeps a store from being moved. Nothing was written.


class StoreInUse(PerdureError):
    """Workers are at work in the store that is to be exported."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"the store at {url} is in use: {reason}. What they do from now on would not be in the "
            "export; stop them, or say --live to get a copy as of now"
        )


class StoreNotEmpty(PerdureError):
    """An import needs a store of its own."""

    def __init__(self, url: str, tables: list[str]) -> None:
        super().__init__(
            f"the store at {url} is not empty: it has {', '.join(tables)}. Import into a new "
            "database, or a new ?schema=... on PostgreSQL or ?prefix=... on SQLite"
        )
        self.tables = tables


class InvalidExport(PerdureError):
    """A file is not a whole export that this version can read."""

    def __init__(self, path: str, reason: str, advice: str = "Export the store again") -> None:
        super().__init__(f"{path} cannot be imported: {reason}. {advice}")


# What a task raises to say how its attempt should count.


class Permanent(PerdureError):
    """Raise in a task: this job cannot succeed, do not retry it whatever its policy says."""


class MissingSecret(Permanent):
    """The worker has no secret of this name. Trying again would not help."""

    def __init__(self, name: str, advice: str) -> None:
        super().__init__(f"secret {name!r} is not there; {advice}")
        self.name = name
        self.advice = advice


class CheckFailed(PerdureError):
    """An output is not what its node says it must be; ``faults`` has the reasons by field."""

    def __init__(self, node: str, what: str, faults: Mapping[str, list[str]]) -> None:
        told = "; ".join(
            f"{field}: {reason}" if field else reason
            for field, reasons in faults.items()
            for reason in reasons
        )
        super().__init__(f"node {node!r}: the output does not satisfy its {what}: {told}")
        self.node = node
        self.faults = faults


class RetryLater(PerdureError):
    """Raise in a task: not now. Try again at ``until`` (aware), or ``after`` a duration.

    It has a budget of its own and does not use up the task's retries. ``limit`` names a limit
    whose next start moves to that time for every worker, as after an HTTP 429.
    """

    def __init__(
        self,
        message: str = "not now",
        *,
        until: datetime | None = None,
        after: Duration | None = None,
        limit: str | None = None,
    ) -> None:
        from perdure.model.task import checked_name  # which imports this module

        super().__init__(message)
        if until is not None and after is not None:
            raise InvalidInput("RetryLater takes until=... or after=..., not both")
        self.until = None if until is None else as_moment(until, "until")
        self.after: timedelta | None = None if after is None else as_duration(after, "after")
        self.limit = None if limit is None else checked_name(limit, "limit")


class Aborted(PerdureError):
    """What ``ctx.check()`` raises once the job is aborted or its claim is lost."""


class AttemptTimeout(PerdureError, TimeoutError):
    """One attempt ran longer than the task's ``timeout``."""


class DeadlineExceeded(PerdureError, TimeoutError):
    """The job's ``deadline`` passed before it completed."""


class WorkerDied(PerdureError):
    """The lease ran out with the job unfinished: its worker was killed, or cut off."""


class ProcessDied(PerdureError):
    """The child process of a task with ``isolation="process"`` ended without an answer."""


def _cut(message: str) -> str:
    half = MESSAGE_MAX // 2
    fits = len(message) <= MESSAGE_MAX
    return message if fits else f"{message[:half]} ... {message[-half:]}"


def without_password(url: str) -> str:
    """The URL as it may be shown: all between a user's name and the last @, and password=."""
    url = re.sub(r"(//[^:@/]*):.*@", r"\1:***@", url)
    return re.sub(r"(password=)[^&]*", r"\1***", url)
