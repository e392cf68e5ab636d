"""Services that break the rules, end connections in odd ways, or speak TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import Aborted, Permanent
from perdure.nodes.call import node_type_task
from perdure.nodes.http import Http
from perdure.tasks.context import AbortSignal
from tests.nodes.contexts import context, raw_service, reply, serving
from tests.support.refusal import refused

SMALL = b"hi"


LARGE = b"0123456789abcdef" * 200_000


"""More than any buffer takes along with the headers: the rest is read after them."""


LENGTH, CHUNKS, CLOSING = "length", "chunks", "closing"


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


class TestLastAnswers:
    """The last answers of connections, in each way in which a service may end them."""

    def test_the_service_of_the_tests_ends_its_connections_as_asked(self):
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
    def test_reads_the_whole_answer(self, version, ended_by, connection, body):
        with answering(version, ended_by, connection, body) as url:
            output = sent(url, max_bytes=4_000_000)
        assert output["status"] == 200
        assert output["body"] == body.decode()

    @pytest.mark.parametrize("ended_by", [CLOSING, LENGTH, CHUNKS])
    def test_refuses_a_body_that_is_larger_than_allowed(self, ended_by):
        with (
            answering("1.1", ended_by, "close", LARGE) as url,
            refused("http.response_too_large", Permanent),
        ):
            sent(url, max_bytes=1_000_000)

    def test_tells_of_a_body_that_ends_before_its_length(self):
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\n"
        with talking(head, b"hi") as url, pytest.raises(ConnectionError, match="ended too early"):
            sent(url)

    def test_tells_of_chunks_that_have_no_end(self):
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        with (
            talking(head, b"5\r\nhi") as url,
            pytest.raises(ConnectionError, match="IncompleteRead"),
        ):
            sent(url)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def exchange(talk: Callable[[socket.socket], None], **config: Any) -> Any:
    with raw_service(talk) as port:
        url = f"http://127.0.0.1:{port}/"
        node_type = Http(allow=["127.0.0.1/32"])
        return node_type_task(node_type, "flow.node")({"url": url, **config}, context()).output


def saying(answer: bytes) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(answer)

    return talk


class TestHostileServices:
    """Services that break the rules, and services that keep them in unusual ways."""

    @pytest.mark.parametrize("before", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
    def test_answers_before_the_last_one_are_passed_over(self, before):
        early = b"HTTP/1.1 %s\r\nX-Early: yes\r\n\r\n" % before
        output = exchange(saying(early * 3 + OK))
        assert (output["status"], output["body"]) == (200, "hi")
        assert "x-early" not in output["headers"]

    @pytest.mark.parametrize("part", [b"x", b"X-Flood: y\r\n", b" folded\r\n"])
    def test_headers_without_an_end_are_refused_long_before_the_timeout(self, part):
        def talk(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-First: y\r\n")
            while True:
                connection.sendall(part * 1000)

        with pytest.raises(ConnectionError, match="is not valid HTTP"):
            exchange(talk, timeout="50s")

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
    def test_headers_that_can_be_read_in_two_ways_are_refused(self, headers):
        with pytest.raises(ConnectionError, match="is not valid HTTP"):
            exchange(saying(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\nhi"))

    def test_bytes_after_the_announced_length_are_not_part_of_the_body(self):
        assert exchange(saying(OK + b"HTTP/1.1 500 Evil\r\n\r\n"))["body"] == "hi"

    def test_a_length_beyond_the_limit_is_refused_before_the_body_arrives(self):
        def talk(connection: socket.socket) -> None:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n")
            assert connection.recv(65_536) == b""

        with refused("http.response_too_large", Permanent, most=1000):
            exchange(talk, max_bytes=1000, timeout="50s")

    @pytest.mark.parametrize("method, status", [("HEAD", b"200 OK"), ("GET", b"304 Not Modified")])
    def test_the_length_of_a_body_that_is_not_sent_is_not_limited(self, method, status):
        answer = b"HTTP/1.1 %s\r\nContent-Length: 99999999\r\n\r\n" % status
        output = exchange(saying(answer), method=method, max_bytes=1000)
        assert output["headers"]["content-length"] == "99999999"
        assert output["body"] == ""

    def test_an_answer_that_comes_before_the_request_was_read_is_taken(self):
        def talk(connection: socket.socket) -> None:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
            connection.shutdown(socket.SHUT_RD)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass

        output = exchange(talk, method="POST", body="x" * 1000, status={"413": "large"})

        assert (output["status"], output["body"]) == (413, "big")


CERTIFICATE = Path(__file__).with_name("localhost.pem")


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def sent_over_tls(port: int, host: str = "localhost", **options: Any) -> Any:
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


def silent(connection: socket.socket, is_over: threading.Event) -> None:
    connection.recv(9999)
    is_over.wait()


class TestHttps:
    """The certificate must be that of the name, whatever address is connected to."""

    def test_reaches_a_service_that_proves_its_name(self, port, names, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        assert sent_over_tls(port).output["body"] == "hi"
        assert names == ["localhost"]

    def test_refuses_a_certificate_that_nobody_trusts(self, port):
        with pytest.raises(ssl.SSLCertVerificationError, match=r"self.signed"):
            sent_over_tls(port)

    def test_refuses_a_certificate_of_another_name(self, port, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        with pytest.raises(ssl.SSLCertVerificationError, match=r"127\.0\.0\.1"):
            sent_over_tls(port, host="127.0.0.1")

    def test_a_handshake_that_does_not_end_is_given_up_in_time(self):
        is_over = threading.Event()
        with raw_service(lambda connection: silent(connection, is_over)) as port:
            try:
                with pytest.raises(TimeoutError, match="did not respond in full"):
                    sent_over_tls(port, timeout="300ms")
            finally:
                is_over.set()

    def test_an_abort_ends_a_handshake(self):
        abort = AbortSignal()

        def talk(connection: socket.socket) -> None:
            connection.recv(9999)
            abort.fire("aborted")
            assert connection.recv(9999) == b""

        with raw_service(talk) as port, pytest.raises(Aborted):
            sent_over_tls(port, abort=abort)
