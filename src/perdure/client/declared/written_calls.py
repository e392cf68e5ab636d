"""What a node says of the settings of its task: only what the task does not say itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure.model.flow import BuiltFlow
from perdure.model.graph import Call, Node, RouteNode, TaskNode
from perdure.model.policy import decode_policy
from perdure.model.retry import Retry
from perdure.model.task import PlainFunction
from perdure.rules.placement import Place, places_before

_UNITS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000))
_MICROSECONDS_IN_MS = 1000


class WrittenCalls:
    def __init__(self, flow: BuiltFlow) -> None:
        self._tasks = flow.tasks
        self._places = places_before(flow.graph)

    def settings_of(self, node: Node) -> dict[str, Any]:
        call = node.call if isinstance(node, TaskNode | RouteNode) else getattr(node, "body", None)
        if not isinstance(call, Call):
            return {}
        written = _policy(call)
        priority, queue = self._own_place(node, call)
        if call.priority != priority:
            written["priority"] = call.priority
        if call.queue != queue:
            written["queue"] = call.queue
        if call.tags != self._tasks[call.task].tags:
            written["tags"] = list(call.tags)
        return written

    def _own_place(self, node: Node, call: Call) -> Place:
        """Priority and queue of a node that is not given any."""
        task = self._tasks[call.task]
        is_kind = isinstance(node, TaskNode) and bool(node.kind)
        if is_kind or isinstance(task, PlainFunction):
            return self._places[node.id]
        return task.priority, task.queue


def _policy(call: Call) -> dict[str, Any]:
    if call.policy is None:
        return {}
    policy = decode_policy(call.policy.encode())
    written: dict[str, Any] = {}
    if policy.retry is not None:
        written["retry"] = _retry(policy.retry)
    if policy.timeout is not None:
        written["timeout"] = duration_text(policy.timeout)
    return written


def _retry(retry: Retry) -> int | dict[str, Any]:
    usual = Retry(retry.retries)
    changed: dict[str, Any] = {
        "first": duration_text(retry.first_delay) if retry.first != usual.first else None,
        "factor": retry.factor if retry.factor != usual.factor else None,
        "max": duration_text(retry.delay_max) if retry.max != usual.max else None,
        "jitter": retry.jitter if retry.jitter != usual.jitter else None,
        "on": list(retry.retried_names) or None,
        "never_on": list(retry.refused_names) or None,
    }
    given = {key: value for key, value in changed.items() if value is not None}
    return {"retries": retry.retries, **given} if given else retry.retries


def duration_text(duration: timedelta) -> str:
    """As people write it: ``1h30m``."""
    rest = duration // timedelta(microseconds=1)
    text = ""
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    if rest:
        text += f"{rest / _MICROSECONDS_IN_MS:g}ms"
    return text or "0s"
