"""What an HTTP answer means for a node: an output and a port, or a failure of some sort."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from perdure.diagnostics import declare, render
from perdure.errors import PerdureError, Permanent, RetryLater
from perdure.model.graph import DEFAULT_PORT, ORDINARY
from perdure.model.payload import from_json
from perdure.model.result import Complete, complete
from perdure.nodes.excerpt import beginning
from perdure.nodes.exchange import Answer

RETRY_AFTER_MAX = timedelta(hours=1)
"""However long a service asks to be left alone, it is asked again after this time."""

_TRANSIENT = frozenset({408, 425, 429})
_BUSY = frozenset({429, 503})
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)
_CHARSET = re.compile(r"charset\s*=\s*\"?([\w-]+)", re.IGNORECASE)
# Only these: decoders of others can be made to work very long, or to make up characters.
_ENCODINGS = frozenset({"utf-8", "us-ascii", "iso-8859-1", "windows-1252"})
_TOLD_MAX = 200
"""How many characters of an answer an error tells."""


REQUEST_FAILED = declare(
    "http.request_failed", "{request} was answered with {status}[: {beginning}]"
)


class HttpFailed(PerdureError):
    """The service could not do it this time: the node's retries decide what follows."""


def result_of(answer: Answer, ports: Mapping[str, str], what: str) -> Complete:
    """The node's result. ``what`` is the request, as an error tells it."""
    port = ports.get(str(answer.status), ports.get(f"{answer.status // 100}xx"))
    if port is None:
        if answer.status >= 400:
            raise _failure(answer, what)
        port = ORDINARY
    return complete(_output(answer), ORDINARY if port == DEFAULT_PORT else port)


def _failure(answer: Answer, what: str) -> PerdureError:
    body, encoding = _body(answer)
    text = ""
    if answer.body and encoding != "base64":
        text = body if isinstance(body, str) else answer.body.decode(errors="replace")
    fault = REQUEST_FAILED.fault(
        request=what, status=answer.status, beginning=beginning(text, _TOLD_MAX)
    )
    if answer.status in _BUSY and (delay := _retry_after(answer)) is not None:
        return RetryLater(render(fault), after=min(delay, RETRY_AFTER_MAX))
    if answer.status in _TRANSIENT or answer.status >= 500:
        return HttpFailed(fault)
    return Permanent(fault)


def _retry_after(answer: Answer) -> timedelta | None:
    """How long the service asks to be left alone; by its own clock, where it names a time."""
    given = answer.header("retry-after").strip()
    if given.isascii() and given.isdecimal() and len(given) < 10:
        return timedelta(seconds=int(given))
    try:
        delay = parsedate_to_datetime(given) - parsedate_to_datetime(answer.header("date"))
    except (TypeError, ValueError, OverflowError):
        return None
    return max(delay, timedelta(0))


def _output(answer: Answer) -> dict[str, Any]:
    body, encoding = _body(answer)
    return {
        "status": answer.status,
        "headers": _headers(answer),
        "body": body,
        "encoding": encoding,
    }


def _headers(answer: Answer) -> dict[str, str]:
    """By name in lower case; several of one name are joined."""
    headers: dict[str, str] = {}
    for name, value in answer.headers:
        key = name.lower()
        # Cookies have commas of their own.
        joint = "\n" if key == "set-cookie" else ", "
        headers[key] = f"{headers[key]}{joint}{value}" if key in headers else value
    return headers


def _body(answer: Answer) -> tuple[Any, str]:
    content_type = answer.header("content-type")
    if _JSON.match(content_type):
        try:
            return from_json(answer.body), "json"
        except (ValueError, RecursionError):
            pass  # said to be JSON, but it is not
    found = _CHARSET.search(content_type)
    charset = found[1].lower() if found else "utf-8"
    try:
        text = answer.body.decode(charset if charset in _ENCODINGS else "utf-8")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        return b64encode(answer.body).decode(), "base64"
    return text, "text"
