"""``http``: one request to a service, and the way to go by its status."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, field

from perdure.client.context import Context
from perdure.diagnostics import Fault, declare
from perdure.errors import InvalidInput, PerdureError
from perdure.model.graph import DEFAULT_PORT
from perdure.model.payload import to_json
from perdure.model.result import Complete
from perdure.nodes.config import Span, duration_faults, has_template, port_faults, seconds_of
from perdure.nodes.kind import Kind, Settings

if TYPE_CHECKING:
    import ssl

    from perdure.nodes.addresses import Allowed
    from perdure.nodes.exchange import Request

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
        from perdure.nodes.answer import result_of
        from perdure.nodes.exchange import Limits, exchange

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
        from perdure.nodes.destination import destination
        from perdure.nodes.headers import header_fault

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
        from perdure.nodes.addresses import Allowed

        there = os.environ.get(ALLOW_VARIABLE, "").split(",")
        return Allowed([*self._allow, *(entry for entry in there if entry.strip())])

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        import ssl

        return ssl.create_default_context()


def _request(config: Http.Config, idempotency_key: str) -> Request:
    from perdure.nodes.destination import destination
    from perdure.nodes.exchange import Request
    from perdure.nodes.headers import request_headers

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
