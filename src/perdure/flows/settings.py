"""What the options of a call of the builder mean for its node, with all that is wrong of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from perdure.diagnostics import declare, near
from perdure.errors import InvalidInput
from perdure.flows.assembly import Assembly
from perdure.flows.calls import Inputs, inputs_told, plain
from perdure.model import check
from perdure.model.graph import FAIL, Call, Check, JsonSchema
from perdure.tasks.options import check_option_names

_CHECK_FIELDS = ("schema", "condition", "advisory")
UNKNOWN_CHECK = declare(
    "flow.unknown_check",
    "check has no {field!r}[; did you mean {nearest:or}?]",
    'Write check={"schema": {...}} or check={"condition": {...}}',
)
EMPTY_CHECK = declare("flow.empty_check", "check needs a schema, a condition or both")


def told_inputs(assembly: Assembly, id: str, options: Mapping[str, Any]) -> Inputs:
    """The inputs that the node takes by name, if it does."""
    label = assembly.label(id)
    inputs = inputs_told(options, partial(assembly.fault, label))
    assembly.declare(id, inputs)
    return inputs


def task_settings(assembly: Assembly, label: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a task's node that say nothing of its task."""
    return {
        "ports": names(assembly, label, "ports", options.get("ports", ())),
        "on_timeout": checked_port(assembly, label, "on_timeout", options.get("on_timeout", FAIL)),
        "input_schema": schema(assembly, label, "input_schema", options.get("input_schema")),
        "output_schema": schema(assembly, label, "output_schema", options.get("output_schema")),
        "check": assembly.attempt(label, lambda: _check(options.get("check")), None),
    }


def config_told(assembly: Assembly, label: str, config: Any) -> dict[str, Any] | None:
    """The config as it is stored."""
    if config is None:
        return None

    def stored() -> dict[str, Any]:
        if not isinstance(config, Mapping):
            raise check.wrong_type(config, "config", "an object: settings by name")
        found: dict[str, Any] = plain(config, "config")
        return found

    return assembly.attempt(label, stored, None)


def data(assembly: Assembly, label: str, option: str, value: Any) -> Any:
    """Any JSON value, as it is read back."""
    return assembly.attempt(label, lambda: plain(value, option), None)


def schema(assembly: Assembly, label: str, option: str, value: Any) -> JsonSchema | None:
    """Whether it is a schema is for the check of the graph to say."""

    def stored() -> JsonSchema | None:
        if value is not None and not isinstance(value, Mapping | bool):
            raise check.wrong_type(value, option, "a JSON Schema: an object")
        found: JsonSchema | None = plain(value, option)
        return found

    return assembly.attempt(label, stored, None)


def names(assembly: Assembly, label: str, option: str, told: Any) -> tuple[str, ...]:
    """A list of strings."""

    def checked() -> tuple[str, ...]:
        return tuple(check.name(each, option) for each in check.listed(told, option, "strings"))

    return assembly.attempt(label, checked, ())


def text(assembly: Assembly, label: str, option: str, told: Any) -> str:
    return assembly.attempt(label, lambda: check.instance(told, option, str, "a string"), "")


def undo_call(assembly: Assembly, id: str, options: Mapping[str, Any]) -> Call | None:
    undo = options.get("undo")
    if undo is None:
        return None
    return assembly.call(undo, f"{id}.undo", {}, f"{assembly.label(id)}, undo=")


def on_error(assembly: Assembly, label: str, options: Mapping[str, Any]) -> str:
    return checked_port(assembly, label, "on_error", options.get("on_error", FAIL))


def checked_port(assembly: Assembly, label: str, option: str, port: Any) -> str:
    """``"fail"``, ``"continue"`` or a port."""
    return assembly.attempt(label, lambda: check.name(port, option), FAIL)


def check_options(assembly: Assembly, label: str, options: Mapping[str, Any], known: Any) -> None:
    for name, value in options.items():
        assembly.attempt(label, partial(check_option_names, {name: value}, known), None)


def whole(assembly: Assembly, label: str, option: str, value: Any) -> int | None:
    """Whether it is large enough is for the check of the graph to say."""
    if value is None:
        return None
    return assembly.attempt(label, lambda: check.integer(value, option), 1)


def _check(told: Any) -> Check | None:
    if told is None:
        return None
    if not isinstance(told, Mapping):
        raise check.wrong_type(told, "check", "an object with schema, condition or both")
    for field in told:
        if field not in _CHECK_FIELDS:
            nearest = near(str(field), _CHECK_FIELDS)
            raise InvalidInput(UNKNOWN_CHECK.fault(("check",), field=field, nearest=nearest))
    schema, is_advisory = told.get("schema"), told.get("advisory", False)
    check.flag(is_advisory, "check.advisory")
    if schema is None and told.get("condition") is None:
        raise InvalidInput(EMPTY_CHECK.fault(("check",)))
    if schema is not None and not isinstance(schema, Mapping | bool):
        raise check.wrong_type(schema, "check.schema", "a JSON Schema: an object")
    return Check(
        schema=plain(schema, "schema of the check"),
        condition=plain(told.get("condition"), "condition of the check"),
        is_advisory=is_advisory,
    )
