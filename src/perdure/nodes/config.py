"""Check the config of a node against its type's ``Config``, before templates and after."""

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
from perdure.model.payload import as_type
from perdure.model.text import cut, type_name
from perdure.model.times import DURATION_MAX
from perdure.tasks.node_type import NodeType

Span = str | int | float
"""A duration in a config, as ``as_duration`` reads it."""

DEPTH_MAX = 100
"""How deep lists and objects of a config are looked into."""

_TEMPLATE = "{{"
_PLACE = re.compile(r" - at .*?\$(?P<path>[^`]*)`$", re.DOTALL)
_PART = re.compile(r"\[(\d+)\]|\[\.\.\.\]|\.([^.\[\]]+)")

DOES_NOT_FIT = declare(
    "config.does_not_fit", "config[ {setting!r}] of node type {type!r}: {reason}"
)
NOT_SERIALIZABLE = declare("config.not_serializable", "cannot be written as JSON: {reason}")
WRONG_TYPE = declare("config.type", "{reason}")
NOT_AN_OBJECT = declare("config.not_an_object", "must be an object, not {found}")
UNKNOWN_SETTING = declare(
    "config.unknown_setting",
    "unknown setting {setting!r}[; did you mean {nearest:or}?][; known: {known}][; {no_settings}]",
)
MISSING_SETTING = declare("config.missing_setting", "needs {setting!r}")
INVALID_SETTING = declare("config.invalid", "{message}")
TEMPLATE_IN_KEY = declare(
    "config.template_in_key", "{key!r} is a key, which is never a template: only a value is"
)
TEMPLATE_IN_PORT = declare(
    "config.template_in_port",
    "has a template in it, but ports are known before templates are filled in",
)


def as_config(node_type: NodeType, config: Any) -> Any:
    """A rendered config as the ``Config`` of its type. What does not fit is ``Permanent``."""
    given = {} if config is None else config
    try:
        return as_type(given, node_type.Config)
    except ValueError as error:
        refusal = error
    try:
        # A template inside a text leaves a text, also where a number is meant.
        return msgspec.convert(given, node_type.Config, strict=False, str_keys=True)
    except ValueError:
        where, reason = _place_and_reason(refusal)
        raise Permanent(
            DOES_NOT_FIT.fault(setting=path_text(where), type=node_type.name, reason=reason)
        ) from refusal


def config_faults(node_type: NodeType, config: Any) -> list[Fault]:
    """Everything that is wrong with a config in which templates are not filled in yet.

    What a template stands for is not known, so a value that has one in it is left alone.
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
        TEMPLATE_IN_KEY.fault(fault.where, key=cut(str(fault.where[-1])))
        if fault.where and has_template(fault.where[-1])
        else fault
        for fault in faults
    ]


def has_template(value: Any, depth: int = 0) -> bool:
    """Whether there is a template anywhere in the value; what is too deep to tell counts as one."""
    if isinstance(value, str):
        return _TEMPLATE in value
    if depth > DEPTH_MAX:
        return True
    if isinstance(value, Mapping):
        return any(has_template(inside, depth + 1) for inside in value.values())
    return isinstance(value, list | tuple) and any(has_template(each, depth + 1) for each in value)


def seconds_of(given: Span, name: str, most: timedelta = DURATION_MAX) -> float:
    """A time to wait, in seconds: more than nothing, and ``most`` at most."""
    return check.span(given, name, is_positive=True, most=most).total_seconds()


def duration_faults(
    config: Mapping[str, Any], field: str, most: timedelta = DURATION_MAX
) -> list[Fault]:
    """Whether the field is there, has no template, and is no time to wait."""
    given = config.get(field)
    if given is None or has_template(given):
        return []
    try:
        seconds_of(given, field, most)
    except InvalidInput as error:
        return list(error.faults)
    return []


def port_faults(port: Any, *place: str | int) -> list[Fault]:
    """Whether what a config names as a port, at this place, can be one."""
    if has_template(port):
        return [TEMPLATE_IN_PORT.fault(place)]
    try:
        check.name(port, "port")
    except InvalidInput as error:
        return [replace(fault, where=place) for fault in error.faults]
    return []


def _own_faults(node_type: NodeType, config: Any, wrong: set[Path]) -> list[Fault]:
    """What the type itself finds. Of a config whose types are wrong it is shown the rest, and of
    what it says, only that counts which is about a single setting."""
    if not wrong:
        return [_own_fault(each) for each in node_type.faults_of(config)]
    if not isinstance(config, Mapping):
        return []
    rest = {name: value for name, value in config.items() if (name,) not in wrong}
    try:
        own = [_own_fault(each) for each in node_type.faults_of(rest)]
    except Exception:  # it may rely on what is missing or was left out
        return []
    return [each for each in own if each.where]


def _own_fault(told: str | tuple[Path, str] | Fault) -> Fault:
    if isinstance(told, Fault):
        return told
    where, message = ((), told) if isinstance(told, str) else told
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
            name = cut(str(key))
            nearest = near(name, fields, 1)
            yield UNKNOWN_SETTING.fault(
                (*where, key),
                setting=name,
                nearest=nearest,
                known="" if nearest else ", ".join(fields),
                no_settings="" if fields else "there is nothing to set",
            )
    for name, field in fields.items():
        if name in value:
            yield from _faults(field.type, value[name], (*where, name))
        elif field.required:
            yield MISSING_SETTING.fault(where, setting=name)


def _place_and_reason(error: ValueError) -> tuple[Path, str]:
    """The place and the reason that msgspec gives in one text."""
    text = str(error)
    found = _PLACE.search(text)
    reason = (text[: found.start()] if found else text).replace("`", "")
    parts = _PART.findall(found["path"]) if found else []
    path: Path = tuple(int(index) if index else name or "*" for index, name in parts)
    return path, reason[:1].lower() + reason[1:]
