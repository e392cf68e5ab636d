"""Settings of runs as options: ``Flow("orders", timeout="1h")``, ``submit(flow, priority=1)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from msgspec.structs import replace

from perdure.flows.built import BuiltFlow
from perdure.model import check
from perdure.model.graph import FlowRef
from perdure.model.job import Priority
from perdure.model.retry import RETRIES_MAX
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.model.times import Duration
from perdure.tasks.options import check_option_names


class FlowOptions(TypedDict, total=False):
    """Defaults of a flow for its runs. They are not part of its version."""

    priority: Priority | None
    queue: str | None
    tags: Sequence[str] | None
    timeout: Duration | None
    timeout_counts_waiting: bool | None
    max_attempts: int | None


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
    return replace(defaults, **changes) if changes else defaults


def child_settings(values: Mapping[str, Any]) -> RunSettings:
    """What the options of a node set for its child runs."""
    timeout: timedelta | None = values["timeout"]
    return RunSettings(
        priority=values["priority"],
        queue=values["queue"],
        tags=values["tags"] or (),
        timeout_ms=None if timeout is None else _milliseconds(timeout),
    )


def settings_of(flow: BuiltFlow, options: Mapping[str, Any]) -> RunSettings:
    """The settings of a run of this flow, with those of the child runs that it may start."""
    return replace(run_settings(options, defaults=flow.settings), children=_of_children(flow))


def _of_children(flow: BuiltFlow) -> dict[str, RunSettings]:
    """By node, where they are not the defaults: those of the node, else of the child flow.

    A child run has the priority of its parent, unless the node says otherwise.
    """
    found: dict[str, RunSettings] = {}
    for node in flow.graph.nodes.values():
        body = getattr(node, "body", None)
        if isinstance(body, FlowRef):
            child, given = flow.flows[body.text], flow.settings.children.get(node.id, NO_SETTINGS)
            own = replace(
                child.settings,
                priority=given.priority,
                queue=given.queue or child.settings.queue,
                tags=given.tags or child.settings.tags,
                timeout_ms=given.timeout_ms or child.settings.timeout_ms,
                children=_of_children(child),
            )
            if own != NO_SETTINGS:
                found[node.id] = own
    return found


def _milliseconds(span: timedelta) -> int:
    return max(1, round(span / timedelta(milliseconds=1)))
