"""One HTTP request and its answer, within a time, over a connection to an address that was checked.

The name is resolved once, every address that it has must be permitted, and the connection goes to
one of these very addresses: between the check and the use nothing can change.
"""

from __future__ import annotations

import io
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any

from perdure import clock
from perdure.client.context import AbortSignal
from perdure.diagnostics import declare
from perdure.errors import Permanent
from perdure.model.value import Value
from perdure.nodes.addresses import Address, Allowed
from perdure.nodes.destination import Destination

_CHUNK = 65_536
_HAVE_BODIES = ("POST", "PUT", "PATCH")

NOT_PUBLIC = declare(
    "http.not_public",
    "{url} leads to {address}, which is not a public address",
    "Allow it on the worker if it is meant: PERDURE_HTTP_ALLOW, or Http(allow=...)",
)
RESPONSE_TOO_LARGE = declare(
    "http.response_too_large",
    "the answer of {url} has more than {most} bytes; raise max_bytes if that is meant",
)


class Request(Value):
    method: str
    to: Destination
    headers: tuple[tuple[str, str], ...]
    body: bytes | None


class Answer(Value):
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str:
        """The first of that name, in lower case; empty if there is none."""
        return next((value for key, value in self.headers if key.lower() == name), "")


class Limits(Value):
    """What one exchange may cost."""

    seconds: float
    body_max: int


def exchange(
    request: Request,
    limits: Limits,
    allowed: Allowed,
    abort: AbortSignal,
    tls: Callable[[], ssl.SSLContext],
) -> Answer:
    """Send, and read the answer. ``Permanent`` if the address or the answer is not acceptable."""
    deadline = _Deadline(limits.seconds, request.to.shown)
    addresses = _checked_addresses(request.to, allowed, deadline)
    wire = _Wire(_connected(request.to, addresses, deadline), deadline)
    try:
        abort.on_fire(lambda _reason: wire.cut())
        if abort.is_set():
            wire.cut()
        if request.to.scheme == "https":
            wire.secure(tls(), request.to.host)
        return _answer(wire, request, limits.body_max)
    except TimeoutError as error:
        raise deadline.exceeded() from error
    except HTTPException as error:
        told = f"{type(error).__name__}: {error}"
        raise ConnectionError(f"{request.to.shown} gave no proper HTTP answer: {told}") from error
    finally:
        wire.end()


class _Deadline:
    """When the whole exchange must be over."""

    def __init__(self, seconds: float, what: str) -> None:
        self._seconds = seconds
        self._until = clock.monotonic() + seconds
        self._what = what

    def left(self) -> float:
        left = self._until - clock.monotonic()
        if left <= 0:
            raise self.exceeded()
        return left

    def exceeded(self) -> TimeoutError:
        return TimeoutError(f"{self._what} did not answer in full within {self._seconds:g} s")


class _Wire:
    """The connection as ``http.client`` sees it. Each wait is bounded by what is left of the time,
    so an answer that comes in drops does not prolong it.

    ``http.client`` closes it once it has the headers of an answer that is the last one, and reads
    the body afterwards. So that closes nothing: whoever opened the connection ends it.
    """

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def secure(self, context: ssl.SSLContext, host: str) -> None:
        secured = context.wrap_socket(
            self._sock, server_hostname=host, do_handshake_on_connect=False
        )
        self._sock = secured
        secured.settimeout(self._deadline.left())
        secured.do_handshake()

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._sock.settimeout(self._deadline.left())
            rest = rest[self._sock.send(rest) :]

    def read_into(self, buffer: Any) -> int:
        self._sock.settimeout(self._deadline.left())
        return self._sock.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self), _CHUNK)

    def cut(self) -> None:
        """End it from another thread: whoever waits for it gets an error."""
        with suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # no matter what TLS makes of it

    def close(self) -> None:
        """Nothing more will be sent; there may be much to read."""

    def end(self) -> None:
        with suppress(OSError):
            self._sock.close()


class _Incoming(io.RawIOBase):
    def __init__(self, wire: _Wire) -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        return self._wire.read_into(buffer)


def _checked_addresses(to: Destination, allowed: Allowed, deadline: _Deadline) -> list[Address]:
    addresses = _resolved(to, deadline)
    for address in addresses:
        if not allowed.permits(to.host, address):
            raise Permanent(NOT_PUBLIC.fault(url=to.shown, address=str(address)))
    return addresses


def _resolved(to: Destination, deadline: _Deadline) -> list[Address]:
    """The addresses of the host. Asked for in a thread, since a resolver knows no timeout."""
    found: list[Any] = []

    def resolve() -> None:
        try:
            found.append(socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)

    asking = threading.Thread(target=resolve, name="perdure-resolve", daemon=True)
    asking.start()
    asking.join(deadline.left())
    if not found:
        raise deadline.exceeded()
    [answer] = found
    if isinstance(answer, Exception):
        raise ConnectionError(f"{to.shown}: the host cannot be resolved: {answer}") from answer
    addresses = [ipaddress.ip_address(each[4][0]) for each in answer]
    return list(dict.fromkeys(addresses))


def _connected(to: Destination, addresses: list[Address], deadline: _Deadline) -> socket.socket:
    trouble: OSError | None = None
    for address in addresses:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(deadline.left())
            sock.connect((str(address), to.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            trouble = error
        else:
            return sock
    if isinstance(trouble, TimeoutError):
        raise deadline.exceeded() from trouble
    raise ConnectionError(f"cannot connect to {to.shown}: {trouble}") from trouble


def _answer(wire: _Wire, request: Request, body_max: int) -> Answer:
    connection = HTTPConnection(request.to.host, request.to.port)
    connection.auto_open = 0
    connection.sock = wire  # it has what is used of a socket
    connection.putrequest(request.method, request.to.target, skip_host=True)
    for name, value in request.headers:
        connection.putheader(name, value)
    if request.body is not None or request.method in _HAVE_BODIES:
        connection.putheader("Content-Length", str(len(request.body or b"")))
    connection.endheaders(request.body)
    response = connection.getresponse()
    if response.status < 200:
        raise HTTPException(f"status {response.status} is not the end of an answer")
    return Answer(
        status=response.status,
        headers=tuple(response.getheaders()),
        body=_body(response, request, body_max),
    )


def _body(response: HTTPResponse, request: Request, body_max: int) -> bytes:
    too_much = Permanent(RESPONSE_TOO_LARGE.fault(url=request.to.shown, most=body_max))
    if response.length is not None and response.length > body_max:
        raise too_much
    body = bytearray()
    while chunk := response.read(_CHUNK):
        body += chunk
        if len(body) > body_max:
            raise too_much
    if response.length:
        raise ConnectionError(f"the answer of {request.to.shown} ended too early")
    return bytes(body)
