"""The formats that forms check; any other ``format`` is only an annotation.

A ``date-time`` needs a UTC offset; for a ``time``, it is optional.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from types import MappingProxyType
from urllib.parse import urlsplit

from perdure.expr.pattern import pattern_fault

_TEXT_MAX = 2_000
_EMAIL_MAX = 254
_HOSTNAME_MAX = 253
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_ISO_DATE_LENGTH = len("2031-01-01")
_UUID_LENGTH = 36


def _is_date(text: str) -> bool:
    return len(text) == _ISO_DATE_LENGTH and isinstance(date.fromisoformat(text), date)


def _is_date_time(text: str) -> bool:
    return datetime.fromisoformat(text).tzinfo is not None


def _is_time(text: str) -> bool:
    return ":" in text and isinstance(time.fromisoformat(text), time)


def _is_email(text: str) -> bool:
    name, at, host = text.rpartition("@")
    is_plain = bool(name and at) and "@" not in name and not any(map(str.isspace, text))
    return is_plain and len(text) <= _EMAIL_MAX and _is_hostname(host)


def _is_hostname(text: str) -> bool:
    labels = text.split(".")
    return len(text) <= _HOSTNAME_MAX and all(_LABEL.fullmatch(label) for label in labels)


def _is_uri(text: str) -> bool:
    parts = urlsplit(text)
    has_body = bool(parts.netloc or parts.path)
    return has_body and bool(_SCHEME.fullmatch(parts.scheme)) and not any(map(str.isspace, text))


def _is_uuid(text: str) -> bool:
    return len(text) == _UUID_LENGTH and str(uuid.UUID(text)) == text.lower()


def _is_ipv4(text: str) -> bool:
    return bool(ipaddress.IPv4Address(text).exploded)


def _is_ipv6(text: str) -> bool:
    return bool(ipaddress.IPv6Address(text).exploded)


def _is_pattern(text: str) -> bool:
    return not pattern_fault(text)


def _guarded(fits: Callable[[str], bool]) -> Callable[[str], bool]:
    """Parsers raise for invalid strings; very long strings are not parsed at all."""

    def check(text: str) -> bool:
        try:
            return len(text) <= _TEXT_MAX and fits(text)
        except ValueError:
            return False

    return check


FORMATS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "date": _guarded(_is_date),
        "date-time": _guarded(_is_date_time),
        "time": _guarded(_is_time),
        "email": _guarded(_is_email),
        "hostname": _guarded(_is_hostname),
        "uri": _guarded(_is_uri),
        "uuid": _guarded(_is_uuid),
        "ipv4": _guarded(_is_ipv4),
        "ipv6": _guarded(_is_ipv6),
        "regex": _guarded(_is_pattern),
    }
)
