"""Validate a node's config against its type's ``Config``, before and after rendering templates."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from perdure.diagnostics import Fault, declare, near
from perdure.errors import InvalidInput, Permanent
from perdure.expr.path import Path, path_text
from perdure.model import check
from perdure.model.graph import DEFAULT_PORT, ORDINARY
from perdure.model.payload import as_type, from_json, has_more_values
from perdure.model.text import preview, type_name
from perdure.model.times import DURATION_MAX
from perdure.tasks.node_type import NodeType

Span = str | int | float
"""A duration in a config, as ``as_duration`` reads it."""

DEPTH_MAX = 100
"""How deep lists and objects of a config are searched for templates."""

JSON_VALUES_MAX = 2_000_000
"""Approximate maximum number of values in the JSON of a response or an output."""

_TEMPLATE = "{{"
_PLACE = re.compile(r" - at .*?\$(?P<path>[^`]*)`$", re.DOTALL)
_PART = re.compile(r"\[(\d+)\]|\[\.\.\.\]|\.([^.\[\]]+)")

DOES_NOT_FIT = declare(
    "config.does_not_fit", "config[ {setting!r}] of node type {type!r}: {reason}"
)
NOT_SERIALIZABLE = declare("config.not_serializable", "cannot be serialized to JSON: {reason}")
WRONG_TYPE = declare("config.type", "{reason}")
NOT_AN_OBJECT = declare("config.not_an_object", "must be an object, not {found}")
UNKNOWN_SETTING = declare(
    "config.unknown_setting",
    "unknown setting {setting!r}[; did you mean {nearest:or}?][; known: {known}][; {no_settings}]",
)
MISSING_SETTING = declare("config.missing_setting", "needs {setting!r}")
INVALID_SETTING = declare("config.invalid", "{message}")
TEMPLATE_IN_KEY = declare(
    "config.template_in_key", "{key!r} is a key; only values can be templates"
)
TEMPLATE_IN_PORT = declare(
    "config.template_in_port",
    "must not contain a template: ports must be known before rendering",
)


def foreign_json(data: bytes) -> Any:
    """Decode JSON that a service or a command wrote; ``ValueError`` if that would take too much
    memory: small objects take thirty times as much as their JSON."""
    if has_more_values(data, JSON_VALUES_MAX):
        raise ValueError(f"more than {JSON_VALUES_MAX} values")
    return from_json(data)


def as_config(node_type: NodeType, config: Any) -> Any:
    """Convert a rendered config to the ``Config`` of its type; raises ``Permanent``."""
    given = {} if config is None else config
    try:
        return as_type(given, node_type.Config)
    except ValueError as error:
        refusal = error
    try:
        # A template inside a string renders to a string, also where a number is expected.
        return msgspec.convert(given, node_type.Config, strict=False, str_keys=True)
    except ValueError:
        where, reason = _place_and_reason(refusal)
        raise Permanent(
            DOES_NOT_FIT.fault(setting=path_text(where), type=node_type.name, reason=reason)
        ) from refusal


def config_faults(node_type: NodeType, config: Any) -> list[Fault]:
    """All faults of a config whose templates are not rendered yet.

    Values with templates are not checked, because their rendered values are unknown.
    """
    try:
        plain = {} if config is None else msgspec.to_builtins(config, str_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        return [NOT_SERIALIZABLE.fault(reason=str(error))]
    if has_template(plain) and isinstance(plain, str):
        return []
    faults = list(_faults(node_type.Config, plain, ()))
    faults += _own_faults(node_type, plain, {fault.where[:1] for fault in faults})
    return [
        TEMPLATE_IN_KEY.fault(fault.where, key=preview(str(fault.where[-1])))
        if fault.where and has_template(fault.where[-1])
        else fault
        for fault in faults
    ]


def has_template(value: Any, depth: int = 0) -> bool:
    """Whether the value contains a template; a value nested too deep counts as one."""
    if isinstance(value, str):
        return _TEMPLATE in value
    if depth > DEPTH_MAX:
        return True
    if isinstance(value, Mapping):
        return any(has_template(inside, depth + 1) for inside in value.values())
    return isinstance(value, list | tuple) and any(has_template(each, depth + 1) for each in value)


def seconds_of(given: Span, name: str, most: timedelta = DURATION_MAX) -> float:
    """A positive duration in seconds, at most ``most``."""
    return check.span(given, name, is_positive=True, most=most).total_seconds()


def duration_faults(
    config: Mapping[str, Any], field: str, most: timedelta = DURATION_MAX
) -> list[Fault]:
    """Faults of a duration field, if it is set and contains no template."""
    given = config.get(field)
    if given is None or has_template(given):
        return []
    try:
        seconds_of(given, field, most)
    except InvalidInput as error:
        return list(error.faults)
    return []


def port_faults(port: Any, *place: str | int) -> list[Fault]:
    """Faults of a port named at this place of a config."""
    if has_template(port):
        return [TEMPLATE_IN_PORT.fault(place)]
    try:
        check.name(port, "port")
    except InvalidInput as error:
        return [replace(fault, where=place) for fault in error.faults]
    return []


def named_ports(ports: Any) -> tuple[str, ...]:
    """The ports in a setting that maps something to ports, without ``default``."""
    named = ports.values() if isinstance(ports, Mapping) else ()
    return tuple(dict.fromkeys(port for port in named if port != DEFAULT_PORT))


def port_of(port: str | None) -> str:
    """The port of a result, if such a setting maps it to ``port``, or to none."""
    return ORDINARY if port in (None, DEFAULT_PORT) else port


def _own_faults(node_type: NodeType, config: Any, wrong: set[Path]) -> list[Fault]:
    """The faults found by the node type itself.

    Fields of the wrong type are left out of the config it gets. Then only faults of a single
    setting count, because others may be caused by the omission.
    """
    if not wrong:
        return [_own_fault(each) for each in node_type.faults_of(config)]
    if not isinstance(config, Mapping):
        return []
    rest = {name: value for name, value in config.items() if (name,) not in wrong}
    try:
        own = [_own_fault(each) for each in node_type.faults_of(rest)]
    except Exception:  # it may rely on a field that was left out
        return []
    return [each for each in own if each.where]


def _own_fault(reported: str | tuple[Path, str] | Fault) -> Fault:
    if isinstance(reported, Fault):
        return reported
    where, message = ((), reported) if isinstance(reported, str) else reported
    return INVALID_SETTING.fault(where, message=message)


def _faults(wanted: Any, value: Any, where: Path) -> Iterator[Fault]:
    if len(where) > DEPTH_MAX or (isinstance(value, str) and has_template(value)):
        return
    origin, of = typing.get_origin(wanted), typing.get_args(wanted)
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        yield from _struct_faults(wanted, value, where)
    elif origin is list and isinstance(value, list | tuple):
        for at, each in enumerate(value):
            yield from _faults(of[0], each, (*where, at))
    elif origin is dict and isinstance(value, Mapping):
        for key, each in value.items():
            yield from _faults(of[1], each, (*where, key))
    elif not has_template(value):
        try:
            as_type(value, wanted)
        except ValueError as error:
            inside, reason = _place_and_reason(error)
            yield WRONG_TYPE.fault((*where, *inside), reason=reason)
    elif origin is typing.Annotated:
        yield from _faults(of[0], value, where)


def _struct_faults(wanted: type[msgspec.Struct], value: Any, where: Path) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield NOT_AN_OBJECT.fault(where, found=type_name(value))
        return
    fields = {field.encode_name: field for field in msgspec.structs.fields(wanted)}
    for key in value:
        if key not in fields:
            name = preview(str(key))
            nearest = near(name, fields, 1)
            yield UNKNOWN_SETTING.fault(
                (*where, key),
                setting=name,
                nearest=nearest,
                known="" if nearest else ", ".join(fields),
                no_settings="" if fields else "it has no settings",
            )
    for name, field in fields.items():
        if name in value:
            yield from _faults(field.type, value[name], (*where, name))
        elif field.required:
            yield MISSING_SETTING.fault(where, setting=name)


def _place_and_reason(error: ValueError) -> tuple[Path, str]:
    """The path and the reason in an error message of msgspec."""
    text = str(error)
    found = _PLACE.search(text)
    reason = (text[: found.start()] if found else text).replace("`", "")
    parts = _PART.findall(found["path"]) if found else []
    path: Path = tuple(int(index) if index else name or "*" for index, name in parts)
    return path, reason[:1].lower() + reason[1:]
