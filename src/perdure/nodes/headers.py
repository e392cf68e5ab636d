"""The headers of a request: what a flow may set, and what is added for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from perdure.diagnostics import Fault, declare
from perdure.errors import InvalidInput
from perdure.model.payload import to_json
from perdure.model.showing import cut
from perdure.nodes.destination import Destination

HeaderValue = str | int | float | bool | None

HEADERS_MAX = 100
VALUE_MAX = 16_384

IDEMPOTENCY_KEY = "Idempotency-Key"
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})

# They say how the message itself is cut and passed on, which is not the flow's to say: a second
# length would let two readers see two different requests.
_OURS = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "accept-encoding",
    }
)
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_KEPT_IN_KEYS = ":/[]~@+,=;!*'()"

HEADER_NAME = declare("http.header_name", "{header!r} is not the name of a header")
HEADER_RESERVED = declare(
    "http.header_reserved", "{header!r} cannot be set: it follows from the request"
)
HEADER_CONTROL_CHARACTER = declare(
    "http.header_control_character",
    "{header!r} has a line break or another control character in it",
)
HEADER_TOO_LONG = declare("http.header_too_long", "{header!r} has more than {most} characters")
HEADER_CHARACTERS = declare(
    "http.header_characters", "{header!r} has characters that headers cannot carry"
)
TOO_MANY_HEADERS = declare("http.too_many_headers", "there are more than {most} headers")


def header_fault(name: str, value: HeaderValue) -> Fault | None:
    """Why this header cannot be sent, if it cannot. Values are not told: keys are in them."""
    where = ("headers", name)
    if not _NAME.fullmatch(name):
        return HEADER_NAME.fault(where, header=cut(name))
    if name.lower() in _OURS:
        return HEADER_RESERVED.fault(where, header=name)
    text = header_text(value)
    if _UNSENDABLE.search(text):
        return HEADER_CONTROL_CHARACTER.fault(where, header=name)
    if len(text) > VALUE_MAX:
        return HEADER_TOO_LONG.fault(where, header=name, most=VALUE_MAX)
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return HEADER_CHARACTERS.fault(where, header=name)
    return None


def header_text(value: HeaderValue) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value, "header").decode()


def request_headers(
    given: Mapping[str, HeaderValue],
    to: Destination,
    method: str,
    content_type: str,
    idempotency_key: str,
) -> tuple[tuple[str, str], ...]:
    """All headers but the length, which goes with the body. A header that is null is left out."""
    if len(given) > HEADERS_MAX:
        raise InvalidInput(TOO_MANY_HEADERS.fault(("headers",), most=HEADERS_MAX))
    for name, value in given.items():
        if fault := header_fault(name, value):
            raise InvalidInput(fault)
    headers = {"Host": to.host_header, "Connection": "close", "User-Agent": "perdure"}
    if content_type:
        headers["Content-Type"] = content_type
    if method in _CHANGING:
        headers[IDEMPOTENCY_KEY] = quote(idempotency_key, safe=_KEPT_IN_KEYS)
    named = {name.lower() for name in given}
    added = [(name, value) for name, value in headers.items() if name.lower() not in named]
    own = [(name, header_text(value).strip()) for name, value in given.items() if value is not None]
    return (*added, *own)
