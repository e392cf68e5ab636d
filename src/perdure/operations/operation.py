"""Operations: one declaration per operation, one name on every interface.

``runs.cancel`` is ``client.runs.cancel(id)`` in Python, ``perdure runs cancel ID`` on the command
line, ``POST /runs/{id}/cancel`` over HTTP, the MCP tool ``runs_cancel`` and ``runs.cancel`` in the
audit trail. The typed method of a group is the declaration: parameters, result and summary come
from its signature and docstring.

A method that encodes values is not an ``async def`` but a function that encodes them and returns a
coroutine for the rest. Encoding runs the caller's code, so it must happen on the caller's thread;
the sync facade runs only the coroutine on its own thread.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from perdure.flows.built import BuiltFlow
from perdure.operations.backend import Backend
from perdure.tasks.task import Task

F = TypeVar("F", bound=Callable[..., Any])


class Role(StrEnum):
    """A permission level, granted to a principal per namespace."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    DECIDER = "decider"
    OPERATOR = "operator"
    ADMIN = "admin"


PRINCIPAL = frozenset({"by", "roles"})
"""Parameters that identify the caller. JSON arguments cannot set them: an interface that
authenticates its callers fills them in. A client that opens the store itself may set them
freely."""

RoleByValue = Mapping[str, Mapping[str, Role]]


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    method: Callable[..., Any]
    role: Role
    writes: bool = False
    one_namespace: bool = False
    """Needs a single namespace; a client with ``namespace='*'`` is refused."""
    streams: bool = False
    """Yields results until its subject has finished, instead of returning one."""
    role_by_value: RoleByValue = field(default_factory=dict)
    """Values of arguments that need another role: ``{"on_conflict": {"replace": OPERATOR}}``.
    ``options.on_conflict`` is an entry of the argument ``options``."""

    def role_of(self, arguments: Mapping[str, Any]) -> Role:
        """The role that a call with these JSON arguments needs.

        Omitted arguments count as their defaults, so a client that serves other principals must
        not override ``on_conflict``.
        """
        for path, roles in self.role_by_value.items():
            value: Any = arguments
            for name in path.split("."):
                value = value.get(name) if isinstance(value, Mapping) else None
            if isinstance(value, str) and value in roles:
                return roles[value]
        return self.role

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]

    @property
    def verb(self) -> str:
        return self.name.partition(".")[2]

    @property
    def summary(self) -> str:
        """The first docstring line, shown by ``--help``, OpenAPI and MCP."""
        return (inspect.getdoc(self.method) or "").partition("\n")[0]

    @property
    def description(self) -> str:
        return inspect.getdoc(self.method) or ""

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """By name, in order. Parameters that are not keyword-only are positional on the command
        line."""
        [_, *own] = inspect.signature(self.method).parameters.items()
        return dict(own)

    @property
    def positional(self) -> tuple[str, ...]:
        return tuple(
            name
            for name, each in self.parameters.items()
            if each.kind is not inspect.Parameter.KEYWORD_ONLY
        )

    @property
    def types(self) -> Mapping[str, Any]:
        """The JSON type of each parameter: tasks and flows by name, durations as text or
        seconds."""
        hints = _hints(self.method)
        return {name: _wire_type(hints[name]) for name in self.parameters}

    @property
    def principal(self) -> tuple[str, ...]:
        """The parameters that identify the caller."""
        return tuple(name for name in self.parameters if name in PRINCIPAL)

    def arguments(self) -> type[msgspec.Struct]:
        """Return a struct type that JSON arguments decode into; unknown names are refused.

        So are parameters that identify the caller: a request cannot set them.
        """
        fields: list[Any] = []
        for name, parameter in self.parameters.items():
            if name in PRINCIPAL:
                continue
            wire = self.types[name]
            if parameter.default is inspect.Parameter.empty:
                fields.append((name, wire))
            else:
                fields.append((name, wire, parameter.default))
        return msgspec.defstruct(
            self.name.replace(".", "_"), fields, kw_only=True, forbid_unknown_fields=True
        )

    @property
    def result(self) -> Any:
        """The type of the result, or of each item of a stream."""
        found = _hints(self.method)["return"]
        if get_origin(found) is Coroutine:
            return get_args(found)[2]
        return get_args(found)[0] if self.streams else found

    @property
    def route(self) -> str:
        """``POST /runs/{id}/cancel``: the id or name of one thing is a segment of the path.

        That segment is percent-encoded, since ids of child runs contain ``/``. Operations on a
        whole group follow a colon, ``GET /runs:count``, so that no id is mistaken for one.
        """
        subject = next(iter(self.parameters), "")
        path = f"/{self.group}"
        if subject in ("id", "name"):
            path += f"/{{{subject}}}" + (f"/{self.verb}" if self.verb != "get" else "")
        elif self.verb != "list":
            path += f":{self.verb}"
        return f"{'POST' if self.writes else 'GET'} {path}"

    @property
    def tool(self) -> str:
        """The name of the MCP tool."""
        return self.name.replace(".", "_")


class Group:
    """The operations on one resource, such as ``client.runs``. Stateless."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend


def operation(
    name: str,
    *,
    role: Role,
    writes: bool = False,
    one_namespace: bool = False,
    streams: bool = False,
    role_by_value: RoleByValue | None = None,
) -> Callable[[F], F]:
    """Declare a method of a group as an operation."""

    def declare_it(method: F) -> F:
        declared = Operation(
            name, method, role, writes, one_namespace, streams, role_by_value or {}
        )
        if not one_namespace:
            method.operation = declared  # type: ignore[attr-defined]
            return method

        # A plain forwarding function, because every enqueue goes through it.
        @functools.wraps(method)
        def call(group: Group, /, *args: Any, **kwargs: Any) -> Any:
            group._backend.require_namespace(name)
            return method(group, *args, **kwargs)

        call.operation = declared  # type: ignore[attr-defined]
        return cast(F, call)

    return declare_it


def operations_of(groups: Iterable[type[Group]]) -> Mapping[str, Operation]:
    """Return the operations of these groups by name, in the order of their declaration."""
    return {
        each.operation.name: each.operation
        for group in groups
        for each in vars(group).values()
        if hasattr(each, "operation")
    }


@functools.cache
def _hints(method: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(method)


def _wire_type(hint: Any) -> Any:
    """The JSON form of a parameter's type: tasks and flows are names there."""
    origin, members = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        found = {_wire_type(each): None for each in members}
        if str in found:  # JSON has durations and times as text
            found = {each: None for each in found if each not in (timedelta, datetime)}
        return functools.reduce(operator.or_, found)
    if origin in (Iterable, Sequence):
        return Sequence[_wire_type(members[0])]  # type: ignore[misc]
    if is_typeddict(hint) or origin is Mapping:
        return dict[str, Any]
    if hint is BuiltFlow or origin is Task:
        return str
    return hint


PARAMETERS: Mapping[str, str] = {
    "after": "Node id or event number after which the fork starts",
    "args": "Positional arguments of the task",
    "at": "Time of the report; without a key, the same time counts once",
    "by": "Name to record in the history",
    "catch_up": "Which missed ticks to start",
    "compensate": "Undo completed nodes first, in reverse order",
    "cron": "Cron expression",
    "cursor": "Cursor at the end of the previous page",
    "data": "Values for an approval's form, or for a parked job",
    "deciders": "Only for this user, or role as role:NAME",
    "decision": "The decision, such as approve or reject",
    "default": "What to return if there is no result",
    "end_at": "No ticks after this time",
    "error": "The error, with status failed",
    "every": "Interval between ticks",
    "flow": "Only of this flow",
    "flows": "Flows that workers have",
    "group": "Only of this group",
    "id": "Id of the job, run or approval",
    "include_answered": "Include approvals that the named users answered",
    "input": "Input of the flow",
    "inputs": "One input per job; a list holds several arguments",
    "key": "Key of the report; reports with the same key count once",
    "kwargs": "Arguments of the task by name",
    "limit": "Results per page",
    "name": "Name of the queue, schedule or signal",
    "new_id": "Id of the new run",
    "node": "Id of a node; poll#2 or pack[7] for one part of it",
    "note": "Note to store with the decision",
    "older_than": "Only jobs and runs that finished longer ago than this",
    "on_conflict": "If the id is taken",
    "options": "How the job is queued",
    "overlap": "If the last tick is still running",
    "patch": "New outputs of completed nodes, by node id",
    "paused": "Save the schedule paused",
    "priority": "From 1 or critical, the most urgent, to 5 or minimal",
    "payload": "Payload of the signal",
    "port": "The port that the node completes on",
    "progress": "Progress so far; later attempts can read it",
    "queue": "Only of this queue",
    "reason": "Reason to record in the history",
    "result": "The result, with status completed",
    "revision": "Revision of the data that was reviewed",
    "roles": "Role of the decider",
    "run": "Only of this run",
    "signal": "Name of the signal",
    "start_at": "No ticks before this time",
    "status": "Only with this status",
    "target": "Name of the flow or task to start",
    "task": "Only of this task",
    "timezone": "Time zone of the cron expression",
    "to": "Flow in the version to migrate to",
    "type": "Only waits of this type",
    "types": "Only events of these types, such as job.failed",
}
"""The description of each parameter, for ``--help``, OpenAPI and MCP."""

PARAMETERS_OF: Mapping[str, str] = {
    "events.stream.after": "Cursor of the last event that was handled",
    "jobs.id": "Id of the job",
    "runs.id": "Id of the run",
    "approvals.id": "RUN:NODE",
    "queues.name": "Name of the queue",
    "schedules.name": "Name of the schedule",
    "runs.name": "Name of the signal",
    "jobs.enqueue.task": "Name of the task",
    "jobs.enqueue_many.task": "Name of the task",
    "jobs.find_result.task": "Name of the task",
    "jobs.cancel_group.group": "Name of the group",
    "runs.submit.flow": "Name of the flow",
    "runs.submit.options": "Priority, delay or time, queue, tags, timeout or deadline, attempts",
    "runs.submit.id": "Id of the run; generated by default",
    "runs.fork.new_id": "Id of the new run; generated by default",
    "runs.report.status": "Status of the external work",
    "schedules.save.options": "Options of each job or run: queue, priority, timeout, tags, ...",
    "waits.list.name": "Only for this signal, child run or pause",
}
"""Descriptions for one group or operation, where the general one does not fit."""


def parameter_help(operation: Operation, parameter: str) -> str:
    for name in (f"{operation.name}.{parameter}", f"{operation.group}.{parameter}"):
        if name in PARAMETERS_OF:
            return PARAMETERS_OF[name]
    return PARAMETERS[parameter]
