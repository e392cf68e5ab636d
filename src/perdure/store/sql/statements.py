"""SQL statements, loaded from ``.sql`` files of named blocks that also work in a shell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"[ \t]*--[^\n]*(?:\n|$)")
_PARAMETER = re.compile(
    r"(?<!:):(?P<name>[a-z_]+)(?:\.(?P<field>[a-z_]+)|\((?P<columns>[a-z_#,\s]+)\))?"
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")


def load_statements(package: str, filename: str, place: Mapping[str, str]) -> Mapping[str, str]:
    """Read ``-- name: x`` blocks into a read-only mapping, in file order.

    Placeholders such as ``{schema}`` name the location of the tables. They are filled in by name
    rather than by search_path, so that a statement also works on a caller's connection.
    """
    text = fill(resources.files(package).joinpath(filename).read_text(encoding="utf-8"), place)
    _preamble, *parts = _NAME.split(text)
    names, bodies = parts[::2], [body.strip() for body in parts[1::2]]
    if len(set(names)) != len(names):
        raise ValueError(f"{package}/{filename} names a statement twice")
    return MappingProxyType(dict(zip(names, bodies, strict=True)))


def fill(text: str, place: Mapping[str, str]) -> str:
    for name, identifier in place.items():
        text = text.replace("{" + name + "}", identifier)
    return text


def is_identifier(text: str) -> bool:
    """Whether a string is a plain SQL name. Nothing else is ever filled in."""
    return _IDENTIFIER.fullmatch(text) is not None


Integer = Annotated[list[Any], "integer"]
Bigint = Annotated[list[Any], "bigint"]
Double = Annotated[list[Any], "double precision"]
Boolean = Annotated[list[Any], "boolean"]
Text = Annotated[list[Any], "text"]
Bytea = Annotated[list[Any], "bytea"]
Interval = Annotated[list[Any], "interval"]
Moments = Annotated[list[Any], "timestamptz"]
TextArray = Annotated[list[str], "text[]"]
OneText = Annotated[str | None, "text"]
OneInteger = Annotated[int | None, "integer"]
OneBigint = Annotated[int | None, "bigint"]
OneDouble = Annotated[float, "double precision"]
OneBoolean = Annotated[bool, "boolean"]
OneBytea = Annotated[bytes | None, "bytea"]
OneJson = Annotated[str, "json"]
OneInterval = Annotated[timedelta | None, "interval"]
OneMoment = Annotated[datetime | None, "timestamptz"]
Now = Annotated[datetime | None, "timestamptz"]
"""The current time for a statement; None uses the database's clock."""

Columns = tuple[Any, ...]
"""Rows as arguments of a statement: a ``NamedTuple`` with one list for each column.

``unnest`` fills up lists that are shorter than the others with nulls, so a statement that takes
columns takes at least one of them that has no nulls.
"""

Params = tuple[Any, ...]
"""The arguments of a statement, by name: a ``NamedTuple`` of values, arrays and ``Columns``."""


@cache
def types_of(params: type[Params]) -> dict[str, str]:
    """Names and SQL types of all arguments, in order."""
    found: dict[str, str] = {}
    for name, hint in get_type_hints(params, include_extras=True).items():
        if isinstance(hint, type):
            for column, annotated in get_type_hints(hint, include_extras=True).items():
                found[f"{name}.{column}"] = f"{annotated.__metadata__[0]}[]"
        else:
            found[name] = hint.__metadata__[0]
    return found


def arguments_of(params: Params) -> list[Any]:
    """All arguments in order, with null for columns that are empty or all null.

    The driver spends as much time on an empty array as on one value, and most statements use few of
    their columns.
    """
    found: list[Any] = []
    for value in params:
        if isinstance(value, tuple):
            for column in value:
                is_empty = not column or (column[0] is None and column.count(None) == len(column))
                found.append(None if is_empty else column)
        else:
            found.append(value)
    return found


def expand(text: str, params: type[Params]) -> str:
    """Number named parameters and strip comments; done once, when statements are loaded.

    ``:now`` is a single value, ``:commits.token`` a column as an array, ``FROM :claims(id, epoch)``
    columns as a table of that name, and ``#position`` among them the position of each row, from 1.
    Casts use CAST, because some statements run on a caller's driver, and colons mean something else
    to some drivers.
    """
    numbered = enumerate(types_of(params).items(), 1)
    values = {name: f"CAST(${number} AS {found_type})" for number, (name, found_type) in numbered}

    def replace(found: re.Match[str]) -> str:
        name, field, columns = found.group("name", "field", "columns")
        if columns is None:
            return values[name if field is None else f"{name}.{field}"]
        names = [column.strip() for column in columns.split(",")]
        arrays = [values[f"{name}.{each}"] for each in names if not each.startswith("#")]
        ordinality = " WITH ORDINALITY" if len(arrays) < len(names) else ""
        listed = ", ".join(each.removeprefix("#") for each in names)
        return f"unnest({', '.join(arrays)}){ordinality} AS {name} ({listed})"

    return _PARAMETER.sub(replace, _COMMENT.sub("\n", text))
