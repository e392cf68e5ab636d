"""The ``http`` node type: one request to a service; the status may choose the port.

``destination`` validates URLs, ``HttpNodeType.send`` sends the request, ``result_of`` converts the
response; ``nodes.network`` restricts the addresses.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Meta, field
from msgspec.structs import replace

from perdure.diagnostics import Code, Fault, declare, render
from perdure.errors import InvalidInput, PerdureError, Permanent, RetryLater
from perdure.model import check
from perdure.model.payload import to_json
from perdure.model.text import first_words, json_preview, preview, type_name
from perdure.model.value import Value
from perdure.nodes.config import (
    Span,
    duration_faults,
    foreign_json,
    has_template,
    named_ports,
    port_faults,
    port_of,
    seconds_of,
)
from perdure.tasks.context import BaseContext, Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import Complete, complete
from perdure.tasks.secret import UNQUOTED_IN_URLS

if TYPE_CHECKING:
    import ssl

    from perdure.nodes.network import Allowed, CheckedConnection


ALLOW_VARIABLE = "PERDURE_HTTP_ALLOW"
"""Non-public addresses that a worker may reach, separated by commas; read at each use."""
BODY_DEFAULT_BYTES = 1024 * 1024
BODY_MAX_BYTES = 64 * 1024 * 1024
TIMEOUT_MAX = timedelta(days=1)
HEADERS_MAX = 100
"""The limit for a request, and for a response."""

_STATUS = re.compile(r"[1-5](?:[0-9][0-9]|xx)")
_HAVE_BODIES = ("POST", "PUT", "PATCH")
_WITHOUT_BODY = (204, 304)

INVALID_STATUS = declare(
    "http.invalid_status", "{status!r} is not a status such as 404, or a class such as 4xx"
)
RESPONSE_TOO_LARGE = declare(
    "http.response_too_large",
    "the response of {url} has more than {most} bytes",
    "Increase max_bytes if that is intended",
)

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class HttpNodeType(NodeType):
    """The base of node types that send one request to the ``url`` of their config.

    Only public addresses are reachable, unless others are allowed here or in the worker's
    environment.
    """

    def __init__(self, allow: Iterable[str] = (), *, allow_private: bool = False) -> None:
        entries = [allow] if isinstance(allow, str) else list(allow)
        self._allow = (*entries, "*") if allow_private else tuple(entries)
        if self._allow:
            self._allowed()  # a mistake is reported here, not on a worker

    def send(
        self, request: HttpRequest, timeout: Span, max_bytes: int, ctx: BaseContext
    ) -> HttpResponse:
        """The response, whatever its status; ``OSError`` if there is none."""
        # Imported with the first request: most flows have no such node.
        from perdure.nodes.network import CheckedConnection, unlogged

        connection = CheckedConnection(
            request.to.origin,
            seconds_of(timeout, "timeout", TIMEOUT_MAX),
            self._allowed(),
            ctx.abort_signal,
        )
        try:
            tls = self._tls if request.to.scheme == "https" else None
            with unlogged():
                answer = _exchange(request, connection, tls, max_bytes)
        except (OSError, PerdureError):
            ctx.check()  # after an abort, the error is only its consequence
            raise
        finally:
            connection.close()
        ctx.check()
        return answer

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        faults = duration_faults(config, "timeout", most=TIMEOUT_MAX)
        headers = config.get("headers", {})
        if isinstance(headers, Mapping):
            for name, value in headers.items():
                if fault := header_fault(name, None if has_template(value) else value):
                    faults.append(fault)
        url = config.get("url")
        if url is not None and not has_template(url):
            try:
                destination(url)
            except InvalidInput as error:
                faults += error.faults
        return faults

    def destinations_of(self, config: Any) -> tuple[str, ...]:
        config = check.instance(config, "config", dict, "an object")
        return (destination(check.instance(config.get("url"), "url", str, "a string")).origin,)

    def _allowed(self) -> Allowed:
        from perdure.nodes.network import Allowed

        there = os.environ.get(ALLOW_VARIABLE, "").split(",")
        return Allowed([*self._allow, *(entry for entry in there if entry.strip())])

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        import ssl

        return ssl.create_default_context()


class Http(HttpNodeType):
    """Sends one request; the response is the output, and its status may choose the port.

    Only public addresses are reachable, unless others are allowed here or in the worker's
    environment. Redirects are not followed: they are responses like any other.
    """

    name = "http"

    class Config(NodeConfig):
        url: str
        method: Method = "GET"
        headers: dict[str, str | int | float | bool | None] = field(default_factory=dict)
        query: dict[str, Any] = field(default_factory=dict)
        """Added to the URL: strings, numbers, or lists of them; null is left out."""
        body: Any = None
        """Strings are sent unchanged, other values as JSON; null sends no body."""
        timeout: Span = "30s"
        """For the whole exchange: name resolution, connection, request and response."""
        status: dict[str, str] = field(default_factory=dict)
        """The port to continue on, by status or class of statuses such as ``4xx``."""
        max_bytes: Annotated[int, Meta(ge=1, le=BODY_MAX_BYTES)] = BODY_DEFAULT_BYTES
        """A longer response fails the node."""

    def execute(self, config: Config, ctx: Context) -> Complete:
        to = destination(config.url, config.query)
        body, content_type = None, ""
        if isinstance(config.body, str):
            body, content_type = config.body.encode(), "text/plain; charset=utf-8"
        elif config.body is not None:
            body = to_json(config.body, "body", BODY_MAX_BYTES)
            content_type = "application/json"
        elif config.method in _HAVE_BODIES:
            body = b""
        request = HttpRequest(
            method=config.method,
            to=to,
            headers=request_headers(
                config.headers, to, config.method, content_type, ctx.idempotency_key
            ),
            body=body,
        )
        answer = self.send(request, config.timeout, config.max_bytes, ctx)
        return result_of(answer, config.status, f"{config.method} {to.origin}", ctx)

    def ports_of(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        return named_ports(config.get("status"))

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        faults = super().faults_of(config)
        status = config.get("status", {})
        if isinstance(status, Mapping):
            for name, port in status.items():
                if not _STATUS.fullmatch(name):
                    faults.append(INVALID_STATUS.fault(("status", name), status=name))
                else:
                    faults += port_faults(port, "status", name)
        return faults


class HttpRequest(Value):
    method: str
    to: Destination
    headers: tuple[tuple[str, str], ...]
    body: bytes | None


class HttpResponse(Value):
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str:
        """The first header with this lowercase name; empty if there is none."""
        return next((value for key, value in self.headers if key.lower() == name), "")


def _exchange(
    request: HttpRequest, network: CheckedConnection, tls: ssl.SSLContext | None, body_max: int
) -> HttpResponse:
    """Send the request and read the response; ``ConnectionError`` if it is incomplete."""
    import httpcore

    to = request.to
    url = httpcore.URL(
        scheme=to.scheme.encode(), host=to.host.encode(), port=to.port, target=to.target.encode()
    )
    # A separate connection, not a pool: no proxies, no redirects, and no state is left for the
    # next request.
    connection = httpcore.HTTPConnection(url.origin, ssl_context=tls, network_backend=network)
    headers = [(name.encode(), value.encode("latin-1")) for name, value in request.headers]
    too_large = Permanent(RESPONSE_TOO_LARGE.fault(url=to.origin, most=body_max))
    body = bytearray()
    try:
        with connection.stream(
            request.method, url, headers=headers, content=request.body
        ) as response:
            if response.status < 200:
                raise httpcore.RemoteProtocolError(f"status {response.status} is never the last")
            if len(response.headers) > HEADERS_MAX:
                raise httpcore.RemoteProtocolError(f"more than {HEADERS_MAX} headers")
            found = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in response.headers)
            answer = HttpResponse(status=response.status, headers=found, body=b"")
            has_body = request.method != "HEAD" and response.status not in _WITHOUT_BODY
            if has_body and int(answer.header("content-length") or 0) > body_max:
                raise too_large
            for chunk in response.iter_stream():
                body += chunk
                if len(body) > body_max:
                    raise too_large
    except httpcore.ProtocolError as error:
        what = "ended too early (IncompleteRead)" if network.has_ended else "is not valid HTTP"
        reason = str(error).partition(":")[0]  # after that, it quotes the response
        raise ConnectionError(f"the response of {to.origin} {what}: {reason}") from None
    return replace(answer, body=bytes(body))


URL_MAX = 16_384
HOST_MAX = 253

_PORTS = {"http": 80, "https": 443}
# Control characters, spaces and backslashes: some URL parsers drop them or read them as "/".
_MISLEADING = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|[0-9a-f:.]+", re.IGNORECASE)

URL_TOO_LONG = declare("http.url_too_long", "url has more than {most} characters")
URL_CHARACTERS = declare(
    "http.url_characters", "url must not contain spaces, backslashes or control characters"
)
URL_SCHEME = declare("http.url_scheme", "url must start with http:// or https://")
URL_CREDENTIALS = declare(
    "http.url_credentials", "url has a user or password before the host; use a header for them"
)
URL_UNREADABLE = declare("http.url_unreadable", "url cannot be parsed: its host is invalid")
URL_HOST = declare("http.url_host", "url has no valid host")
URL_PORT = declare("http.url_port", "the port in url must be from 1 to 65535")
TARGET_TOO_LONG = declare("http.target_too_long", "url and query have more than {most} characters")
QUERY_TYPE = declare(
    "http.query_type",
    "query {parameter!r} must be a string, a number or a list of them, not {found}",
)


class Destination(Value):
    """Host and port to connect to, and the request target."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query."""

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """The URL for messages: the rest may contain keys."""
        return f"{self.scheme}://{self.host_header}"


def destination(url: str, query: Mapping[str, Any] | None = None) -> Destination:
    """Parse a URL; ``InvalidInput`` does not quote it, because it may contain keys."""

    def refused(code: Code, **args: Any) -> InvalidInput:
        return InvalidInput(code.fault(("url",), name="url", **args))

    if len(url) > URL_MAX:
        raise refused(URL_TOO_LONG, most=URL_MAX)
    if _MISLEADING.search(url):
        raise refused(URL_CHARACTERS)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise refused(URL_UNREADABLE) from error
    if parts.scheme not in _PORTS:
        raise refused(URL_SCHEME)
    if "@" in parts.netloc:
        raise refused(URL_CREDENTIALS)

    host = parts.hostname or ""
    try:
        if not host.isascii() and len(host) <= HOST_MAX:
            host = host.encode("idna").decode()
    except UnicodeError as error:
        raise refused(URL_HOST) from error
    host = host.removesuffix(".")
    if not host or len(host) > HOST_MAX or not _HOST.fullmatch(host):
        raise refused(URL_HOST)

    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise refused(URL_PORT)

    pairs: list[tuple[str, str]] = []
    for name, value in (query or {}).items():
        for each in value if isinstance(value, list) else [] if value is None else [value]:
            if not isinstance(each, str | int | float):
                fault = QUERY_TYPE.fault(
                    ("query", name), name=name, parameter=preview(name), found=type_name(each)
                )
                raise InvalidInput(fault)
            pairs.append((name, each if isinstance(each, str) else json_preview(each)))
    asked = "&".join(filter(None, [quote(parts.query, safe=UNQUOTED_IN_URLS), urlencode(pairs)]))
    path = quote(parts.path or "/", safe=UNQUOTED_IN_URLS)
    target = f"{path}?{asked}" if asked else path
    if len(target) > URL_MAX:
        raise refused(TARGET_TOO_LONG, most=URL_MAX)
    return Destination(
        scheme=parts.scheme, host=host.lower(), port=port or _PORTS[parts.scheme], target=target
    )


HeaderValue = str | int | float | bool | None

VALUE_MAX = 16_384

IDEMPOTENCY_KEY = "Idempotency-Key"
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})

# Headers that frame or route the message, which a flow must not set: a second length would let
# two parsers see two different requests (request smuggling).
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

HEADER_NAME = declare("http.header_name", "{header!r} is not a valid header name")
HEADER_RESERVED = declare(
    "http.header_reserved", "{header!r} cannot be set: it is derived from the request"
)
HEADER_CONTROL_CHARACTER = declare(
    "http.header_control_character",
    "{header!r} must not contain line breaks or other control characters",
)
HEADER_TOO_LONG = declare("http.header_too_long", "{header!r} has more than {most} characters")
HEADER_CHARACTERS = declare(
    "http.header_characters", "{header!r} has characters that are not allowed in headers"
)
TOO_MANY_HEADERS = declare("http.too_many_headers", "more than {most} headers")


def header_fault(name: str, value: HeaderValue) -> Fault | None:
    """Why this header cannot be sent, if so. Does not quote the value: it may be a key."""
    where = ("headers", name)
    if not _NAME.fullmatch(name):
        return HEADER_NAME.fault(where, header=preview(name))
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
    """All headers except the length, which depends on the body. Null headers are left out."""
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
"""Upper bound for a service's ``Retry-After``."""

_TRANSIENT = frozenset({408, 425, 429})
_BUSY = frozenset({429, 503})
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)
_CHARSET = re.compile(r"charset\s*=\s*\"?([\w-]+)", re.IGNORECASE)
# Only these: decoders of other charsets can be slow on hostile input, or invent characters.
_ENCODINGS = frozenset({"utf-8", "us-ascii", "iso-8859-1", "windows-1252"})
_QUOTED_MAX = 200
"""Characters of a response in an error message."""


REQUEST_FAILED = declare("http.request_failed", "{request} returned status {status}[: {beginning}]")


class HttpFailed(PerdureError):
    """The request failed. The node's retries apply."""


def result_of(
    answer: HttpResponse, ports: Mapping[str, str], what: str, ctx: BaseContext
) -> Complete:
    """The node's result. ``what`` describes the request in errors."""
    body, encoding = _body(answer, ctx)
    port = ports.get(str(answer.status), ports.get(f"{answer.status // 100}xx"))
    if port is None and answer.status >= 400:
        text = ""
        if answer.body and encoding != "base64":
            text = body if isinstance(body, str) else answer.body.decode(errors="replace")
        # Masked before truncation, which could leave an unmasked part of a secret.
        beginning = first_words(ctx.mask(text), _QUOTED_MAX)
        raise failure_of(answer, what, beginning)

    headers: dict[str, str] = {}
    for name, value in answer.headers:
        key = name.lower()
        # Headers of one name are joined with commas; cookies may contain commas themselves.
        joint = "\n" if key == "set-cookie" else ", "
        headers[key] = f"{headers[key]}{joint}{value}" if key in headers else value
    output = {"status": answer.status, "headers": headers, "body": body, "encoding": encoding}
    return complete(output, port_of(port))


def failure_of(answer: HttpResponse, what: str, beginning: str) -> PerdureError:
    """The error of a response with this status. ``beginning`` of its body must be masked."""
    fault = REQUEST_FAILED.fault(request=what, status=answer.status, beginning=beginning)
    if answer.status in _BUSY and (delay := _retry_after(answer)) is not None:
        return RetryLater(render(fault), after=min(delay, RETRY_AFTER_MAX))
    if answer.status in _TRANSIENT or answer.status >= 500:
        return HttpFailed(fault)
    return Permanent(fault)


def _body(answer: HttpResponse, ctx: BaseContext) -> tuple[Any, str]:
    """The body as JSON, text or base64, and the name of that encoding."""
    content_type = answer.header("content-type")
    if _JSON.match(content_type):
        try:
            return foreign_json(answer.body), "json"
        except (ValueError, RecursionError):
            pass  # not JSON despite its content type
    found = _CHARSET.search(content_type)
    charset = found[1].lower() if found else "utf-8"
    try:
        text = answer.body.decode(charset if charset in _ENCODINGS else "utf-8")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        # Masked before it is encoded: in base64 of a longer text, a secret is not recognized.
        return b64encode(ctx.mask(answer.body)).decode(), "base64"
    return text, "text"


def _retry_after(answer: HttpResponse) -> timedelta | None:
    """The delay in ``Retry-After``; a date is relative to the service's own clock."""
    given = answer.header("retry-after").strip()
    if given.isascii() and given.isdecimal() and len(given) < 10:
        return timedelta(seconds=int(given))
    try:
        delay = parsedate_to_datetime(given) - parsedate_to_datetime(answer.header("date"))
    except (TypeError, ValueError, OverflowError):
        return None
    return max(delay, timedelta(0))
