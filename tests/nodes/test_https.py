"""Requests over TLS: the certificate must be that of the name, whatever address is connected to."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import Aborted
from perdure.nodes.call import node_type_task
from perdure.nodes.http import Http
from perdure.tasks.context import AbortSignal
from tests.nodes.contexts import context
from tests.nodes.http_service import raw_service

CERTIFICATE = Path(__file__).with_name("localhost.pem")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def sent(port: int, host: str = "localhost", **options: Any) -> Any:
    """A new kind each time: it reads the trusted certificates once."""
    config = {"url": f"https://{host}:{port}/", "timeout": options.pop("timeout", "10s")}
    return node_type_task(Http(allow_private=True), "flow.node")(config, context(**options))


@pytest.fixture
def names() -> list[str | None]:
    """Those that clients asked for."""
    return []


@pytest.fixture
def port(names: list[str | None]) -> Iterator[int]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATE)

    def note(_sock: Any, name: str | None, _context: Any) -> None:
        names.append(name)

    tls.sni_callback = note

    def talk(connection: socket.socket) -> None:
        with tls.wrap_socket(connection, server_side=True) as secured:
            secured.recv(9999)
            secured.sendall(ANSWER)

    with raw_service(talk) as port:
        yield port


def test_reaches_a_service_that_proves_its_name(port, names, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))

    assert sent(port).output["body"] == "hi"
    assert names == ["localhost"]


def test_refuses_a_certificate_that_nobody_trusts(port):
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self.signed"):
        sent(port)


def test_refuses_a_certificate_of_another_name(port, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))

    with pytest.raises(ssl.SSLCertVerificationError, match=r"127\.0\.0\.1"):
        sent(port, host="127.0.0.1")


def test_a_handshake_that_does_not_end_is_given_up_in_time():
    is_over = threading.Event()

    with raw_service(lambda connection: silent(connection, is_over)) as port:
        try:
            with pytest.raises(TimeoutError, match="did not answer in full"):
                sent(port, timeout="300ms")
        finally:
            is_over.set()


def test_an_abort_ends_a_handshake():
    abort = AbortSignal()

    def talk(connection: socket.socket) -> None:
        connection.recv(9999)
        abort.fire("aborted")
        assert connection.recv(9999) == b""

    with raw_service(talk) as port, pytest.raises(Aborted):
        sent(port, abort=abort)


def silent(connection: socket.socket, is_over: threading.Event) -> None:
    connection.recv(9999)
    is_over.wait()
