"""From the data of one node to the same step that the builder would record for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.client.declared.edges import TIMEOUT, keys_of_next, port_of_key
from perdure.client.declared.library import Library, LoadFile
from perdure.client.flow_approvals import ApproveStep
from perdure.client.flow_branches import RouteStep
from perdure.client.flow_kinds import UseStep
from perdure.client.flow_repeats import LoopStep, MapStep
from perdure.client.flow_steps import FlowStep, Named, Step, ThenStep
from perdure.client.flow_waits import DelayStep, SignalStep
from perdure.errors import InvalidInput
from perdure.model.graph import CONTINUE, FAIL, ORDINARY, REJECT
from perdure.model.path import Path
from perdure.model.retry import Retry

_Data = Mapping[str, Any]
_OPTIONS = (
    "timeout", "priority", "queue", "tags", "on_error", "inputs", "on_missing", "on_timeout",
    "input_schema", "output_schema", "check",
)  # fmt: skip


class NodeRefused(InvalidInput):
    """A node cannot be made; ``path`` is the place within it that says why."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class StepMaker:
    """Makes steps of one flow. Data comes in the right shape; what it names may be wrong."""

    def __init__(self, flow: str, library: Library, load: LoadFile | None) -> None:
        self._flow = flow
        self._library = library
        self._load = load
        self._refused: list[NodeRefused] = []

    def refused(self) -> list[NodeRefused]:
        """What was wrong with the last step, though it could be made; told once."""
        refused, self._refused = self._refused, []
        return refused

    def step(self, id: str, kind: str, node: _Data) -> Step:
        """Raises ``NodeRefused``."""
        make = _MAKERS.get(kind)
        if make is not None:
            return make(self, id, node)
        if kind not in self._library.kinds:
            self._library.missing.add(kind)
            raise NodeRefused(("kind",), self._unknown_kind(kind))
        found = self._library.kinds[kind]
        options = self._options(id, node)
        named = {options.get("on_error"), options.get("on_timeout")}
        followed = [key for key in keys_of_next(node.get("next")) if key not in named]
        config = found.followed_by(node.get("config"), followed)
        told = _told_ports(node, options) if found.takes_ports else node.get("ports", ())
        extra = [each for each in told if each not in self._own(found, config)]
        if extra:
            options["ports"] = extra
        return UseStep(found, config, _named(id), None, options)  # type: ignore[arg-type]

    def _own(self, kind: Any, told: Any) -> tuple[str, ...]:
        from perdure.nodes.config import config_faults

        config = told or {}
        return () if config_faults(kind, config) else tuple(kind.ports_of(config))

    def _unknown_kind(self, kind: str) -> str:
        try:
            self._library.kinds[kind]
        except InvalidInput as error:
            return str(error)
        raise AssertionError(kind)

    def task(self, id: str, node: _Data) -> Step:
        body = self._body(node["task"], id, ("task",))
        options = self._options(id, node)
        ports = _told_ports(node, options)
        if ports:
            options["ports"] = ports
        if "config" in node:
            options["config"] = node["config"]
        return ThenStep(body, _named(id), None, options)

    def route(self, id: str, node: _Data) -> Step:
        config = node["config"]
        if "task" in config:
            key = self._body(config["task"], id, ("config", "task"))
        else:
            key = config["key"]
        options = self._options(id, node)
        told = dict.fromkeys((*keys_of_next(node.get("next")), *node.get("ports", ())))
        branches = {port: None for port in told if port != options.get("on_error")}
        return RouteStep(key, branches, None, _named(id), None, options)  # type: ignore[arg-type]

    def map(self, id: str, node: _Data) -> Step:
        config = node["config"]
        over, concurrency = config.get("over"), config.get("concurrency")
        options = self._options(id, node)
        body = self._body_in(id, config)
        return MapStep(body, _named(id), over, concurrency, options)  # type: ignore[arg-type]

    def loop(self, id: str, node: _Data) -> Step:
        config = node["config"]
        until = config["until"]
        if isinstance(until, Mapping) and list(until) == ["task"]:
            until = self._body(str(until["task"]), f"{id}.until", ("config", "until", "task"))
        return LoopStep(
            self._body_in(id, config),
            _named(id),
            until,
            config.get("max_iterations", 50),
            config.get("on_max", FAIL),
            self._options(id, node),  # type: ignore[arg-type]
        )

    def delay(self, id: str, node: _Data) -> Step:
        config = node["config"]
        options = self._options(id, node)
        return DelayStep(config.get("for"), config.get("until"), _named(id), options)  # type: ignore[arg-type]

    def signal(self, id: str, node: _Data) -> Step:
        config = node.get("config", {})
        return SignalStep(
            config.get("name", id),
            _named(id),
            config.get("timeout"),
            config.get("on_timeout", FAIL),
            config.get("where"),
            self._options(id, node),  # type: ignore[arg-type]
        )

    def approval(self, id: str, node: _Data) -> Step:
        config = dict(node["config"])
        title = config.pop("title")
        followed = keys_of_next(node.get("next"))
        if REJECT in followed:
            config.setdefault("on_reject", REJECT)
        if TIMEOUT in followed:
            config.setdefault("on_timeout", TIMEOUT)
        if "notify" in config:
            config["notify"] = self._body(config["notify"], f"{id}.notify", ("config", "notify"))
        if "escalate" in config:
            config["escalate"] = [(each["after"], each["to"]) for each in config["escalate"]]
        return ApproveStep(title, _named(id), {**config, **self._options(id, node)})  # type: ignore[typeddict-item]

    def flow(self, id: str, node: _Data) -> Step:
        flow = self._child(node["config"]["flow"])
        return FlowStep(flow, _named(id), self._options(id, node))

    def _options(self, id: str, node: _Data) -> dict[str, Any]:
        options = {key: node[key] for key in _OPTIONS if key in node}
        if "retry" in node:
            options["retries"] = self._retry(node["retry"])
        if "undo" in node:
            options["undo"] = self._body(node["undo"], f"{id}.undo", ("undo",))
        return options

    def _body_in(self, id: str, config: _Data) -> Any:
        if "flow" in config:
            return self._child(config["flow"])
        return self._body(config["task"], id, ("config", "task"))

    def _body(self, name: str, own_name: str, path: Path) -> Any:
        try:
            return self._library.body(name, f"{self._flow}.{own_name}")
        except InvalidInput as error:
            self._refused.append(NodeRefused(path, str(error)))
            return anything

    def _retry(self, told: Any) -> Retry:
        try:
            if isinstance(told, int):
                return Retry(told)
            names = {key: tuple(told[key]) for key in ("on", "never_on") if key in told}
            return Retry(**{**told, **names})
        except InvalidInput as error:
            self._refused.append(NodeRefused(("retry",), str(error)))
            return Retry(0)

    def _child(self, name: str) -> Any:
        try:
            return self._library.flow(name, self._load)
        except InvalidInput as error:
            raise NodeRefused(("config", "flow"), str(error)) from error


_MAKERS: dict[str, Callable[[StepMaker, str, _Data], Step]] = {
    "task": StepMaker.task,
    "route": StepMaker.route,
    "map": StepMaker.map,
    "loop": StepMaker.loop,
    "delay": StepMaker.delay,
    "signal": StepMaker.signal,
    "approval": StepMaker.approval,
    "flow": StepMaker.flow,
}


def _named(id: str) -> Named:
    return Named(id, None)


def _told_ports(node: _Data, options: _Data) -> list[str]:
    """Those of ``ports``, else the keys of ``next`` that no option names."""
    if "ports" in node:
        return list(node["ports"])
    named = {options.get("on_error"), options.get("on_timeout")} - {FAIL, CONTINUE}
    keys = (port_of_key("task", key) for key in keys_of_next(node.get("next")))
    return [port for port in keys if port != ORDINARY and port not in named]


def anything(*args: Any, **kwargs: Any) -> None:
    """Stands in for what cannot be called."""
