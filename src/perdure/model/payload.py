"""Payloads: JSON in, JSON out, checked against the types a task declares. Never pickle.

What goes in as JSON comes back the same. Dataclasses, pydantic models, datetimes, UUIDs, bytes,
enums and the like are written as JSON and come back as themselves where a type says so.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, PayloadNotSerializable, PayloadTooLarge

PAYLOAD_MAX_BYTES = 1024 * 1024
_NULL = b"null"
_KEYS_WANTED = "the keys of a dict must be texts, numbers, or values that JSON writes as texts"

INVALID_ARGUMENT = declare("task.invalid_argument", "argument {name!r} of task {task!r}: {reason}")

Converter = Callable[[Any], Any]


class Codec(Protocol):
    """Turns the JSON of a payload into what is stored and back: to compress it, or encrypt it."""

    def encode(self, data: bytes) -> bytes: ...

    def decode(self, data: bytes) -> bytes: ...


class PlainCodec:
    """Stores JSON as it is."""

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return data


def _plain(value: Any) -> Any:
    """For what msgspec does not know: pydantic models, recognised by what they offer."""
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


# Deterministic, so that equal inputs are equal bytes and result_of finds them.
_input_encoder = msgspec.json.Encoder(enc_hook=_plain, order="deterministic")
_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder()


def to_json(
    value: Any, what: str, max_bytes: int = PAYLOAD_MAX_BYTES, *, is_input: bool = False
) -> bytes:
    """Write a value as JSON; ``what`` is what the error calls it.

    Objects keep their order, except in inputs, where equal ones must be the same bytes.
    """
    try:
        data = _input_json(value) if is_input else _encoder.encode(value)
    except (TypeError, NotImplementedError, ValueError, RecursionError, OverflowError) as error:
        reason = _KEYS_WANTED if "dicts with str" in str(error) else str(error)
        raise PayloadNotSerializable(what=what, reason=reason) from error
    if _NULL in data and _has_lost_float(value):
        raise PayloadNotSerializable(
            what=what, reason="it contains NaN or an infinity, which JSON has not"
        )
    if len(data) > max_bytes:
        raise PayloadTooLarge(what=what, size_bytes=len(data), limit_bytes=max_bytes)
    return data


def _input_json(value: Any) -> bytes:
    try:
        return _input_encoder.encode(value)
    except TypeError:
        # It orders texts only. Numbers, dates and the like are keys too, once they are texts.
        plain = msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_plain)
    data = _input_encoder.encode(plain)
    if len(data) != len(_encoder.encode(value)):
        raise ValueError("two keys of one dict are the same as texts")
    return data


def from_json(data: bytes) -> Any:
    return _decoder.decode(data)


def storable_text(text: str) -> str:
    """Without what no database keeps: the zero character, and halves of surrogate pairs."""
    return text.encode(errors="backslashreplace").decode().replace("\x00", "\\x00")


def as_type(value: Any, wanted: Any) -> Any:
    """Read plain JSON values as a declared type; ``ValueError`` says where they do not fit."""
    return msgspec.convert(value, wanted, dec_hook=_typed, str_keys=True)


def input_hash(task: str, data: bytes) -> int:
    """63 bits that fit a signed integer column."""
    digest = hashlib.blake2b(data, digest_size=8, key=task.encode()[:64]).digest()
    return int.from_bytes(digest) >> 1


def converter(wanted: Any) -> Converter | None:
    """How to read JSON as ``wanted``; None where its annotation cannot be checked."""
    if wanted is Any or wanted is object:
        return None
    try:
        msgspec.json.Decoder(wanted, dec_hook=_typed)
    except (TypeError, ValueError, NotImplementedError):
        return None
    # Most JSON values have the wanted type already and need no reading.
    return lambda value: value if type(value) is wanted else as_type(value, wanted)


def convert_argument(convert: Converter, value: Any, name: str, task: str) -> Any:
    """Read one argument as its parameter's type."""
    try:
        return convert(value)
    except (ValueError, TypeError) as error:  # msgspec and pydantic: both ValueErrors
        fault = INVALID_ARGUMENT.fault((name,), name=name, task=task, reason=str(error))
        raise InvalidInput(fault) from error


def _has_lost_float(value: Any) -> bool:
    """JSON has no NaN, and a None that was one would come back as something else."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(_has_lost_float(item) for item in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_has_lost_float(item) for item in value)
    fields: Iterable[str] = getattr(value, "__dataclass_fields__", ())
    fields = getattr(value, "__struct_fields__", fields)
    return any(_has_lost_float(getattr(value, name, None)) for name in fields)
