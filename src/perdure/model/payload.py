"""Payloads as JSON, checked against type annotations. Never pickled.

Dataclasses, pydantic models, datetimes, UUIDs, bytes, enums and similar values are encoded as JSON
and converted back where an annotation says so.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Any, Protocol

import msgspec

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, PayloadNotSerializable, PayloadTooLarge

PAYLOAD_MAX_BYTES = 1024 * 1024
NESTING_MAX = 250
"""Levels of lists and objects: decoding and walking over more could exceed the stack."""
VALUE_BYTES = 16
"""What each value in JSON counts at least, where values are limited together."""
_NULL = b"null"
_KEYS_WANTED = "the keys of a dict must be strings, numbers, or values that JSON writes as strings"

INVALID_ARGUMENT = declare("task.invalid_argument", "argument {name!r} of task {task!r}: {reason}")

Converter = Callable[[Any], Any]


def has_more_values(data: bytes, most: int) -> bool:
    """Whether there are about so many values in JSON, without decoding it."""
    # Strings may contain commas, but most are not worth a look.
    return _count(data) > most and _count(_STRING.sub(b"", data)) > most


def weight(data: bytes) -> int:
    """The size of JSON for limits of memory, of which small values take many times their JSON."""
    size = len(data)
    if VALUE_BYTES * _count(data) <= size:
        return size
    return max(size, VALUE_BYTES * _count(_STRING.sub(b"", data)))


def _count(data: bytes) -> int:
    return sum(map(data.count, (b",", b"[", b"{")))


_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


class Codec(Protocol):
    """Encodes the JSON of payloads for storage, for example to compress or encrypt it."""

    def encode(self, data: bytes) -> bytes: ...

    def decode(self, data: bytes) -> bytes: ...


class PlainCodec:
    """Stores JSON unchanged."""

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return data


def _plain(value: Any) -> Any:
    """Encode types unknown to msgspec: pydantic models, recognized by their methods."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if value is None or isinstance(value, bool | tuple | frozenset):  # no unknowns: they are keys
        raise NotImplementedError(_KEYS_WANTED)
    raise NotImplementedError(f"{type(value).__qualname__} is not a type that JSON can carry")


def _typed(wanted: type, value: Any) -> Any:
    if wanted is object:
        return value
    validate = getattr(wanted, "model_validate", None)
    if callable(validate):
        return validate(value)
    raise TypeError(f"a {wanted.__qualname__} cannot be made from JSON")


# Deterministic, so that equal inputs have equal bytes, for `jobs.find_result`.
_input_encoder = msgspec.json.Encoder(enc_hook=_plain, order="deterministic")
_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder()


def to_json(
    value: Any, what: str, max_bytes: int = PAYLOAD_MAX_BYTES, *, is_input: bool = False
) -> bytes:
    """Encode a value as JSON; ``what`` names it in errors.

    Objects keep their order, except in inputs, where equal ones must have equal bytes.
    """
    try:
        data = _input_json(value) if is_input else _encoder.encode(value)
        if not is_input and b'":' in data:
            _refuse_equal_keys(value)
    except (TypeError, NotImplementedError, ValueError, RecursionError, OverflowError) as error:
        reason = _KEYS_WANTED if "dicts with str" in str(error) else str(error)
        raise PayloadNotSerializable(what=what, reason=reason) from error
    if len(data) > 2 * NESTING_MAX and _is_nested_deeper(data, NESTING_MAX):
        reason = f"it is nested deeper than {NESTING_MAX} levels"
        raise PayloadNotSerializable(what=what, reason=reason)
    if _NULL in data and _has_lost_float(value):
        raise PayloadNotSerializable(
            what=what, reason="it contains NaN or an infinity, which JSON does not have"
        )
    if len(data) > max_bytes:
        raise PayloadTooLarge(what=what, size_bytes=len(data), limit_bytes=max_bytes)
    return data


def _input_json(value: Any) -> bytes:
    try:
        return _input_encoder.encode(value)
    except TypeError:
        # The encoder only sorts string keys, so convert numbers, dates and others to strings.
        plain = msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_plain)
    data = _input_encoder.encode(plain)
    if len(data) != len(_encoder.encode(value)):
        raise ValueError("two keys of a dict are equal as strings")
    return data


def _refuse_equal_keys(value: Any) -> None:
    try:
        _input_encoder.encode(value)  # fast; it refuses keys that are not strings
    except TypeError:
        _input_json(value)


_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _is_nested_deeper(data: bytes, most: int) -> bool:
    if data.count(b"[") + data.count(b"{") <= most:
        return False
    # Each pass removes one or two levels, so few passes show that a long list is flat.
    brackets = data.translate(None, _NOT_BRACKETS)
    for _ in range(most // 2):
        left = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not left:
            return False
        if len(left) == len(brackets):
            break  # there are brackets in strings
        brackets = left
    brackets = _STRINGS.sub(b"", data).translate(None, _NOT_BRACKETS)
    return max(accumulate(1 if each in b"[{" else -1 for each in brackets), default=0) > most


def from_json(data: bytes) -> Any:
    return _decoder.decode(data)


def storable_text(text: str) -> str:
    """Escape characters that databases cannot store: zero characters and lone surrogates."""
    return text.encode(errors="backslashreplace").decode().replace("\x00", "\\x00")


def as_type(value: Any, wanted: Any) -> Any:
    """Convert plain JSON values to a type; raises ``ValueError``."""
    return msgspec.convert(value, wanted, dec_hook=_typed, str_keys=True)


def input_hash(task: str, data: bytes) -> int:
    """63 bits that fit a signed integer column."""
    digest = hashlib.blake2b(data, digest_size=8, key=task.encode()[:64]).digest()
    return int.from_bytes(digest) >> 1


def converter(wanted: Any) -> Converter | None:
    """A function that converts JSON to ``wanted``; None if the annotation cannot be checked."""
    if wanted is Any or wanted is object:
        return None
    try:
        msgspec.json.Decoder(wanted, dec_hook=_typed)
    except (TypeError, ValueError, NotImplementedError):
        return None
    # Most JSON values already have the wanted type.
    return lambda value: value if type(value) is wanted else as_type(value, wanted)


def convert_argument(convert: Converter, value: Any, name: str, task: str) -> Any:
    """Convert one argument to its parameter's type."""
    try:
        return convert(value)
    except (ValueError, TypeError) as error:  # msgspec and pydantic: both ValueErrors
        fault = INVALID_ARGUMENT.fault((name,), name=name, task=task, reason=str(error))
        raise InvalidInput(fault) from error


def _has_lost_float(value: Any) -> bool:
    """Whether the value has NaN or infinities, which msgspec encodes as null."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, float):
            if not math.isfinite(value):
                return True
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += value
        else:
            fields: Iterable[str] = getattr(value, "__dataclass_fields__", ())
            fields = getattr(value, "__struct_fields__", fields)
            waiting += (getattr(value, name, None) for name in fields)
    return False
