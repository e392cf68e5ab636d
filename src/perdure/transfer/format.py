"""The export format: lines of JSON, gzipped if the file name ends in ``.gz``.

The first line is the header with the counts; then follows one line for each row, with its type in
``row``; the last line repeats the counts and has the checksum of all lines before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from perdure.diagnostics import declare
from perdure.model.value import Value
from perdure.store.contract.transfer import ROW_TYPES, TransferRow

UNREADABLE = declare("file.unreadable", "{path} cannot be read: {reason}")
UNWRITABLE = declare("file.unwritable", "{path} cannot be written: {reason}")
IS_DIRECTORY = declare(
    "file.is_directory", "{path} is a directory", "Name a file in it, such as {example}"
)
EXISTS = declare("file.exists", "{path} already exists", "Name another file, or remove it")


FORMAT = 2
"""Increased when older code could misread new files."""
SCHEMA = 16
"""The schema version of the rows: that of the latest migration."""
COMPRESSED_SUFFIX = ".gz"


class Header(Value, tag_field="row", tag="perdure-export"):
    format: int
    schema: int
    perdure: str
    """The version of Perdure that wrote it."""
    store: str
    """The type of store it came from."""
    exported_at: datetime
    counts: Mapping[str, int]
    """Rows by type."""


class Trailer(Value, tag_field="row", tag="end", forbid_unknown_fields=True):
    counts: Mapping[str, int]
    sha256: str


def name_of(row_type: type[TransferRow]) -> str:
    """The name of a row type in the file."""
    tag = row_type.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


NAMES = tuple(name_of(row_type) for row_type in ROW_TYPES)
ANY_ROW: Any = reduce(or_, (*ROW_TYPES, Trailer))

encode = msgspec.json.Encoder().encode
decode_row = msgspec.json.Decoder(ANY_ROW).decode
