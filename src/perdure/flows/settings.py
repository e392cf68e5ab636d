"""Settings of runs as options: ``Flow("orders", timeout="1h")``, ``submit(flow, priority=1)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.expr.template import input_scope, render_text, template_faults
from perdure.flows.built import BuiltFlow
from perdure.model import check
from perdure.model.graph import FlowRef
from perdure.model.job import Priority
from perdure.model.limit import Concurrency
from perdure.model.retry import RETRIES_MAX
from perdure.model.settings import NO_SETTINGS, RunSettings, encode_settings
from perdure.model.times import Duration
from perdure.tasks.options import check_option_names

RUNNING_MAX = 1_000_000
CHILDREN_MAX_BYTES = 1024 * 1024
_ENTRY_BYTES = len('"":{"children":{}},')

CHILDREN_TOO_LARGE = declare(
    "flow.child_settings_too_large",
    "the settings of the child runs of flow {flow!r} exceed {most} bytes, because its child flows "
    "multiply",
    "Nest fewer child flows, or give them no settings of their own",
)


class ConcurrencyOptions(TypedDict, total=False):
    """A ``Concurrency`` as plain data."""

    count: int
    key: str


class FlowOptions(TypedDict, total=False):
    """Defaults of a flow for its runs. They are not part of its version."""

    priority: Priority | None
    queue: str | None
    tags: Sequence[str] | None
    timeout: Duration | None
    timeout_counts_waiting: bool | None
    max_attempts: int | None
    max_running: int | Concurrency | None
    sticky: Duration | None


class StartOptions(TypedDict, total=False):
    """Options of a run, except its timeout."""

    priority: Priority | None
    queue: str | None
    tags: Sequence[str] | None
    delay: Duration | None
    run_at: datetime | None
    deadline: datetime | None
    timeout_counts_waiting: bool | None
    max_attempts: int | None
    max_running: int | Concurrency | None
    sticky: Duration | None


class RunOptions(StartOptions, total=False):
    """Options of a run; they override the defaults of its flow."""

    timeout: Duration | None


def run_settings(
    options: Mapping[str, Any], known: Any = RunOptions, defaults: RunSettings = NO_SETTINGS
) -> RunSettings:
    """Check options, and apply them to the defaults of a flow."""
    check_option_names(options, known)
    given = {name: value for name, value in options.items() if value is not None}
    counts_waiting = check.optional(
        check.flag, given.get("timeout_counts_waiting"), "timeout_counts_waiting"
    )
    check.at_most_one(delay=given.get("delay"), run_at=given.get("run_at"))
    check.at_most_one(timeout=given.get("timeout"), deadline=given.get("deadline"))
    check.at_most_one(
        deadline=given.get("deadline"),
        timeout_counts_waiting=None if counts_waiting is not False else False,
    )
    changes: dict[str, Any] = {}
    if "priority" in given:
        changes["priority"] = check.priority(given["priority"])
    if "queue" in given:
        changes["queue"] = check.name(given["queue"], "queue")
    if "tags" in given:
        changes["tags"] = check.tags(given["tags"])
    if "delay" in given and (delay := check.span(given["delay"], "delay")):
        changes["delay_ms"] = _milliseconds(delay)
    if "run_at" in given:
        changes["run_at"] = check.moment(given["run_at"], "run_at")
    if "timeout" in given:
        timeout = check.span(given["timeout"], "timeout", is_positive=True)
        changes["timeout_ms"] = _milliseconds(timeout)
    if counts_waiting is not None:
        changes["timeout_counts_waiting"] = counts_waiting
    if "deadline" in given:  # instead of the timeout of the flow
        deadline = check.moment(given["deadline"], "deadline")
        changes |= {"deadline": deadline, "timeout_ms": None, "timeout_counts_waiting": True}
    if "max_attempts" in given:
        most = check.integer(given["max_attempts"], "max_attempts", 1, RETRIES_MAX)
        changes["max_attempts"] = most
    if "max_running" in given:
        changes |= _places(given["max_running"])
    if "sticky" in given:
        sticky = check.span(given["sticky"], "sticky", is_positive=True)
        changes["sticky_ms"] = _milliseconds(sticky)
    return replace(defaults, **changes) if changes else defaults


def child_settings(values: Mapping[str, Any]) -> RunSettings:
    """What the options of a node set for its child runs."""
    delay: timedelta | None = values["delay"]
    timeout: timedelta | None = values["timeout"]
    return RunSettings(
        priority=values["priority"],
        queue=values["queue"],
        tags=values["tags"] or (),
        delay_ms=_milliseconds(delay) if delay else None,
        timeout_ms=None if timeout is None else _milliseconds(timeout),
    )


def _places(given: Any) -> dict[str, Any]:
    """How many runs at once; a number alone keeps the key of the flow."""
    if isinstance(given, Mapping):  # in YAML
        check_option_names(given, ConcurrencyOptions)
        given = Concurrency(**{"count": None, **given})
    if not isinstance(given, Concurrency):
        return {"max_running": check.integer(given, "max_running", 1, RUNNING_MAX)}
    key = "" if given.key is None else given.key
    if not isinstance(key, str) or given.queue is not None or given.task is not None:
        raise check.wrong_type(given, "max_running", "a Concurrency whose key is a template")
    if faults := template_faults(key):
        raise InvalidInput(*(fault.under("max_running", "key") for fault in faults))
    count = check.integer(given.count, "max_running", 1, RUNNING_MAX)
    return {"max_running": count, "running_key": key}


def settings_of(flow: BuiltFlow, options: Mapping[str, Any], input: Any) -> RunSettings:
    """The settings of a run with this input, with those of the child runs that it may start."""
    settings = run_settings(options, defaults=flow.settings)
    if settings.max_running is not None and settings.running_key:
        key = render_text(settings.running_key, input_scope(input))
        settings = replace(settings, running_key=check.name(key, "max_running", label="key"))
    children, size = _of_children(flow, {})
    if size > CHILDREN_MAX_BYTES:
        raise InvalidInput(CHILDREN_TOO_LARGE.fault(flow=flow.name, most=CHILDREN_MAX_BYTES))
    return replace(settings, children=children)


Known = dict[BuiltFlow, tuple[dict[str, RunSettings], int]]


def _of_children(flow: BuiltFlow, known: Known) -> tuple[dict[str, RunSettings], int]:
    """By node, where they are not the defaults: those of the node, else of the child flow.

    A child run has the priority of its parent, unless the node says otherwise. It needs no place:
    a parent that waits for a run of its own flow would deadlock. The second value is their stored
    size: child flows multiply, so each is visited once, and has shared settings until then.
    """
    if flow in known:
        return known[flow]
    found: dict[str, RunSettings] = {}
    size = 0
    for node in flow.graph.nodes.values():
        body = getattr(node, "body", None)
        if isinstance(body, FlowRef):
            child, given = flow.flows[body.text], flow.settings.children.get(node.id, NO_SETTINGS)
            below, size_below = _of_children(child, known)
            own = replace(
                child.settings,
                priority=given.priority,
                queue=given.queue or child.settings.queue,
                tags=given.tags or child.settings.tags,
                delay_ms=given.delay_ms,
                timeout_ms=given.timeout_ms or child.settings.timeout_ms,
                max_running=None,
                running_key="",
                children={},
            )
            if below or own != NO_SETTINGS:
                size += len(encode_settings(own) or b"") + len(node.id) + _ENTRY_BYTES + size_below
                found[node.id] = replace(own, children=below)
    known[flow] = found, size
    return found, size


def _milliseconds(span: timedelta) -> int:
    return max(1, round(span / timedelta(milliseconds=1)))
