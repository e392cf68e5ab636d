"""``http``: one request to a service; its status decides the port."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from msgspec import Meta, field

from perdure.diagnostics import Fault, declare, render
from perdure.errors import InvalidInput, PerdureError, Permanent, RetryLater
from perdure.model.graph import DEFAULT_PORT, ORDINARY
from perdure.model.payload import from_json, to_json
from perdure.model.text import cut
from perdure.nodes.config import Span, duration_faults, has_template, port_faults, seconds_of
from perdure.nodes.script import whole_head
from perdure.tasks.context import Context
from perdure.tasks.node_type import Kind, Settings
from perdure.tasks.result import Complete, complete

if TYPE_CHECKING:
    import ssl

    from perdure.nodes.network import Allowed, Answer, Destination, Request


ALLOW_VARIABLE = "PERDURE_HTTP_ALLOW"
"""What a worker may reach besides public addresses, with commas in between; read at each use."""
BODY_DEFAULT_BYTES = 1024 * 1024
BODY_MAX_BYTES = 64 * 1024 * 1024

TIMEOUT_MAX = timedelta(days=1)

_STATUS = re.compile(r"[1-5](?:[0-9][0-9]|xx)")

INVALID_STATUS = declare(
    "http.invalid_status", "{status!r} is not a status such as 404, or a class such as 4xx"
)

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Http(Kind):
    """Sends one request; the answer is the output, and its status may choose the port.

    Only public addresses are reached, unless others are allowed here or by the worker's
    environment. Redirects are not followed: they are answers like any other.
    """

    name = "http"

    class Config(Settings):
        url: str
        method: Method = "GET"
        headers: dict[str, str | int | float | bool | None] = field(default_factory=dict)
        query: dict[str, Any] = field(default_factory=dict)
        """Added to the URL: texts, numbers, or lists of them; null is left out."""
        body: Any = None
        """A text is sent as it is, all else as JSON; null: nothing."""
        timeout: Span = "30s"
        """For all of it: finding the address, connecting, sending, and the whole answer."""
        status: dict[str, str] = field(default_factory=dict)
        """A status, or a class of them such as ``4xx``, and the port to go on from."""
        max_bytes: Annotated[int, Meta(ge=1, le=BODY_MAX_BYTES)] = BODY_DEFAULT_BYTES
        """A longer answer fails the node."""

    def __init__(self, allow: Iterable[str] = (), *, allow_private: bool = False) -> None:
        entries = [allow] if isinstance(allow, str) else list(allow)
        self._allow = (*entries, "*") if allow_private else tuple(entries)
        if self._allow:
            self._allowed()  # a mistake is told here, not on a worker

    def execute(self, config: Config, ctx: Context) -> Complete:
        from perdure.nodes.network import Limits, exchange

        request = _request(config, ctx.idempotency_key)
        seconds = seconds_of(config.timeout, "timeout", TIMEOUT_MAX)
        limits = Limits(seconds=seconds, body_max=config.max_bytes)
        try:
            answer = exchange(request, limits, self._allowed(), ctx.abort_signal, lambda: self._tls)
        except (OSError, PerdureError):
            ctx.check()  # aborted: whatever went wrong is a consequence
            raise
        ctx.check()
        return result_of(answer, config.status, f"{request.method} {request.to.shown}")

    def ports_of(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        status = config.get("status")
        ports = status.values() if isinstance(status, Mapping) else ()
        return tuple(dict.fromkeys(port for port in ports if port != DEFAULT_PORT))

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        from perdure.nodes.network import destination

        faults = duration_faults(config, "timeout", most=TIMEOUT_MAX)
        headers = config.get("headers", {})
        if isinstance(headers, Mapping):
            for name, value in headers.items():
                if fault := header_fault(name, None if has_template(value) else value):
                    faults.append(fault)
        status = config.get("status", {})
        if isinstance(status, Mapping):
            for name, port in status.items():
                if not _STATUS.fullmatch(name):
                    faults.append(INVALID_STATUS.fault(("status", name), status=name))
                else:
                    faults += port_faults(port, "status", name)
        url = config.get("url")
        if url is not None and not has_template(url):
            try:
                destination(url)
            except InvalidInput as error:
                faults += error.faults
        return faults

    def _allowed(self) -> Allowed:
        from perdure.nodes.network import Allowed

        there = os.environ.get(ALLOW_VARIABLE, "").split(",")
        return Allowed([*self._allow, *(entry for entry in there if entry.strip())])

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        import ssl

        return ssl.create_default_context()


def _request(config: Http.Config, idempotency_key: str) -> Request:
    from perdure.nodes.network import Request, destination

    to = destination(config.url, config.query)
    body, content_type = _sent(config.body)
    headers = request_headers(config.headers, to, config.method, content_type, idempotency_key)
    return Request(method=config.method, to=to, headers=headers, body=body)


def _sent(body: Any) -> tuple[bytes | None, str]:
    """The body as it is sent, and the type of content that it is unless a header says another."""
    match body:
        case None:
            return None, ""
        case str():
            return body.encode(), "text/plain; charset=utf-8"
        case _:
            return to_json(body, "body", BODY_MAX_BYTES), "application/json"


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
        request=what, status=answer.status, beginning=whole_head(text, _TOLD_MAX)
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
