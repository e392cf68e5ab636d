"""Protection against server-side request forgery: reachable addresses and checked connections.

URLs in a flow may come from untrusted sources and must not reach the worker's own machine or
network, however they are written. A name is resolved once, every address is checked, and the
connection goes to a checked address.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpcore

from perdure import clock
from perdure.diagnostics import declare, safe_repr
from perdure.errors import InvalidInput, Permanent
from perdure.tasks.context import AbortSignal

EVERYTHING = "*"
"""Allows all addresses."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# The special-purpose registries of IANA. Listed here, because Python's idea of a public address
# differs between versions.
_NOT_PUBLIC_4 = [
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by the customers of a provider
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure: metadata and health probes of its machines
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
NOT_PUBLIC = declare(
    "http.not_public",
    "{url} resolves to {address}, which is not a public address",
    "Allow it on the worker if intended: PERDURE_HTTP_ALLOW, or allow=... of the node type",
)


_exchange = threading.local()


def _is_logged(_: logging.LogRecord) -> bool:
    return not getattr(_exchange, "is_ongoing", False)


# httpcore logs headers at the level DEBUG, and a service may echo a secret in them. Requests of
# other code in this process are logged as before.
for _name in ("httpcore.connection", "httpcore.http11"):
    logging.getLogger(_name).addFilter(_is_logged)


@contextmanager
def unlogged() -> Iterator[None]:
    """An exchange on this thread that httpcore does not log."""
    _exchange.is_ongoing = True
    try:
        yield
    finally:
        _exchange.is_ongoing = False


class Allowed:
    """Non-public addresses and names that may be reached."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._networks: list[_Network] = []
        for entry in entries:
            text = str(entry).strip().lower()
            try:
                self._networks.append(ipaddress.ip_network(text, strict=False))
            except ValueError:
                if not text or any(sign in text for sign in "/:@ ,"):
                    fault = NOT_ALLOWABLE.fault(("allow",), name="allow", found=safe_repr(entry))
                    raise InvalidInput(fault) from None
                self._names.add(text.rstrip("."))

    def permits(self, host: str, address: Address) -> bool:
        """Whether this host may be reached at this address that it resolved to."""
        if is_public(address) or EVERYTHING in self._names or host.lower() in self._names:
            return True
        plain = embedded(address) or address
        return any(plain in network or address in network for network in self._networks)


def is_public(address: Address) -> bool:
    """Whether the address is public, including an IPv4 address embedded in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    inside = embedded(address)
    if inside is not None and not is_public(inside):
        return False
    if address.ipv4_mapped is not None or address in _NAT64:
        return True
    # An ISATAP address is reached by its own prefix, which may be private as well.
    if address.scope_id is not None or address not in _PUBLIC_6:
        return False
    return not any(address in network for network in _NOT_PUBLIC_6)


def embedded(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address embedded in this IPv6 address, if any."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    number = int(address)
    # Ignore the universal/local bit of the interface identifier.
    is_isatap = (number >> 32) & 0xFDFF_FFFF == _ISATAP
    if address in _NAT64 or is_isatap:
        return ipaddress.IPv4Address(number & 0xFFFF_FFFF)
    return None


class CheckedConnection(httpcore.NetworkBackend, httpcore.NetworkStream):
    """The network for httpcore during one exchange: a single connection.

    ``service`` names the peer in errors. All waits together take at most ``seconds``, however
    slowly bytes arrive; httpcore's timeouts would restart with each wait, so they are not used. An
    abort from any thread closes the connection.
    """

    def __init__(self, service: str, seconds: float, allowed: Allowed, abort: AbortSignal) -> None:
        self._service = service
        self._seconds = seconds
        self._until = clock.monotonic() + seconds
        self._allowed = allowed
        self._abort = abort
        self._sock: socket.socket | None = None
        self.has_ended = False
        """Whether the peer has finished sending."""
        abort.on_fire(lambda _reason: self._shut_down())

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> CheckedConnection:
        """Resolve the host, check all its addresses, and connect to the first that answers."""
        addresses = self._resolve(host, port)
        for address in addresses:
            if not self._allowed.permits(host, address):
                raise Permanent(NOT_PUBLIC.fault(url=self._service, address=str(address)))
        trouble: OSError | None = None
        for address in addresses:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            self._sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                with self._waiting() as sock:
                    sock.connect((str(address), port))
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return self
            except OSError as error:
                self.close()
                trouble = error
        if isinstance(trouble, TimeoutError):
            raise trouble
        raise ConnectionError(f"cannot connect to {self._service}: {trouble}") from trouble

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> CheckedConnection:
        assert self._sock is not None
        # The TLS handshake comes later, so that an abort finds the socket that waits for it.
        secured = ssl_context.wrap_socket(
            self._sock, server_hostname=server_hostname, do_handshake_on_connect=False
        )
        self._sock = secured
        with self._waiting():
            secured.do_handshake()
        return self

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with self._waiting() as sock:
            data = sock.recv(max_bytes)
        self.has_ended = not data
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        rest = memoryview(buffer)
        while rest:
            try:
                with self._waiting() as sock:
                    rest = rest[sock.send(rest) :]
            except TimeoutError:
                raise
            except OSError as error:
                # A service may respond and close before it has read everything: after this error,
                # httpcore still reads that response.
                raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        if self._sock is not None:
            with suppress(OSError):
                self._sock.close()

    @contextmanager
    def _waiting(self) -> Iterator[socket.socket]:
        """The socket for one blocking call, bounded by the deadline and by an abort."""
        assert self._sock is not None
        self._sock.settimeout(self._left())
        # Checked after the socket is set, so that an abort is either seen here or closes it.
        if self._abort.is_set():
            raise ConnectionAbortedError(f"the request to {self._service} was aborted")
        try:
            yield self._sock
        except TimeoutError as error:
            raise self._exceeded() from error

    def _left(self) -> float:
        left = self._until - clock.monotonic()
        if left <= 0:
            raise self._exceeded()
        return left

    def _exceeded(self) -> TimeoutError:
        return TimeoutError(f"{self._service} did not respond in full within {self._seconds:g} s")

    def _shut_down(self) -> None:
        if self._sock is not None:
            with suppress(OSError):
                # Not through TLS, which would change its state while another thread uses it.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def _resolve(self, host: str, port: int) -> list[Address]:
        """The addresses of the host, resolved in a thread: the resolver has no timeout."""
        found: list[Any] = []

        def resolve() -> None:
            try:
                found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            except (OSError, UnicodeError) as error:
                found.append(error)

        thread = threading.Thread(target=resolve, name="perdure-resolve", daemon=True)
        thread.start()
        thread.join(self._left())
        if not found:
            raise self._exceeded()
        [answer] = found
        if isinstance(answer, Exception):
            raise ConnectionError(
                f"{self._service}: the host cannot be resolved: {answer}"
            ) from answer
        return list(dict.fromkeys(ipaddress.ip_address(each[4][0]) for each in answer))
