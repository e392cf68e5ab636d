"""Answers that are the last of their connection, in each way in which a service may end them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from perdure.errors import Permanent
from perdure.nodes.call import node_type_task
from perdure.nodes.http import Http
from tests.nodes.contexts import context
from tests.nodes.http_service import raw_service, reply, serving

SMALL = b"hi"
LARGE = b"0123456789abcdef" * 200_000
"""More than any buffer takes along with the headers: the rest is read after them."""

LENGTH, CHUNKS, CLOSING = "length", "chunks", "closing"


def test_the_service_of_the_tests_ends_its_connections_as_asked():
    with serving() as service:
        service.answer = lambda handler: reply(handler, body={"all": LARGE.decode()})

        output = sent(service.url(), max_bytes=4_000_000)

    assert service.asked[0].header("connection") == "close"
    assert output["headers"]["connection"] == "close"
    assert output["body"] == {"all": LARGE.decode()}


@pytest.mark.parametrize("body", [b"", SMALL, LARGE], ids=["empty", "small", "large"])
@pytest.mark.parametrize("connection", ["", "close", "keep-alive"])
@pytest.mark.parametrize(
    "version, ended_by",
    [("1.0", CLOSING), ("1.0", LENGTH), ("1.1", CLOSING), ("1.1", LENGTH), ("1.1", CHUNKS)],
)
def test_reads_the_whole_answer(version, ended_by, connection, body):
    with answering(version, ended_by, connection, body) as url:
        output = sent(url, max_bytes=4_000_000)

    assert output["status"] == 200
    assert output["body"] == body.decode()


@pytest.mark.parametrize("ended_by", [CLOSING, LENGTH, CHUNKS])
def test_refuses_a_body_that_is_larger_than_allowed(ended_by):
    with (
        answering("1.1", ended_by, "close", LARGE) as url,
        pytest.raises(Permanent, match="more than 1000000 bytes; raise max_bytes"),
    ):
        sent(url, max_bytes=1_000_000)


def test_tells_of_a_body_that_ends_before_its_length():
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\n"

    with talking(head, b"hi") as url, pytest.raises(ConnectionError, match="ended too early"):
        sent(url)


def test_tells_of_chunks_that_have_no_end():
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"

    with talking(head, b"5\r\nhi") as url, pytest.raises(ConnectionError, match="IncompleteRead"):
        sent(url)


def sent(url: str, **config: Any) -> Any:
    node_type = Http(allow=["127.0.0.1/32"])
    return node_type_task(node_type, "flow.node")({"url": url, **config}, context()).output


@contextmanager
def answering(version: str, ended_by: str, connection: str, body: bytes) -> Iterator[str]:
    head = [f"HTTP/{version} 200 OK", "Content-Type: text/plain"]
    if connection and (ended_by, connection) != (CLOSING, "keep-alive"):
        head.append(f"Connection: {connection}")
    if ended_by == LENGTH:
        head.append(f"Content-Length: {len(body)}")
    elif ended_by == CHUNKS:
        head.append("Transfer-Encoding: chunked")
        body = in_chunks(body)
    with talking("\r\n".join([*head, "\r\n"]).encode(), body) as url:
        yield url


@contextmanager
def talking(head: bytes, body: bytes) -> Iterator[str]:
    """Sends headers and body one after the other, and closes."""

    def talk(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.recv(65_536)
        connection.sendall(head)
        connection.sendall(body)

    with raw_service(talk) as port:
        yield f"http://127.0.0.1:{port}/"


def in_chunks(body: bytes, size: int = 50_000) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])
