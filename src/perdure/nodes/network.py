"""Which hosts a node may reach, and one exchange with a checked address.

A flow may hold addresses that came from anywhere. One that leads to the worker's own machine or
network must not be reached by accident, however it is written: a name is resolved once, every
address is checked, and the connection goes to a checked one.
"""

from __future__ import annotations

import io
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from perdure import clock
from perdure.diagnostics import Code, declare, safe_repr
from perdure.errors import InvalidInput, Permanent
from perdure.model.text import cut, shown, type_name
from perdure.model.value import Value
from perdure.tasks.context import AbortSignal

EVERYTHING = "*"
"""Allows all addresses."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# The special-purpose registries of IANA. Listed here, because what Python takes for public
# differs from version to version.
_NOT_PUBLIC_4 = [
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by the customers of a provider
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local: metadata of cloud machines
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation, as are 198.51.100 and 203.0.113
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
]
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_6 = [
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocols, among them Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "3fff::/20",  # documentation
    )
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = 0x5EFE

NOT_ALLOWABLE = declare(
    "http.not_allowable",
    "{found} cannot be allowed",
    "Give an address, a network such as 10.0.0.0/8, a host name, or '*'",
)


class Allowed:
    """The addresses and names that may be reached though they are not public."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._entries = tuple(_checked(entry) for entry in entries)

    def permits(self, host: str, address: Address) -> bool:
        """Whether this host may be reached at this address, which it resolved to."""
        plain = embedded(address) or address
        if is_public(address) or EVERYTHING in self._entries or host.lower() in self._names:
            return True
        return any(plain in network or address in network for network in self._networks)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(each for each in self._entries if isinstance(each, str))

    @cached_property
    def _networks(self) -> list[_Network]:
        return [each for each in self._entries if not isinstance(each, str)]


def is_public(address: Address) -> bool:
    """Whether the address belongs to the whole internet, also where it hides another one."""
    inside = embedded(address)
    if inside is not None:
        return is_public(inside)
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address.scope_id is not None or address not in _PUBLIC_6:
        return False
    return not any(address in network for network in _NOT_PUBLIC_6)


def embedded(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that packets to this IPv6 address end at, if it is of that sort."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    number = int(address)
    # The bit that tells universal identifiers from local ones does not matter.
    is_isatap = (number >> 32) & 0xFDFF_FFFF == _ISATAP
    if address in _NAT64 or is_isatap:
        return ipaddress.IPv4Address(number & 0xFFFF_FFFF)
    return None


def _checked(entry: str) -> str | _Network:
    text = str(entry).strip().lower()
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        pass
    if not text or any(sign in text for sign in "/:@ ,"):
        raise InvalidInput(NOT_ALLOWABLE.fault(("allow",), name="allow", found=safe_repr(entry)))
    return text.rstrip(".")


URL_MAX = 16_384
HOST_MAX = 253

_PORTS = {"http": 80, "https": 443}
# Control characters, spaces and backslashes: readers of URLs drop them, or read them as "/".
_MISLEADING = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|[0-9a-f:.]+", re.IGNORECASE)
_UNQUOTED = "%/:=&?~+!$,;'@()*[]"

URL_TOO_LONG = declare("http.url_too_long", "url has more than {most} characters")
URL_CHARACTERS = declare(
    "http.url_characters", "url has a space, a backslash or a control character in it"
)
URL_SCHEME = declare("http.url_scheme", "url must begin with http:// or https://")
URL_CREDENTIALS = declare(
    "http.url_credentials", "url has a user or password before the host; use a header for them"
)
URL_UNREADABLE = declare("http.url_unreadable", "url cannot be read: its host is not one")
URL_HOST = declare("http.url_host", "url has no usable host")
URL_PORT = declare("http.url_port", "url has a port that is not one of 1 to 65535")
TARGET_TOO_LONG = declare(
    "http.target_too_long", "url and query come to more than {most} characters"
)
QUERY_TYPE = declare("http.query_type", "query {parameter!r} is {found}; use texts and numbers")


class Destination(Value):
    """Host and port to connect to, and what to ask there."""

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
    def shown(self) -> str:
        """As messages tell it: the rest of a URL may have keys in it."""
        return f"{self.scheme}://{self.host_header}"


def destination(url: str, query: Mapping[str, Any] | None = None) -> Destination:
    """Read a URL; ``InvalidInput`` says what is wrong with it, not what it is."""
    if len(url) > URL_MAX:
        raise _refusal(URL_TOO_LONG, most=URL_MAX)
    if _MISLEADING.search(url):
        raise _refusal(URL_CHARACTERS)
    parts = _parts(url)
    if parts.scheme not in _PORTS:
        raise _refusal(URL_SCHEME)
    if "@" in parts.netloc:
        raise _refusal(URL_CREDENTIALS)
    return Destination(
        scheme=parts.scheme,
        host=_host(parts),
        port=_port(parts),
        target=_target(parts, query or {}),
    )


def _refusal(code: Code, **args: Any) -> InvalidInput:
    return InvalidInput(code.fault(("url",), name="url", **args))


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise _refusal(URL_UNREADABLE) from error


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    try:
        if not host.isascii() and len(host) <= HOST_MAX:
            host = host.encode("idna").decode()
    except UnicodeError as error:
        raise _refusal(URL_HOST) from error
    host = host.removesuffix(".")
    if not host or len(host) > HOST_MAX or not _HOST.fullmatch(host):
        raise _refusal(URL_HOST)
    return host.lower()


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise _refusal(URL_PORT)
    return _PORTS[parts.scheme] if port is None else port


def _target(parts: SplitResult, query: Mapping[str, Any]) -> str:
    added = urlencode([pair for name in query for pair in _pairs(name, query[name])])
    asked = "&".join(filter(None, [quote(parts.query, safe=_UNQUOTED), added]))
    path = quote(parts.path or "/", safe=_UNQUOTED)
    target = f"{path}?{asked}" if asked else path
    if len(target) > URL_MAX:
        raise _refusal(TARGET_TOO_LONG, most=URL_MAX)
    return target


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if value is None:
        return []
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    return [(name, _query_text(name, each)) for each in values]


def _query_text(name: str, value: Any) -> str:
    match value:
        case str():
            return value
        case bool() | int() | float():
            return shown(value)
        case _:
            raise InvalidInput(
                QUERY_TYPE.fault(
                    ("query", name), name=name, parameter=cut(name), found=type_name(value)
                )
            )


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
