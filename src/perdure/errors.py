"""Every exception a caller may catch, and those a task raises to control its retries.

Each has a code and typed fields; messages are rendered lazily. Six bases decide how interfaces
report an error: ``InvalidInput``, ``NotFound``, ``Conflict``, ``NotAllowed``, ``StoreError`` and
``TaskError``.

Failures and retry policies store exceptions by qualified name, ``perdure.errors.X``: a class that
moves or is renamed no longer matches stored names.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, dataclass_transform
from urllib.parse import unquote

from perdure.diagnostics import (
    PYTHON,
    RECORD,
    YAML,
    Action,
    Code,
    Diagnostic,
    Fault,
    Path,
    Renderer,
    Source,
    advice_text,
    as_data,
    declare,
    message,
    near,
    render,
    truncate,
)

if TYPE_CHECKING:
    from perdure.model.failure import Failure


@dataclass_transform(kw_only_default=True)
class PerdureError(Exception):
    """The base class of all exceptions that Perdure raises on purpose.

    Subclasses declare a code and their fields. ``faults`` are the faults passed to the error, or
    the error itself as one. Messages are rendered lazily, because some errors are raised on the hot
    path.
    """

    CODE: ClassVar[Code] = declare("error", "{message}")
    _fields: ClassVar[tuple[str, ...]] = ()
    _derived: ClassVar[tuple[str, ...]] = ()
    """Properties that the message needs besides the fields."""

    # Not annotated, so they are not fields.
    _faults = cast(tuple[Fault, ...], ())
    _place = cast(Path, ())

    def __init_subclass__(cls) -> None:
        if "CODE" not in vars(cls):
            return  # an application's subclass may annotate anything
        own = [
            name
            for name, found_type in inspect.get_annotations(cls).items()
            if "ClassVar" not in str(found_type)
        ]
        cls._fields = (*(name for name in cls._fields if name not in own), *own)

    def __init__(self, *details: object, **fields: Any) -> None:
        super().__init__(*(each for each in details if not isinstance(each, Fault)))
        if faults := tuple(each for each in details if isinstance(each, Fault)):
            self._faults = faults
        for name in self._fields:
            if name in fields:
                setattr(self, name, fields.pop(name))
            elif not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} needs {name}=")
        if fields:
            raise TypeError(f"{type(self).__name__} has no {', '.join(fields)}")

    # Cached properties, so that subclasses in applications may use these names as attributes.

    @cached_property
    def code(self) -> str:
        return self._diagnostic().code

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        if given := self._given_faults():
            return given
        whole = self._diagnostic()
        place = self._place
        return (Fault(code=whole.code, args=whole.args, actions=whole.actions, where=place),)

    @cached_property
    def fields(self) -> dict[str, Any]:
        return self._field_values()

    @cached_property
    def diagnostic(self) -> Diagnostic:
        """The error as a whole, or its only fault if it has nothing else."""
        return self._diagnostic()

    def actions(self) -> tuple[Action, ...]:
        return ()

    def add_place(self, *place: str | int) -> None:
        """Prefix the path of each fault, for example with the index of an input or a node."""
        self._place = (*place, *self._place)
        self._faults = tuple(each.under(*place) for each in self._faults)
        for name in ("faults", "diagnostic"):  # may be cached already
            self.__dict__.pop(name, None)

    def render(self, renderer: Renderer = PYTHON, separator: str = "\n  - ") -> str:
        """Return the message for one interface; faults are listed after the sentence."""
        whole, given = self._diagnostic(), self._given_faults()
        if not given:
            place = ".".join(map(str, self._place))
            return f"{place}: {render(whole, renderer)}" if place else render(whole, renderer)
        listed = self._listed(renderer)
        if not self._fields:
            return truncate("; ".join(listed))
        is_line = not separator.startswith("\n")
        text = f"{message(whole, renderer)}:{' ' if is_line else separator}{separator.join(listed)}"
        if advice := advice_text(whole, renderer):
            text += f". {advice}" if is_line else f"\n{advice}"
        return truncate(text)

    def as_data(self, renderer: Renderer = PYTHON) -> dict[str, Any]:
        """Return the payload for ``--json``, HTTP and MCP: code, arguments, actions and faults."""
        return {
            **as_data(self.diagnostic, renderer),
            "message": self.render(renderer, separator="; "),
            "faults": [as_data(each, renderer) for each in self.faults],
        }

    def _diagnostic(self) -> Diagnostic:
        if self._fields:
            return Diagnostic(
                code=self.CODE.name, args=self._field_values(), actions=self.actions()
            )
        if len(self._faults) == 1:
            return self._faults[0]
        text = "; ".join(map(fault_text, self._faults)) if self._faults else self._text()
        return Diagnostic(code=self.CODE.name, args={"message": text})

    def _given_faults(self) -> tuple[Fault, ...]:
        """The faults passed to the error; if it has fields, strings passed to it count too."""
        if not self._fields:
            return self._faults
        texts = (
            Fault(code=PerdureError.CODE.name, args={"message": str(each)}) for each in self.args
        )
        return (*self._faults, *texts)

    def _listed(self, renderer: Renderer) -> list[str]:
        return [fault_text(each, renderer) for each in self._given_faults()]

    def _field_values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self._fields, *self._derived)}

    def _text(self) -> str:
        """The message as ``Exception.__str__`` returns it."""
        return super().__str__()

    def __str__(self) -> str:
        # Not `render`: an application's subclass may have an attribute of that name.
        return self._rendered(PYTHON)

    def _rendered(self, renderer: Renderer) -> str:
        return self.render(renderer) if self._fields or self._faults else truncate(self._text())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by attributes, since constructors differ."""
        return _restore, (type(self), self.args), self.__dict__


def record_text(error: BaseException) -> str:
    """The message to store, without suggested actions."""
    # Not isinstance(), which may call code of the exception's class, and that may raise.
    if type(error).__str__ is PerdureError.__str__:
        return cast(PerdureError, error)._rendered(RECORD)
    return str(error)


def _restore(cls: type[PerdureError], args: tuple[Any, ...]) -> PerdureError:
    error = cls.__new__(cls)
    error.args = args
    return error


_IN_DATA = ("condition.", "config.", "form.", "pattern.", "schema.", "template.", "yaml.")
"""Codes of faults in data. Their messages need the path as subject: "must be at least 1"."""


def fault_text(fault: Fault, renderer: Renderer = PYTHON) -> str:
    """One fault as a line, prefixed with its path.

    The path omits the argument or node that the message already names, except for faults in data.
    """
    where = fault.where
    if where and not fault.code.startswith(_IN_DATA):
        if where[-2:] == ("nodes", fault.args.get("node")):
            where = where[:-2]
        elif len(where) == 1 or where[-1] == fault.args.get("name"):
            where = where[:-1]
        elif fault.args.get("name") == f"{where[-2]}[{where[-1]}]":
            where = where[:-2]
    place = ".".join(map(str, where))
    return f"{place}: {render(fault, renderer)}" if place else render(fault, renderer)


def flow_fault_text(fault: Fault) -> str:
    """A fault of a flow as a line: file and line, node, builder call, message.

    Options are rendered as in the flow's own format, Python or YAML, on every interface.
    """
    source = fault.source or Source()
    place = f"{source.file}:" if source.file else ""
    if source.line:
        place = f"{place}{source.line}:" if place else f"line {source.line}:"
    node = node_of(fault)
    label = f"node {node!r}" if node else source.call
    if node and source.call:
        label += f" ({source.call})"
    return " ".join(filter(None, (place, label and f"{label}:", flow_message(fault))))


def flow_message(fault: Fault) -> str:
    """The message without file and node; prefixed with the path unless the message names it."""
    renderer = PYTHON if fault.source is None or fault.source.call else YAML
    if fault.code.startswith("flow."):
        return render(fault, renderer)
    inside = fault.where[2:] if node_of(fault) else fault.where
    if fault.code.startswith("argument.") and inside[:1] == ("config",):
        inside = inside[1:]
    if inside and inside[-1] == fault.args.get("key"):  # the message names it
        inside = inside[:-1]
    return fault_text(replace(fault, where=inside), renderer)


def node_of(fault: Fault) -> str:
    """The node that a fault of a flow is about; empty if none."""
    match fault.where:
        case ("nodes", str(node), *_):
            return node
    return ""


# Invalid requests. Nothing was written.


class InvalidInput(PerdureError, ValueError):
    """An argument is invalid; ``faults`` say which and why. Nothing was written."""

    CODE = declare("input.invalid", "{message}")


class UnknownTask(InvalidInput):
    """The named task is not registered with this client or worker."""

    CODE = declare(
        "task.unknown",
        "task {name!r} is not registered here[; did you mean {nearest:or}?]",
        "[Registered: {known}. ]Pass the task in `tasks`",
    )
    _derived = ("nearest",)
    name: str
    known: tuple[str, ...] = ()

    @property
    def nearest(self) -> tuple[str, ...]:
        return near(self.name, self.known)


class DuplicateTask(InvalidInput):
    """Two different tasks have the same name."""

    CODE = declare(
        "task.duplicate", "two different tasks are named {name!r}", "Rename one: @task(name=...)"
    )
    name: str


class PayloadNotSerializable(InvalidInput):
    """The value cannot be serialized to JSON."""

    CODE = declare(
        "payload.not_serializable",
        "{what} cannot be stored: {reason}",
        "Use JSON values, dataclasses, pydantic models, datetimes, UUIDs, bytes or enums",
    )
    what: str
    reason: str


class PayloadTooLarge(InvalidInput):
    """An input, a result or a report is larger than allowed."""

    CODE = declare(
        "payload.too_large",
        "{what} has {size_bytes} bytes, more than the {limit_bytes} allowed",
        "Store it elsewhere and pass a reference, or raise `payload_max_bytes`",
    )
    what: str
    size_bytes: int
    limit_bytes: int


class UnknownFlow(InvalidInput):
    """The named flow is not registered with this client, or its definition is not stored."""

    CODE = declare(
        "flow.unknown",
        "unknown flow {flow!r}[; known: {known}]",
        "Submit it once, or pass it in `flows`",
    )
    flow: str
    known: tuple[str, ...] = ()


class UnknownNodeType(InvalidInput):
    """A node names a type that does not exist."""

    CODE = declare(
        "flow.unknown_node_type",
        "unknown node type {name!r}[; did you mean {nearest:or}?]",
        "Known: {known}. Pass your own in `node_types`",
    )
    _derived = ("nearest",)
    name: str
    known: tuple[str, ...] = ()

    @property
    def nearest(self) -> tuple[str, ...]:
        return near(self.name, self.known)


class InvalidFlow(InvalidInput):
    """A flow cannot be built; ``faults`` has every fault with its place."""

    CODE = declare("flow.invalid", "flow {flow!r} cannot be built", "[{advice}]")
    flow: str
    advice: str = ""

    def __init__(self, *faults: Fault, flow: str, advice: str = "") -> None:
        super().__init__(*faults, flow=flow, advice=advice)

    @property
    def errors(self) -> tuple[str, ...]:
        """The faults as text."""
        return tuple(self._listed(PYTHON))

    def _listed(self, renderer: Renderer) -> list[str]:
        return [flow_fault_text(each) for each in self._faults]


class TemplateMissing(InvalidInput):
    """A template names a missing value; ``where`` is its path in the config."""

    CODE = declare(
        "template.missing",
        "[node {node!r}: ]template {template!r}[ in {where}]: {reason}",
        'Supply it, correct the name, or set `on_missing` ("default" or "skip")',
    )
    template: str
    where: str
    reason: str
    node: str = ""

    def of_node(self, node: str) -> Self:
        """Return a copy with the node that the template belongs to."""
        return type(self)(template=self.template, where=self.where, reason=self.reason, node=node)


class AmbiguousRun(InvalidInput):
    """A client with ``namespace="*"`` found runs of this id in several namespaces."""

    CODE = declare(
        "run.ambiguous",
        "run {run_id!r} exists in several namespaces: {namespaces}",
        "Name one with `namespace`",
    )
    run_id: str
    namespaces: tuple[str, ...]


class InvalidAnswer(InvalidInput):
    """An answer does not fit its approval; ``faults`` say which field and why."""

    CODE = declare("approval.invalid_answer", "the answer does not fit approval {approval_id!r}")
    approval_id: str

    def __init__(self, *faults: Fault, approval_id: str) -> None:
        super().__init__(*faults, approval_id=approval_id)


# Missing objects.


class NotFound(PerdureError, LookupError):
    """The named object does not exist, or was pruned."""

    CODE = declare("not_found", "{message}")


class JobNotFound(NotFound):
    """No job has this id in this namespace."""

    CODE = declare("job.not_found", "{what} {job_id!r} not found", "It may have been pruned")
    job_id: str
    what: str = "job"


class NoResult(NotFound):
    """There is no stored result: no such job has completed yet, or it was pruned."""

    CODE = declare("job.no_result", "{message}")


class RunNotFound(NotFound):
    """No run has this id in this namespace."""

    CODE = declare("run.not_found", "{what} {run_id!r} not found", "It may have been pruned")
    run_id: str
    what: str = "run"


class ScheduleNotFound(NotFound):
    """No schedule has this name in this namespace."""

    CODE = declare(
        "schedule.not_found",
        "schedule {name!r} not found[; did you mean {nearest:or}?]",
        "To list all schedules",
    )
    name: str
    nearest: tuple[str, ...] = ()

    def actions(self) -> tuple[Action, ...]:
        return (Action("schedules.list"),)


class NodeNotFound(NotFound):
    """The run's flow has no node of this id."""

    CODE = declare(
        "run.node_not_found",
        "run {run_id!r} has no node {node!r}[; did you mean {nearest:or}?][; it has {some}]",
    )
    _derived = ("nearest", "some")
    run_id: str
    node: str
    known: tuple[str, ...] = ()

    @property
    def nearest(self) -> tuple[str, ...]:
        return near(self.node, self.known)

    @property
    def some(self) -> tuple[str, ...]:
        """Some existing nodes, if none is similar."""
        return () if self.nearest else self.known[:12]


class ApprovalNotFound(NotFound):
    """No approval has this id."""

    CODE = declare(
        "approval.not_found",
        "approval {approval_id!r} not found[: {reason}]",
        "To list open approvals",
    )
    approval_id: str
    reason: str = ""

    def __init__(self, *faults: Fault, approval_id: str, reason: str = "") -> None:
        super().__init__(*faults, approval_id=approval_id, reason=reason)

    def actions(self) -> tuple[Action, ...]:
        return (Action("approvals.list"),)


# Conflicts with the state of a job or run. Nothing was changed.


class Conflict(PerdureError):
    """The operation does not apply in the current state. Nothing was changed."""

    CODE = declare("conflict", "{message}")


class FingerprintTaken(Conflict):
    """``on_conflict="fail"``: a live job in the queue already has this fingerprint."""

    CODE = declare(
        "job.fingerprint_taken",
        "job {job_id} in queue {queue!r} is live with fingerprint {fingerprint!r}",
        'Wait for it, or enqueue with `on_conflict` ("use_existing" or "replace")',
    )
    queue: str
    fingerprint: str
    job_id: str


class IllegalTransition(Conflict):
    """The operation does not apply to a job in this status."""

    CODE = declare(
        "job.illegal_transition", "cannot {operation} job {job_id}: it is {status}", "[{advice}]"
    )
    job_id: str
    operation: str
    status: str
    advice: str = ""


class ClaimLost(Conflict):
    """The caller's claim was lost; nothing was written."""

    CODE = declare(
        "job.claim_lost",
        "claim {epoch} on job {job_id} is lost: its lease expired and another worker has the job, "
        "or an operator took it away",
    )
    job_id: str
    epoch: int


class WorkerSuperseded(Conflict):
    """Another worker with the same id was started; this one lost its claims and has stopped."""

    CODE = declare(
        "worker.superseded",
        "worker {worker} was superseded: another worker with the same id was started",
        "Give each running worker its own id",
    )
    worker: str


class JobBelongsToRun(Conflict):
    """A job that executes a node of a run is controlled through the run."""

    CODE = declare(
        "job.belongs_to_run",
        "job {job_id} executes a node of run {run_id!r}",
        "Cancel, pause, resume or retry the run instead",
    )
    job_id: str
    run_id: str


class RunExists(Conflict):
    """Another run, live or finished, has this id."""

    CODE = declare(
        "run.exists",
        "run {run_id!r} exists: flow {flow!r}, {status}",
        'Choose another id, or submit with `on_conflict` ("use_existing" or "replace")',
    )
    run_id: str
    flow: str
    status: str


class RunEnded(Conflict):
    """The run has ended, so the operation no longer applies."""

    CODE = declare("run.ended", "cannot {asked} run {run_id!r}: it is {status}", "To run it again")
    _derived = ("asked",)
    run_id: str
    operation: str
    status: str

    @property
    def asked(self) -> str:
        """The operation in words."""
        return "set the priority of" if self.operation == "set_priority" else self.operation

    def actions(self) -> tuple[Action, ...]:
        fork = Action("runs.fork", {"id": self.run_id}, ("after",))
        if self.status in ("completed", "skipped"):
            return (fork,)
        return (Action("runs.retry", {"id": self.run_id}), fork)


class MailboxFull(Conflict):
    """The run already has the maximum number of unread signals of this name."""

    CODE = declare(
        "run.mailbox_full",
        "run {run_id!r} has as many unread signals {signal!r} as allowed: {most}"
        "[ of {size_bytes} bytes]",
        "Send it again once the run has consumed some. For many small ones, raise "
        "`unread_signals_max`",
    )
    run_id: str
    signal: str
    most: int
    size_bytes: int | None = None


class RunAlreadyPaused(Conflict):
    """The run is already paused; the recorded reason and author do not change."""

    CODE = declare(
        "run.already_paused", "cannot pause run {run_id!r}: it is already paused", "To continue it"
    )
    run_id: str

    def actions(self) -> tuple[Action, ...]:
        return (Action("runs.resume", {"id": self.run_id}),)


class RunNotPaused(Conflict):
    """Only a paused run can be resumed."""

    CODE = declare("run.not_paused", "cannot resume run {run_id!r}: it is {status}, not paused")
    run_id: str
    status: str


class RunNotRetryable(Conflict):
    """The run has neither failed nor been cancelled, or some of it was compensated."""

    CODE = declare("run.not_retryable", "cannot retry run {run_id!r}: {reason}")
    run_id: str
    reason: str


class MigrationRefused(Conflict):
    """The run cannot continue on that version; ``faults`` say why."""

    CODE = declare("run.migration_refused", "cannot migrate run {run_id!r} to {to}")
    run_id: str
    to: str

    def __init__(self, *faults: Fault, run_id: str, to: str) -> None:
        super().__init__(*faults, run_id=run_id, to=to)

    @property
    def differences(self) -> tuple[str, ...]:
        """The faults as text."""
        return tuple(fault_text(each) for each in self.faults)


class ScheduleUnreadable(Conflict):
    """A newer version of Perdure wrote the schedule; workers of that version serve it."""

    CODE = declare(
        "schedule.unreadable",
        "schedule {name!r} cannot be read here: {reason}",
        "A newer version of Perdure wrote it: upgrade this process, or delete and recreate it",
    )
    name: str
    reason: str


class ScheduleAlreadyPaused(Conflict):
    """The schedule is already paused; the recorded time and author do not change."""

    CODE = declare(
        "schedule.already_paused",
        "cannot pause schedule {name!r}: it was already paused[ by {paused_by!r}] at {paused_at}",
        "To continue it",
    )
    name: str
    paused_at: datetime
    paused_by: str | None = None

    def actions(self) -> tuple[Action, ...]:
        return (Action("schedules.resume", {"name": self.name}),)


class ScheduleNotPaused(Conflict):
    """Only a paused schedule can be resumed."""

    CODE = declare("schedule.not_paused", "cannot resume schedule {name!r}: it is not paused")
    name: str


class QueueAlreadyPaused(Conflict):
    """The queue is already paused; the recorded time and author do not change."""

    CODE = declare(
        "queue.already_paused",
        "cannot pause queue {name!r}: it was already paused[ by {paused_by!r}] at {paused_at}",
        "To continue it",
    )
    name: str
    paused_at: datetime
    paused_by: str | None = None

    def actions(self) -> tuple[Action, ...]:
        return (Action("queues.resume", {"name": self.name}),)


class QueueNotPaused(Conflict):
    """Only a paused queue can be resumed."""

    CODE = declare("queue.not_paused", "cannot resume queue {name!r}: it is not paused")
    name: str


class NodeNotWaiting(Conflict):
    """The node is not waiting for a report."""

    CODE = declare(
        "run.node_not_waiting",
        "node {node!r} of run {run_id!r} is not waiting for a report: it is {status}",
        "Only a node whose body runs or has paused accepts reports",
    )
    run_id: str
    node: str
    status: str


class ApprovalDecided(Conflict):
    """The approval is decided, expired, or its run has ended."""

    CODE = declare(
        "approval.decided", "approval {approval_id!r} is closed: {outcome}", "To see its answers"
    )
    approval_id: str
    outcome: str

    def actions(self) -> tuple[Action, ...]:
        return (Action("approvals.get", {"id": self.approval_id}),)


class AlreadyAnswered(Conflict):
    """Each decider answers once."""

    CODE = declare(
        "approval.already_answered",
        "{by!r} has already answered approval {approval_id!r}: {decision}",
        "It is waiting for other deciders",
    )
    approval_id: str
    by: str | None
    decision: str


class ApprovalChanged(Conflict):
    """Another decider has changed the data; ``data`` is how it is now, in ``revision``."""

    CODE = declare(
        "approval.changed",
        "the data of approval {approval_id!r} was changed by an earlier answer: it is at revision "
        "{revision}[, not {expected}]",
        "Review the data as it is now, and decide with its `revision`",
    )
    approval_id: str
    revision: int
    expected: int | None
    data: Any

    def actions(self) -> tuple[Action, ...]:
        return (Action("approvals.get", {"id": self.approval_id}),)


class NotAllowed(PerdureError):
    """The caller may not do this. Nothing was changed."""

    CODE = declare("not_allowed", "{message}")


class NotDecider(NotAllowed):
    """The caller is not one of the deciders."""

    CODE = declare(
        "approval.not_decider",
        "{who} may not decide on approval {approval_id!r}; its deciders are {deciders}",
        "Name who decides with `by`, and in which roles with `roles`",
    )
    _derived = ("who",)
    approval_id: str
    by: str | None
    deciders: tuple[str, ...]

    @property
    def who(self) -> str:
        return "an unnamed caller" if self.by is None else repr(self.by)


# Awaited work that ended without a result.


class _Unsuccessful(PerdureError):
    """Awaited work that ended without a result; the worker's traceback becomes a note."""

    CODE = declare("unsuccessful", "{message}")
    failure: Failure | None = None

    def __init__(self, *details: Fault | str, **fields: Any) -> None:
        super().__init__(*details, **fields)
        if self.failure is not None and self.failure.traceback:
            self.add_note(f"On the worker:\n{self.failure.traceback}")


class JobUnsuccessful(_Unsuccessful):
    """The awaited job ended without a result. ``failure`` describes its last attempt."""

    CODE = declare("job.unsuccessful", "job {job_id} ended without a result[: {reason}]")
    job_id: str
    reason: str = ""


class JobFailed(JobUnsuccessful):
    """The job failed with an error that its retry policy does not retry."""

    CODE = declare("job.failed", "job {job_id} failed[: {reason}]")


class JobDead(JobFailed):
    """The job is a dead letter: its retries are used up, or it crashed its workers."""

    CODE = declare("job.dead", "job {job_id} is dead after attempt {attempt}[: {reason}]")
    attempt: int = 0


class JobCancelled(JobUnsuccessful):
    """The job was cancelled, or replaced by another job with the same fingerprint."""

    CODE = declare("job.cancelled", "job {job_id} was cancelled[: {reason}]")


class JobDisabled(JobUnsuccessful):
    """An operator disabled the job."""

    CODE = declare("job.disabled", "job {job_id} is disabled", "Enable it")

    def actions(self) -> tuple[Action, ...]:
        return (Action("jobs.enable", {"id": self.job_id}),)


class ResultTimeout(PerdureError, TimeoutError):
    """The job has no result when the timeout of ``result()`` expires."""

    CODE = declare(
        "job.result_timeout", "job {job_id} has no result after {timeout}s; it is {status}"
    )
    job_id: str
    timeout: float
    status: str


class RunUnsuccessful(_Unsuccessful):
    """The awaited run ended without a result."""

    CODE = declare("run.unsuccessful", "run {run_id!r} ended without a result[: {reason}]")
    run_id: str
    node: str = ""
    reason: str = ""


class RunFailed(RunUnsuccessful):
    """A node failed permanently; ``node`` says which and ``failure`` why."""

    CODE = declare("run.failed", "run {run_id!r} failed[ at node {node!r}][: {reason}]")


class RunCancelled(RunUnsuccessful):
    """The run was cancelled or replaced."""

    CODE = declare("run.cancelled", "run {run_id!r} was cancelled[ by {by!r}][: {reason}]")
    by: str | None = None


class RunSkipped(RunUnsuccessful):
    """The run never started, because its flow was cooling down; ``reason`` says until when."""

    CODE = declare("run.skipped", "run {run_id!r} was skipped[: {reason}]")


class RunTimeout(PerdureError, TimeoutError):
    """The run has no result when the timeout of ``result()`` expires."""

    CODE = declare(
        "run.result_timeout", "run {run_id!r} has no result after {timeout}s; it is {status}"
    )
    run_id: str
    timeout: float
    status: str


class RunStuck(PerdureError):
    """``run_flow`` and the testing kit: the run waits for something that was not passed."""

    CODE = declare("run.stuck", "{message}")


# The testing kit.


class NotFaked(PerdureError):
    """``Kit(fakes_only=True)``: a task without a fake was called."""

    CODE = declare(
        "testing.not_faked",
        "task {task!r}[ at node {key!r}] was called and has no fake",
        "Add one: kit.fake({name!r}, ...)",
    )
    _derived = ("name",)
    task: str
    key: str | None = None

    @property
    def name(self) -> str:
        return self.key or self.task


class NotSettled(PerdureError, TimeoutError):
    """The testing kit: a task was still executing at the kit's timeout."""

    CODE = declare(
        "testing.not_settled",
        "still executing after {timeout} of real time: {running}",
        "Fake slow tasks, or increase Kit(timeout=...)",
    )
    running: str
    timeout: timedelta


# Errors of engine decisions.


class EventLogCorrupt(PerdureError):
    """The events of a run are corrupt; the run is not executed until it is repaired."""

    CODE = declare("run.log_corrupt", "the event log of run {run_id!r} is corrupt: {reason}")
    run_id: str
    reason: str


class DefinitionCorrupt(PerdureError):
    """A stored definition does not match its version; its runs are not executed."""

    CODE = declare(
        "flow.definition_corrupt",
        "the stored definition of {flow} is corrupt: its content has version {found}",
        "Restore it from a backup",
    )
    flow: str
    found: str


class UnknownEvent(PerdureError):
    """A newer version wrote this event, which must not be skipped."""

    CODE = declare(
        "run.unknown_event",
        "event {number} of run {run_id!r} is a {type!r}, which this version does not know",
        "Upgrade this process",
    )
    run_id: str
    number: int
    type: str


class ValueMissing(PerdureError):
    """A decision needs the values of these events, which must be loaded first."""

    CODE = declare("engine.value_missing", "the values of events {numbers} are not loaded")
    numbers: tuple[int, ...]


class LongEvaluation(PerdureError):
    """A decision takes too long for the event loop; it must be made in a thread."""

    CODE = declare("engine.long_evaluation", "evaluating a condition blocks the event loop")


# Store errors.


class StoreError(PerdureError):
    """The store cannot be used as asked."""

    CODE = declare("store.error", "{message}")


class InvalidStoreUrl(StoreError, InvalidInput):
    """The store URL is invalid."""

    CODE = declare(
        "store.invalid_url",
        "store URL {url!r} cannot be used: {reason}",
        "Use memory://name, sqlite:///path.db or postgresql://user@host/database",
    )
    url: str
    reason: str

    def __init__(self, *, url: str, reason: str) -> None:
        super().__init__(url=without_password(url), reason=reason)


class StoreUnreachable(StoreError, ConnectionError):
    """The server is not responding, or refuses the connection."""

    CODE = declare("store.unreachable", "cannot open the store at {url}: {reason}", "{advice}")
    url: str
    reason: str
    advice: str = "Is the server running, and are host, port, database and password right?"

    def __init__(self, *, url: str, reason: str, advice: str = advice) -> None:
        super().__init__(url=without_password(url), reason=reason, advice=advice)


class SchemaMismatch(StoreError):
    """The existing tables belong to a newer version of Perdure, or to another program."""

    CODE = declare("store.schema_mismatch", "{message}")


class ContractMismatch(StoreError):
    """The store was written for another version of the store contract."""

    CODE = declare(
        "store.contract_mismatch",
        "the store at {url} does not support store contract {expected}[, only {stated}]",
        "Install the release of its package that supports this version of Perdure",
    )
    url: str
    expected: int
    stated: int | None = None

    def __init__(self, *, url: str, expected: int, stated: int | None) -> None:
        super().__init__(url=without_password(url), expected=expected, stated=stated)


# Exports and imports. Nothing was written.


class StoreInUse(Conflict):
    """The store to export has active workers."""

    CODE = declare(
        "store.in_use",
        "the store at {url} is in use: {reason}",
        "Stop its workers, or export with `live` for a copy as of now, without their later writes",
    )
    url: str
    reason: str

    def __init__(self, *, url: str, reason: str) -> None:
        super().__init__(url=without_password(url), reason=reason)


class StoreNotEmpty(Conflict):
    """An import needs an empty store."""

    CODE = declare(
        "store.not_empty",
        "the store at {url} is not empty: it has {tables:and}",
        "Import into a new database, or a new ?schema=... on PostgreSQL or ?prefix=... on SQLite",
    )
    url: str
    tables: list[str]

    def __init__(self, *, url: str, tables: list[str]) -> None:
        super().__init__(url=without_password(url), tables=tables)


class InvalidExport(PerdureError):
    """A file is not a complete export that this version can read."""

    CODE = declare("store.invalid_export", "{path} cannot be imported: {reason}", "{advice}")
    path: str
    reason: str
    advice: str = "Export the store again"


class EventsGap(Conflict):
    """Events after this cursor were pruned before they were read."""

    CODE = declare(
        "events.gap",
        "events up to {pruned_until} were pruned; this cursor is from {cursor_at}",
        "List the existing jobs and runs, then start a new stream; retain jobs and runs for longer "
        "than a subscriber may be offline",
    )
    cursor_at: datetime
    pruned_until: datetime


class TooManySubscribers(Conflict):
    """The namespace already has the maximum number of subscribers to live events."""

    CODE = declare(
        "events.too_many_subscribers",
        "namespace {namespace!r} already has {most} subscribers to live events, the most allowed",
        "Share one subscription within a process",
    )
    namespace: str
    most: int


# Raised by tasks to control retries, and failures of attempts and nodes.


class TaskError(PerdureError):
    """The base class of failures of attempts and nodes."""

    CODE = declare("task.error", "{message}")


class Permanent(TaskError):
    """Raise in a task to fail the job without retries, regardless of its policy."""

    CODE = declare("task.permanent", "{message}")


class MissingSecret(Permanent):
    """The worker has no secret of this name. Retrying would not help."""

    CODE = declare("task.missing_secret", "secret {name!r} not found; {advice}")
    name: str
    advice: str


class SecretNotGranted(Permanent):
    """A flow that was loaded as data uses a secret that the worker does not grant."""

    CODE = declare(
        "task.secret_not_granted",
        "node {node!r} of flow {flow!r}, which was loaded as data, may not use secret {name!r}"
        "[ in a request to {destination}]",
        "If intended, grant it on the worker: Grant({name!r}, flows=[{flow!r}], {target}), or "
        "--grant {flag}",
    )
    name: str
    flow: str
    node: str
    destination: str
    target: str
    flag: str


class CheckFailed(TaskError):
    """The output of a node violates its check or schema; ``faults`` say why."""

    CODE = declare("node.check_failed", "node {node!r}: the output does not satisfy its {what}")
    node: str
    what: str

    def __init__(self, *faults: Fault, node: str, what: str) -> None:
        super().__init__(*faults, node=node, what=what)


class LoopExhausted(TaskError):
    """A loop was not done after its last iteration."""

    CODE = declare("node.loop_exhausted", "{message}")


class WaitTimedOut(TaskError, TimeoutError):
    """No signal, answer or report arrived in time."""

    CODE = declare("node.wait_timed_out", "{message}")


class ExternalFailed(TaskError):
    """External work was reported as failed; with retries left, its node starts it again."""

    CODE = declare("node.external_failed", "{message}")


class Rejected(TaskError):
    """An approval was rejected, and its node has no ``on_reject``."""

    CODE = declare("node.rejected", "{message}")


class Aborted(TaskError):
    """Raised by ``ctx.check()`` once the job is cancelled or its claim is lost."""

    CODE = declare("attempt.aborted", "{message}")


class AttemptTimeout(TaskError, TimeoutError):
    """One attempt ran longer than the task's ``timeout``."""

    CODE = declare("attempt.timeout", "{message}")


class DeadlineExceeded(TaskError, TimeoutError):
    """The job's ``deadline`` passed before it completed."""

    CODE = declare("attempt.deadline_exceeded", "{message}")


class WorkerCrashed(TaskError):
    """The lease expired with the job unfinished: its worker was killed or disconnected."""

    CODE = declare("attempt.worker_crashed", "{message}")


class ProcessCrashed(TaskError):
    """The child process of a task with ``isolation="process"`` ended without a result."""

    CODE = declare("attempt.process_crashed", "{message}")


class RetryLater(TaskError):
    """Raise in a task to run the job again at ``until`` (timezone-aware) or ``after`` a duration.

    It counts against the job's ``retries`` or ``max_attempts``; without either, a job may raise it
    ``max_snoozes`` times. ``limit`` names a limit to delay until then on every worker, for example
    after an HTTP 429.
    """

    CODE = declare("task.retry_later", "{message}")

    def __init__(
        self,
        message: str = "not now",
        *,
        until: datetime | None = None,
        after: str | float | timedelta | None = None,
        limit: str | None = None,
    ) -> None:
        from perdure.model import check  # imports this module

        super().__init__(message)
        check.at_most_one(until=until, after=after)
        self.until = None if until is None else check.moment(until, "until")
        self.after = None if after is None else check.span(after, "after")
        self.limit = None if limit is None else check.name(limit, "limit")


_SECRET_OPTION = re.compile("pass(?!file)|pwd|secret|token|(?<!ssl)key", re.IGNORECASE)


def without_password(url: str) -> str:
    """Mask everything between the user name and the last @, and values of options like a password.

    Malformed URLs may have passwords too. Without ``//``, a scheme looks like a user name, so
    everything after the first colon is masked.
    """
    login, at, server = url.rpartition("@")
    scheme = re.match(r"[^:/?#]*:?//+|", login)
    start = scheme.end() if scheme else 0
    colon = re.compile(":|%3a", re.IGNORECASE).search(login, start)
    if at and colon:
        url = f"{login[: colon.start()]}:***@{server}"
    elif not at:
        url = re.sub(r"^([^:/?#]*://[^/?#:]*):(?!\d*(?:[/?#,]|$))[^?#]*", r"\1:***", url)
        url = re.sub(r"^([^:/?#]*):(?!//)[^:]*:.*", r"\1:***", url, flags=re.DOTALL)
    parts = re.split(r"([?&\s])", url)
    for place, part in enumerate(parts):
        name, equals, value = part.partition("=")
        is_secret = place and _SECRET_OPTION.search(unquote(name))
        if equals and (is_secret or "password" in unquote(part).lower()):
            parts[place] = f"{name}=***"
            if value[:1] in ("'", '"'):  # quotes may contain separators
                del parts[place + 1 :]
                break
    return "".join(parts)
