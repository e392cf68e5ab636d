"""What the calls of the flow builder may be told besides what they must."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from perdure.model.graph import JsonSchema, OnMissing
from perdure.model.retry import Retry
from perdure.model.times import Duration
from perdure.tasks.task import Task

AnyTask = Task[..., Any]
Function = Callable[..., Any]

Source = str | Mapping[str, Any]
"""Where an input is from: ``"load.output.total"``, ``"input.customer"``, ``"secret.KEY"``; or
``{"from": ..., "default": ...}``."""

Policy = str | int | Mapping[str, int]
"""How many must agree: ``"any"``, ``"all"``, or a number, also as ``{"at_least": number}``."""


class CallSettings(TypedDict, total=False):
    """What a node changes of the settings of the task that it calls; None leaves them."""

    retries: Retry | int | None
    timeout: Duration | None
    queue: str | None
    priority: int | None
    tags: Sequence[str] | None


class InputOptions(TypedDict, total=False):
    inputs: Mapping[str, Source] | None
    """What the node takes, by name; without, it takes what comes before it."""
    on_missing: OnMissing
    """``"error"``, ``"default"`` or ``"skip"``: where an input, or what a template names, is not
    there."""


class RouteOptions(CallSettings, total=False):
    on_error: str
    """``"fail"``, or the port to go on from with the error."""


class NodeOptions(CallSettings, InputOptions, total=False):
    on_error: str
    """``"fail"``, ``"continue"`` with null, or the port to go on from with the error."""
    undo: AnyTask | Function | None
    """Called with the node's output when a run that failed or was cancelled is undone."""


class KindOptions(NodeOptions, total=False):
    ports: Sequence[str]
    """The ports that a result may choose, besides those of the kind and the ordinary one."""
    on_timeout: str
    """What follows when a pause comes to its deadline: as ``on_error``."""
    input_schema: JsonSchema | None
    output_schema: JsonSchema | None
    check: Mapping[str, Any] | None
    """``{"schema": ...}`` or ``{"condition": ...}`` that the output must satisfy; with
    ``"advisory": True`` it is only noted."""


class TaskOptions(KindOptions, total=False):
    config: Mapping[str, Any] | None
    """The arguments of the task by name: templates over the inputs."""


class ApprovalOptions(InputOptions, total=False):
    message: str
    form: JsonSchema | None
    show: Sequence[str] | None
    """The inputs that deciders see; else all."""
    data: Any
    """A template of what an answer may change; else the node's input."""
    deciders: Sequence[str]
    policy: Policy
    answers: Sequence[str] | None
    deadline: Duration | None
    on_timeout: str | Mapping[str, Any]
    """``"fail"``, ``"continue"``, a port, or the answer that counts then:
    ``{"decision": ..., "data": ...}``."""
    on_reject: str
    """``"fail"``, ``"continue"`` or a port."""
    reminders: Sequence[Duration]
    escalate: Mapping[Duration, Sequence[str]] | Sequence[tuple[Duration, Sequence[str]]]
    notify: AnyTask | Function | None


CALL_SETTINGS = frozenset(CallSettings.__optional_keys__)
TASK_SETTINGS = frozenset(TaskOptions.__optional_keys__) - NodeOptions.__optional_keys__
"""What tasks and kinds can be told, and nothing else that is called."""
