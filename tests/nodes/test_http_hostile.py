"""Services that break the rules, and services that keep them in unusual ways."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from perdure.errors import Permanent
from perdure.nodes.call import node_type_task
from perdure.nodes.http import Http
from tests.nodes.contexts import context
from tests.nodes.http_service import raw_service

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def sent(talk: Callable[[socket.socket], None], **config: Any) -> Any:
    with raw_service(talk) as port:
        url = f"http://127.0.0.1:{port}/"
        node_type = Http(allow=["127.0.0.1/32"])
        return node_type_task(node_type, "flow.node")({"url": url, **config}, context()).output


def saying(answer: bytes) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(answer)

    return talk


@pytest.mark.parametrize("before", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
def test_answers_before_the_last_one_are_passed_over(before):
    early = b"HTTP/1.1 %s\r\nX-Early: yes\r\n\r\n" % before

    output = sent(saying(early * 3 + OK))

    assert (output["status"], output["body"]) == (200, "hi")
    assert "x-early" not in output["headers"]


@pytest.mark.parametrize("part", [b"x", b"X-Flood: y\r\n", b" folded\r\n"])
def test_headers_without_an_end_are_refused_long_before_the_timeout(part):
    def talk(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-First: y\r\n")
        while True:
            connection.sendall(part * 1000)

    with pytest.raises(ConnectionError, match="is not valid HTTP"):
        sent(talk, timeout="50s")


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2\r\nContent-Length: 3\r\n",
        b"Content-Length: -2\r\n",
        b"Content-Length: 2x\r\n",
        b"Content-Length: %s\r\n" % (b"9" * 5000),
        b"Transfer-Encoding: gzip\r\n",
        b"X Y: z\r\n",
        b"X-Zero: a\x00b\r\n",
    ],
)
def test_headers_that_can_be_read_in_two_ways_are_refused(headers):
    with pytest.raises(ConnectionError, match="is not valid HTTP"):
        sent(saying(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\nhi"))


def test_bytes_after_the_announced_length_are_not_part_of_the_body():
    assert sent(saying(OK + b"HTTP/1.1 500 Evil\r\n\r\n"))["body"] == "hi"


def test_a_length_beyond_the_limit_is_refused_before_the_body_arrives():
    def talk(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n")
        assert connection.recv(65_536) == b""

    with pytest.raises(Permanent, match="more than 1000 bytes"):
        sent(talk, max_bytes=1000, timeout="50s")


@pytest.mark.parametrize("method, status", [("HEAD", b"200 OK"), ("GET", b"304 Not Modified")])
def test_the_length_of_a_body_that_is_not_sent_is_not_limited(method, status):
    answer = b"HTTP/1.1 %s\r\nContent-Length: 99999999\r\n\r\n" % status

    output = sent(saying(answer), method=method, max_bytes=1000)

    assert output["headers"]["content-length"] == "99999999"
    assert output["body"] == ""


def test_an_answer_that_comes_before_the_request_was_read_is_taken():
    def talk(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        connection.shutdown(socket.SHUT_RD)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass

    output = sent(talk, method="POST", body="x" * 1000, status={"413": "large"})

    assert (output["status"], output["body"]) == (413, "big")
