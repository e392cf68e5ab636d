"""The headers of a request: what a flow may set, and what is added for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

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


def header_fault(name: str, value: HeaderValue) -> str:
    """Why this header cannot be sent; empty if it can. Values are not told: keys are in them."""
    if not _NAME.fullmatch(name):
        return f"{cut(name)!r} is not the name of a header"
    if name.lower() in _OURS:
        return f"{name!r} cannot be set: it follows from the request"
    text = header_text(value)
    if _UNSENDABLE.search(text):
        return f"{name!r} has a line break or another control character in it"
    if len(text) > VALUE_MAX:
        return f"{name!r} has more than {VALUE_MAX} characters"
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return f"{name!r} has characters that headers cannot carry"
    return ""


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
        raise InvalidInput(f"there are more than {HEADERS_MAX} headers")
    for name, value in given.items():
        if fault := header_fault(name, value):
            raise InvalidInput(f"headers: {fault}")
    headers = {"Host": to.host_header, "Connection": "close", "User-Agent": "perdure"}
    if content_type:
        headers["Content-Type"] = content_type
    if method in _CHANGING:
        headers[IDEMPOTENCY_KEY] = quote(idempotency_key, safe=_KEPT_IN_KEYS)
    named = {name.lower() for name in given}
    added = [(name, value) for name, value in headers.items() if name.lower() not in named]
    own = [(name, header_text(value).strip()) for name, value in given.items() if value is not None]
    return (*added, *own)
