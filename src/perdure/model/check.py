"""Argument checks.

Each function takes a value and the name of its parameter, and returns the value to use or raises
:class:`~perdure.errors.InvalidInput`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import Fault, Path, declare, near, safe_repr, span_text
from perdure.errors import InvalidInput
from perdure.model.job import PRIORITY_MAX, PRIORITY_MIN, PRIORITY_NAMES, NewJob
from perdure.model.outcome import Retried
from perdure.model.payload import storable_text
from perdure.model.principal import RESERVED, ROLE, normal_name
from perdure.model.text import control_in, unseen_in
from perdure.model.times import (
    DURATION_MAX,
    EARLIEST,
    LATEST,
    is_storable,
    nearest_duration,
    nearest_storable,
    parse_duration,
)

NAME_MAX = 200
NAME_MAX_BYTES = 300
TEXT_MAX = 10_000
TAGS_MAX = 20
TAGS_MAX_BYTES = 600
KEYS_MAX_BYTES = 400
# All in JSON. PostgreSQL indexes nothing longer than 2,704 bytes, and a waiting job is indexed by
# namespace, queue, task, flow, tags and limit keys.

WRONG_TYPE = declare("argument.type", "{name:parameter} must be {expected} (got {value})")
OUT_OF_RANGE = declare("argument.range", "{name:parameter} must be {expected} (got {value})")
NOT_A_CHOICE = declare(
    "argument.choice",
    "{name:parameter} must be one of {choices} (got {value})[; did you mean {nearest:or}?]",
)
INVALID_NAME = declare(
    "argument.name",
    "{name:parameter} must be a non-empty string[ of at most {most} characters] (got {value})"
    "[; it must not contain {unstorable}]",
)
TOO_MANY_BYTES = declare(
    "argument.too_many_bytes",
    "{name:parameter} must take at most {most} bytes as JSON (got {size})",
)
UNSEEN_CHARACTER = declare(
    "argument.unseen_character",
    "{name:parameter} must not contain the invisible character {character!r} (got {value})",
    "Remove it: names must not differ only in invisible characters",
)
RESERVED_NAME = declare(
    "argument.reserved_name",
    "{name:parameter} must not be {value!r}, which is reserved",
    "Choose another name; only deciders are written as role:NAME",
)
INVALID_DURATION = declare(
    "argument.duration",
    "{name:parameter} must be a duration (got {value})",
    'Pass text such as "30s", "5m" or "1h30m", or seconds',
)
NEGATIVE = declare("argument.negative", "{name:parameter} must not be negative (got {value})")
NOT_POSITIVE = declare(
    "argument.not_positive", "{name:parameter} must be greater than zero (got {value})"
)
NAIVE = declare(
    "argument.naive",
    "{name:parameter} needs a time zone (got {value})",
    "Pass datetime(..., tzinfo=UTC)",
)
TOO_MANY = declare(
    "argument.too_many", "{name:parameter} has {count}, more than the {most} allowed"
)
TOO_LONG = declare(
    "argument.too_long", "{name:parameter} has {length} characters, more than the {most} allowed"
)
EXCLUSIVE = declare("argument.exclusive", "{names:and} are mutually exclusive", "Pass one of them")
UNKNOWN = declare(
    "argument.unknown",
    "unknown {noun} {name!r}[; did you mean {nearest:or}?][; known: {known}]",
)

# Characters that databases cannot store: zero characters and lone surrogates.
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")

T = TypeVar("T")
P = ParamSpec("P")


def optional(
    shape: Callable[Concatenate[Any, str, P], T],
    value: Any,
    parameter: str,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T | None:
    """None, or the checked value: ``check.optional(check.name, by, "by")``."""
    return None if value is None else shape(value, parameter, *args, **kwargs)


def name(
    value: Any,
    parameter: str | Path,
    most: int | None = NAME_MAX,
    *,
    label: str = "",
) -> str:
    """A name or id that may be new: short, storable in every database, and without control
    characters, so that it is printed as it is. ``most=None`` allows any length.

    ``label`` replaces the parameter in the message.
    """
    found = stored_name(value, parameter, most, label=label)
    if fault := control_fault(found, parameter, label=label):
        raise InvalidInput(fault)
    if most is not None and len(found) * 4 > NAME_MAX_BYTES:  # four bytes are the most of any
        check_size(found, parameter, NAME_MAX_BYTES, label=label)
    return found


def check_size(
    value: str | Sequence[str], parameter: str | Path, most: int, *, label: str = ""
) -> None:
    """Reject a name, or names, that take more bytes than indexes have room for."""
    quotes = 2 if isinstance(value, str) else 0
    if (size := len(msgspec.json.encode(value)) - quotes) > most:
        place = (parameter,) if isinstance(parameter, str) else parameter
        raise InvalidInput(
            TOO_MANY_BYTES.fault(place, name=label or parameter, most=most, size=size)
        )


def control_fault(value: str, parameter: str | Path, *, label: str = "") -> Fault | None:
    """Why a string cannot be a name, if it has a control character."""
    place = (parameter,) if isinstance(parameter, str) else parameter
    if not (found := control_in(value)):
        return None
    return UNSEEN_CHARACTER.fault(
        place, name=label or parameter, value=safe_repr(value), character=found
    )


def stored_name(
    value: Any,
    parameter: str | Path,
    most: int | None = NAME_MAX,
    *,
    label: str = "",
) -> str:
    """A name or id of something that is stored, possibly since before ``name`` was as strict."""
    unstorable = _UNSTORABLE.search(value) if isinstance(value, str) else None
    is_too_long = most is not None and isinstance(value, str) and len(value) > most
    if not isinstance(value, str) or not value or is_too_long or unstorable:
        raise InvalidInput(
            INVALID_NAME.fault(
                (parameter,) if isinstance(parameter, str) else parameter,
                name=label or parameter,
                most=most,
                value=safe_repr(value),
                unstorable=unstorable and safe_repr(unstorable[0]),
            )
        )
    return value


def person(value: Any, parameter: str | Path, *, label: str = "") -> str:
    """The name of a user or a role, normalized so that equal names are equal strings.

    Refused are characters that cannot be seen, the prefix of roles, and reserved names.
    """
    found = stored_name(value, parameter, label=label)
    place, called = (parameter,) if isinstance(parameter, str) else parameter, label or parameter
    if unseen := unseen_in(found):
        raise InvalidInput(
            UNSEEN_CHARACTER.fault(place, name=called, value=safe_repr(value), character=unseen)
        )
    found = name(normal_name(found), parameter, label=label)
    if found.casefold().startswith(ROLE) or found.casefold() in RESERVED:
        raise InvalidInput(RESERVED_NAME.fault(place, name=called, value=found))
    return found


def decider(value: Any, parameter: str | Path, *, label: str = "") -> str:
    """The name of a user, or of a role as ``role:NAME``."""
    found = name(value, parameter, label=label)
    normal = normal_name(found)
    if normal.startswith(ROLE) and not unseen_in(found):
        return ROLE + person(normal.removeprefix(ROLE), parameter, label=label)
    return person(found, parameter, label=label)


def deciders(values: Any, parameter: str) -> tuple[str, ...]:
    """Several users and roles, in the order given."""
    return tuple(
        decider(each, (parameter, at), label=f"{parameter}[{at}]")
        for at, each in enumerate(listed(values, parameter, "names"))
    )


def text(value: Any, parameter: str, most: int = TEXT_MAX) -> str:
    """Free text for people, such as a reason or an error; may be empty.

    Characters that databases cannot store are escaped, since it may quote program output.
    """
    if not isinstance(value, str):
        raise wrong_type(value, parameter, "a string")
    if len(value) > most:
        raise InvalidInput(
            TOO_LONG.fault((parameter,), name=parameter, length=len(value), most=most)
        )
    return storable_text(value)


def flag(value: Any, parameter: str) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(value, parameter, "True or False")
    return value


def choice(value: Any, parameter: str, choices: Iterable[T]) -> T:
    known = tuple(choices)
    for each in known:
        if isinstance(value, str | type(each)) and value == each:
            return each
    names = tuple(str(each) for each in known)
    nearest = near(value, names, 1) if isinstance(value, str) else ()
    raise InvalidInput(
        NOT_A_CHOICE.fault(
            (parameter,), name=parameter, choices=names, value=safe_repr(value), nearest=nearest
        )
    )


def integer(value: Any, parameter: str, least: int | None = None, most: int | None = None) -> int:
    """An integer in a range; a bool is not a number here."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(value, parameter, "an integer")
    if (least is not None and value < least) or (most is not None and value > most):
        expected = f"at least {least}" if most is None else f"between {least} and {most}"
        raise out_of_range(value, parameter, expected)
    return value


def number(value: Any, parameter: str, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(value, parameter, "a number")
    if not value >= least:  # nor is NaN
        raise out_of_range(value, parameter, f"at least {least:g}")
    return value


def priority(value: Any, parameter: str = "priority") -> int:
    """A number, or its name."""
    if isinstance(value, str):
        return PRIORITY_NAMES[choice(value, parameter, PRIORITY_NAMES)]
    return integer(value, parameter, PRIORITY_MIN, PRIORITY_MAX)


def span(
    value: Any,
    parameter: str,
    *,
    is_positive: bool = False,
    least: timedelta = timedelta(0),
    most: timedelta = DURATION_MAX,
) -> timedelta:
    """A bounded, non-negative duration: seconds, a timedelta, or a string such as ``"1h30m"``."""
    found = parse_duration(value)
    if found is None:
        raise InvalidInput(
            INVALID_DURATION.fault((parameter,), name=parameter, value=safe_repr(value))
        )
    if found < timedelta(0):
        raise InvalidInput(NEGATIVE.fault((parameter,), name=parameter, value=safe_repr(value)))
    if is_positive and not found:
        raise InvalidInput(NOT_POSITIVE.fault((parameter,), name=parameter, value=safe_repr(value)))
    if found < least:
        raise out_of_range(value, parameter, f"at least {span_text(least)}")
    if found > most:
        days = f"{most.days} days" if most >= timedelta(days=2) else span_text(most)
        raise out_of_range(value, parameter, f"at most {days}")
    return found


def milliseconds(value: Any, parameter: str) -> int:
    """A duration in whole milliseconds, at least one."""
    found = span(value, parameter, is_positive=True) // timedelta(milliseconds=1)
    if not found:
        raise InvalidInput(
            OUT_OF_RANGE.fault(
                (parameter,), name=parameter, expected="at least 1ms", value=safe_repr(value)
            )
        )
    return found


def moment(value: Any, parameter: str) -> datetime:
    """An aware datetime that every database can store, in UTC."""
    if not isinstance(value, datetime):
        raise wrong_type(value, parameter, "a datetime")
    if value.utcoffset() is None:
        raise InvalidInput(NAIVE.fault((parameter,), name=parameter, value=safe_repr(value)))
    if not is_storable(value):
        expected = f"between the years {EARLIEST.year} and {LATEST.year}"
        raise out_of_range(value, parameter, expected)
    return value.astimezone(UTC)


def iterable(values: Any, parameter: str, of: str) -> Iterable[Any]:
    """Several values; rejects a single string, which would be iterated by character."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise wrong_type(values, parameter, f"a list of {of}")
    return values


def listed(values: Any, parameter: str, of: str, most: int | None = None) -> tuple[Any, ...]:
    """Like ``iterable``, as a list."""
    found = tuple(iterable(values, parameter, of))
    if most is not None and len(found) > most:
        raise InvalidInput(
            TOO_MANY.fault((parameter,), name=parameter, count=len(found), most=most)
        )
    return found


def names(values: Any, parameter: str, most: int | None = None) -> tuple[str, ...]:
    """Several names without duplicates, in their order."""
    found = listed(values, parameter, "strings", most)
    return tuple(
        dict.fromkeys(
            name(each, (parameter, index), label=f"{parameter}[{index}]")
            for index, each in enumerate(found)
        )
    )


def tags(values: Any, parameter: str = "tags") -> tuple[str, ...]:
    found = tuple(sorted(names(values, parameter, TAGS_MAX)))
    check_size(found, parameter, TAGS_MAX_BYTES)
    return found


def mapping(value: Any, parameter: str, of: str) -> dict[str, Any]:
    """A mapping by names, such as ``of="parameter names to values"``."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
        raise wrong_type(value, parameter, f"a mapping of {of}")
    return dict(value)


def instance(value: Any, parameter: str, found_type: type[T], expected: str) -> T:
    if not isinstance(value, found_type):
        raise wrong_type(value, parameter, expected)
    return value


def at_most_one(**given: Any) -> None:
    """Reject mutually exclusive parameters."""
    present = tuple(each for each, value in given.items() if value is not None)
    if len(present) > 1:
        raise InvalidInput(EXCLUSIVE.fault((present[1],), names=present))


def known(value: str, noun: str, names: Collection[str], *place: str | int) -> str:
    """Reject an unknown name, and suggest the nearest. ``place`` is the path to it."""
    if value not in names:
        nearest = near(value, names)
        listed = () if nearest else tuple(sorted(names))[:12]
        raise InvalidInput(
            UNKNOWN.fault((*place, value), noun=noun, name=value, nearest=nearest, known=listed)
        )
    return value


def out_of_range(value: Any, parameter: str, expected: str) -> InvalidInput:
    fault = OUT_OF_RANGE.fault(
        (parameter,), name=parameter, expected=expected, value=safe_repr(value)
    )
    return InvalidInput(fault)


def wrong_type(value: Any, parameter: str, expected: str) -> InvalidInput:
    fault = WRONG_TYPE.fault(
        (parameter,), name=parameter, expected=expected, value=safe_repr(value)
    )
    return InvalidInput(fault)


def check_times(job: NewJob) -> None:
    """Reject a job with times that cannot be stored."""
    if not (job.delay or job.run_at or job.deadline or job.deadline_at):
        return  # the common case
    for name, span in (("delay", job.delay), ("deadline", job.deadline)):
        if span is not None and abs(span) > DURATION_MAX:
            raise out_of_range(span, name, f"at most {DURATION_MAX.days} days")
    for name, moment in (("run_at", job.run_at), ("deadline", job.deadline_at)):
        if moment is not None and not is_storable(moment):
            years = f"between the years {EARLIEST.year} and {LATEST.year}"
            raise out_of_range(moment, name, years)


def reachable(outcome: Retried) -> Retried:
    """Clamp the times of an outcome; rejecting it would leave its job unfinished."""
    until = outcome.until
    return replace(
        outcome,
        delay=nearest_duration(outcome.delay),
        hold_off=nearest_duration(outcome.hold_off),
        until=None if until is None else nearest_storable(until),
    )
