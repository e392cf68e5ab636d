"""Requests against real services on loopback, which have to be allowed first."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import Aborted, InvalidInput, Permanent, RetryLater
from perdure.nodes.call import node_type_task
from perdure.nodes.config import config_faults
from perdure.nodes.http import ALLOW_VARIABLE, RETRY_AFTER_MAX, Http, HttpFailed
from perdure.tasks.context import AbortSignal
from tests.nodes.contexts import Service, context, raw_service, reply, serving
from tests.support.refusal import refused

LOOPBACK = Http(allow=["127.0.0.1/32"])
LIES_UNUSED = "http://127.0.0.1:9/"


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as service:
        yield service


def sent(config: dict[str, Any], node_type: Http = LOOPBACK, **options: Any) -> Any:
    return node_type_task(node_type, "flow.node")(config, context(**options))


Talk = Callable[[socket.socket], None]


def exchange(talk: Talk, abort: AbortSignal | None = None, **config: Any) -> Any:
    """The output of a request to a service that does what it likes with the connection."""
    with raw_service(talk) as port:
        return sent({"url": f"http://127.0.0.1:{port}/", **config}, abort=abort).output


def saying(answer: bytes) -> Talk:
    def talk(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(answer)

    return talk


def firing(abort: AbortSignal) -> Talk:
    """Aborts the request that it gets, and sees the connection end."""

    def talk(connection: socket.socket) -> None:
        connection.recv(9999)
        abort.fire("aborted")
        assert connection.recv(9999) == b""

    return talk


class TestTheRequest:
    def test_asks_and_gives_the_answer(self, service):
        service.answer = lambda handler: reply(handler, body={"found": [1]})

        result = sent({"url": service.url("/a?b=c"), "query": {"d": "e f"}})

        [asked] = service.asked
        assert (asked.method, asked.path) == ("GET", "/a?b=c&d=e+f")
        assert asked.header("host") == f"127.0.0.1:{service.port}"
        assert asked.header("idempotency-key") is None
        assert result.port == ""
        assert result.output["status"] == 200
        assert result.output["body"] == {"found": [1]}
        assert result.output["encoding"] == "json"
        assert result.output["headers"]["content-type"] == "application/json"
        assert result.output.keys() == {"status", "headers", "body", "encoding"}

    def test_is_not_logged_by_the_library_that_sends_it(self, service, caplog):
        """Finding 10: httpcore logs headers of responses, which may echo a secret."""
        service.answer = lambda handler: reply(handler, X_Echo=handler.headers["X-Key"])

        with caplog.at_level("DEBUG"):
            result = sent({"url": service.url("/a"), "headers": {"X-Key": "open sesame"}})

        assert result.output["headers"]["x-echo"] == "open sesame"
        assert "httpcore" not in caplog.text
        logging.getLogger("httpcore.http11").warning("of others")
        assert "of others" in caplog.text

    @pytest.mark.parametrize(
        "body, sent_as, content_type",
        [
            ({"a": 1}, b'{"a":1}', "application/json"),
            ([], b"[]", "application/json"),
            (0, b"0", "application/json"),
            (False, b"false", "application/json"),
            ("grüezi", "grüezi".encode(), "text/plain; charset=utf-8"),
            ("", b"", "text/plain; charset=utf-8"),
            (None, b"", None),
        ],
    )
    def test_sends_texts_as_they_are_and_all_else_as_json(
        self, service, body, sent_as, content_type
    ):
        sent({"url": service.url(), "method": "POST", "body": body})
        [asked] = service.asked
        assert asked.body == sent_as
        assert asked.header("content-type") == content_type

    def test_sends_the_headers_of_the_flow_before_its_own(self, service):
        headers = {"content-type": "text/csv", "X-Count": 3, "X-Yes": True, "X-None": None}
        sent({"url": service.url(), "method": "PUT", "body": "a,b", "headers": headers})
        [asked] = service.asked
        assert asked.header("Content-Type") == "text/csv"
        assert (asked.header("x-count"), asked.header("x-yes")) == ("3", "true")
        assert asked.header("x-none") is None

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
    def test_gives_changes_a_key_that_stays_the_same(self, service, method):
        for _ in range(2):
            sent({"url": service.url(), "method": method}, run="order-3")
        assert [asked.header("Idempotency-Key") for asked in service.asked] == ["order-3:ask:0"] * 2

    def test_a_run_of_any_name_makes_a_key_that_headers_can_carry(self, service):
        sent({"url": service.url(), "method": "POST"}, run="ü\r\nX-Evil: 1")
        [asked] = service.asked
        assert asked.header("Idempotency-Key") == "%C3%BC%0D%0AX-Evil:%201:ask:0"
        assert asked.header("X-Evil") is None

    def test_keeps_a_key_that_the_flow_gives(self, service):
        headers = {"idempotency-key": "mine"}
        sent({"url": service.url(), "method": "POST", "headers": headers})
        assert service.asked[0].header("Idempotency-Key") == "mine"

    @pytest.mark.parametrize(
        "headers",
        [
            {"X-Evil": "a\r\nX-More: b"},
            {"X-Evil": "a\nb"},
            {"X-Evil": "a\x00b"},
            {"X-Evil\r\nX-More": "a"},
            {"X Evil": "a"},
            {"": "a"},
            {"X-Evil": "☃"},
            {"X-Evil": "x" * 20_000},
            {"Host": "evil.example"},
            {"content-length": "3"},
            {"Transfer-Encoding": "chunked"},
            {"Connection": "upgrade"},
        ],
    )
    def test_refuses_headers_that_would_change_the_message(self, service, headers):
        config = {"url": service.url(), "headers": headers}
        [fault] = config_faults(Http(), config)
        assert fault.where[0] == "headers"
        with refused(fault.code, Permanent, where=fault.where):
            sent(config)
        assert service.asked == []

    def test_quotes_no_value_of_a_header_that_it_refuses(self):
        with pytest.raises(Permanent) as caught:
            sent({"url": LIES_UNUSED, "headers": {"Authorization": "Bearer sesame\n"}})
        assert "sesame" not in str(caught.value)

    @pytest.mark.parametrize(
        "changed",
        [
            {"method": "TRACE"},
            {"method": "get"},
            {"timeout": "0s"},
            {"timeout": "9w"},
            {"max_bytes": 0},
            {"max_bytes": 10**12},
            {"status": {"200": "\x00"}},
            {"status": {"20": "x"}},
            {"status": {"200": "{{ port }}"}},
        ],
    )
    def test_refuses_settings_that_mean_nothing(self, changed):
        config = {"url": LIES_UNUSED, **changed}
        assert config_faults(Http(), config) != []

    def test_finds_no_fault_in_templates(self):
        config = {
            "url": "https://{{ host }}/a",
            "method": "{{ m }}",
            "headers": {"X": "{{ x }}"},
            "timeout": "{{ t }}s",
            "max_bytes": "{{ n }}",
            "status": {"404": "missing"},
        }

        assert config_faults(Http(), config) == []


class TestTheAnswer:
    def test_a_status_chooses_the_port(self, service):
        ports = {"404": "missing", "4xx": "refused", "2xx": "fine", "500": "default"}
        found = []
        for status in (200, 404, 409, 500, 302):
            service.answer = lambda handler, status=status: reply(handler, status)  # type: ignore[misc]
            found.append(sent({"url": service.url(), "status": ports}).port)
        assert found == ["fine", "missing", "refused", "", ""]
        assert Http().ports_of({"status": ports}) == ("missing", "refused", "fine")

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
    def test_a_refusal_fails_for_good(self, service, status):
        service.answer = lambda handler: reply(handler, status, b"no such thing")
        with refused("http.request_failed", Permanent, status=status, beginning="no such thing"):
            sent({"url": service.url()})

    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
    def test_a_passing_trouble_is_left_to_the_retries(self, service, status):
        service.answer = lambda handler: reply(handler, status)
        with refused("http.request_failed", HttpFailed, status=status):
            sent({"url": service.url()})

    @pytest.mark.parametrize(
        "status, retry_after, date, delay",
        [
            (429, "7", "", timedelta(seconds=7)),
            (503, "0", "", timedelta(0)),
            (503, "999999999", "", RETRY_AFTER_MAX),
            (
                *(429, "Tue, 01 Jan 2030 00:01:30 GMT", "Tue, 01 Jan 2030 00:00:00 GMT"),
                timedelta(seconds=90),
            ),
            (
                *(429, "Tue, 01 Jan 2030 00:00:00 GMT", "Tue, 01 Jan 2030 00:01:00 GMT"),
                timedelta(0),
            ),
        ],
    )
    def test_a_busy_service_is_left_alone_as_long_as_it_asks(
        self, service, status, retry_after, date, delay
    ):
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response_only(status)
            handler.send_header("Retry-After", retry_after)
            handler.send_header("Date", date)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        service.answer = answer

        with pytest.raises(RetryLater) as caught:
            sent({"url": service.url()})

        assert caught.value.after == delay

    @pytest.mark.parametrize("retry_after", ["soon", "-3", "1e9", "", "99999999999999999999", "٣"])
    def test_a_time_that_cannot_be_read_is_left_to_the_retries(self, service, retry_after):
        value = retry_after.encode().decode("latin-1")
        service.answer = lambda handler: reply(handler, 429, Retry_After=value)
        with pytest.raises(HttpFailed):
            sent({"url": service.url()})

    def test_a_redirect_is_not_followed(self, service):
        service.answer = lambda handler: reply(handler, 302, Location="http://127.0.0.1:1/")
        result = sent({"url": service.url()})
        assert len(service.asked) == 1
        assert result.output["status"] == 302
        assert result.output["headers"]["location"] == "http://127.0.0.1:1/"

    @pytest.mark.parametrize(
        "body, content_type, found, encoding",
        [
            (b'{"a":1}', "application/problem+json; charset=utf-8", {"a": 1}, "json"),
            (b"{'a'", "application/json", "{'a'", "text"),
            (b"[" * 100_000, "application/json", "[" * 100_000, "text"),
            (b'"\\ud800"', "application/json", '"\\ud800"', "text"),
            (b"caf\xe9", "text/plain; charset=ISO-8859-1", "café", "text"),
            ("☃".encode(), "text/html", "☃", "text"),
            (b"\xff\xd8\xff", "image/jpeg", "/9j/", "base64"),
            (b"a\x00b", "text/plain", "YQBi", "base64"),
            (b"abc", "text/plain; charset=punycode", "abc", "text"),
            (b"", "application/json", "", "text"),
        ],
    )
    def test_a_body_is_json_or_text_or_else_base64(
        self, service, body, content_type, found, encoding
    ):
        service.answer = lambda handler: reply(handler, 200, body, content_type)
        output = sent({"url": service.url()}).output
        assert (output["body"], output["encoding"]) == (found, encoding)

    def test_headers_of_one_name_are_joined(self, service):
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response_only(204)
            for name, value in [("X-A", "1"), ("x-a", "2"), ("Set-Cookie", "a=1")]:
                handler.send_header(name, value)
            handler.send_header("Set-Cookie", "b=2")
            handler.end_headers()

        service.answer = answer

        headers = sent({"url": service.url()}).output["headers"]

        assert headers == {"x-a": "1, 2", "set-cookie": "a=1\nb=2"}

    def test_a_head_has_no_body(self, service):
        service.answer = lambda handler: reply(handler, 200, b"12345")
        output = sent({"url": service.url(), "method": "HEAD"}).output
        assert output["body"] == ""
        assert output["headers"]["content-length"] == "5"


class TestLimits:
    def test_an_answer_may_be_as_long_as_allowed(self, service):
        service.answer = lambda handler: reply(handler, 200, b"x" * 1001)
        assert len(sent({"url": service.url(), "max_bytes": 1001}).output["body"]) == 1001
        with refused("http.response_too_large", Permanent, most=1000):
            sent({"url": service.url(), "max_bytes": 1000})

    def test_json_with_too_many_values_is_text(self, service):
        """Finding 8: 64 MiB of small objects took 2 GB as values, whatever could be stored."""
        body = b"[" + b'{"":1},' * 1_000_001 + b"0]"
        service.answer = lambda handler: reply(handler, 200, body, "application/json")
        output = sent({"url": service.url(), "max_bytes": len(body)}).output
        assert output["encoding"] == "text"
        assert output["body"] == body.decode()

    def test_an_answer_without_an_end_fails_for_good(self):
        def talk(connection: socket.socket) -> None:
            connection.recv(9999)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                connection.sendall(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")

        with refused("http.response_too_large", Permanent, most=50_000):
            exchange(talk, max_bytes=50_000)

    @pytest.mark.parametrize(
        "before, drop",
        [
            (b"", b""),
            (b"", b"H"),
            (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b"x"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
            (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        ],
    )
    def test_an_answer_in_drops_does_not_prolong_the_time(self, before, drop):
        is_over = threading.Event()

        def talk(connection: socket.socket) -> None:
            connection.recv(9999)
            connection.sendall(before)
            while not is_over.wait(0.02):
                connection.sendall(drop)

        with raw_service(talk) as port:
            try:
                with pytest.raises(TimeoutError):
                    sent({"url": f"http://127.0.0.1:{port}/", "timeout": "300ms"})
            finally:
                is_over.set()

    @pytest.mark.parametrize(
        "answer",
        [
            b"",
            b"SSH-2.0-OpenSSH\r\n",
            b"HTTP/1.1 xyz OK\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 70_000,
            b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
            # Headers that can be read in two ways.
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\nhi",
            b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\nhi" % (b"9" * 5000),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhi",
            b"HTTP/1.1 200 OK\r\nX Y: z\r\n\r\nhi",
            b"HTTP/1.1 200 OK\r\nX-Zero: a\x00b\r\n\r\nhi",
        ],
    )
    def test_an_answer_that_is_not_http_is_left_to_the_retries(self, answer):
        """Finding 14: a negative chunk size raised ``ValueError``."""

        def talk(connection: socket.socket) -> None:
            connection.recv(9999)
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(9999)

        with pytest.raises(ConnectionError):
            exchange(talk)

    def test_a_closed_port_is_left_to_the_retries(self):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        with pytest.raises(ConnectionError):
            sent({"url": f"http://127.0.0.1:{port}/"})

    def test_an_abort_ends_it_at_once(self):
        abort = AbortSignal()
        with pytest.raises(Aborted):
            exchange(firing(abort), abort)

    def test_an_abort_before_it_began_sends_nothing(self, service):
        abort = AbortSignal()
        abort.fire("aborted")
        with pytest.raises(Aborted):
            sent({"url": service.url()}, abort=abort)
        assert service.asked == []


class TestAddresses:
    @pytest.mark.parametrize(
        "host",
        [
            "127.0.0.1",
            "localhost",
            "LOCALHOST.",
            "127.1",
            "0x7f.1",
            "0177.0.0.1",
            "2130706433",
            "0",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "169.254.169.254",
            "10.0.0.1",
            "192.168.0.1",
        ],
    )
    def test_that_are_not_public_are_refused_however_they_are_written(self, service, host):
        with refused("http.not_public", Permanent):
            sent({"url": service.url(host=host)}, Http())
        assert service.asked == []

    @pytest.mark.parametrize(
        "url",
        [
            "http://example.org@127.0.0.1:{port}/",
            "http://127.0.0.1:{port}\\@example.org/",
            "http://user:pass@127.0.0.1:{port}/",
            "file:///etc/passwd",
        ],
    )
    def test_cannot_hide_behind_others(self, service, url):
        url = url.replace("{port}", str(service.port))
        with pytest.raises(Permanent):
            sent({"url": url})
        assert service.asked == []
        assert [fault.where for fault in config_faults(Http(), {"url": url})] == [("url",)]

    @pytest.mark.parametrize(
        "node_type, host",
        [
            (Http(allow=["127.0.0.0/8"]), "127.0.0.1"),
            (Http(allow=["127.0.0.0/8"]), "0x7f.1"),
            (Http(allow=["127.0.0.1"]), "[::ffff:127.0.0.1]"),
            (Http(allow=["localhost"]), "localhost"),
            (Http(allow_private=True), "localhost"),
        ],
    )
    def test_are_reached_once_allowed(self, service, node_type, host):
        assert sent({"url": service.url(host=host)}, node_type).output["status"] == 200

    def test_are_allowed_by_the_environment_of_the_worker(self, service, monkeypatch):
        node_type = Http()
        monkeypatch.setenv(ALLOW_VARIABLE, "internal.example, 127.0.0.1/32,")
        assert sent({"url": service.url()}, node_type).output["status"] == 200
        monkeypatch.setenv(ALLOW_VARIABLE, "")
        with refused("http.not_public", Permanent):
            sent({"url": service.url()}, node_type)

    def test_must_all_be_permitted(self, service, monkeypatch):
        resolving(monkeypatch, ["127.0.0.1", "10.0.0.1"])
        with refused("http.not_public", Permanent, address="10.0.0.1"):
            sent({"url": service.url(host="both.example")})
        assert service.asked == []

    def test_are_resolved_once_so_that_they_cannot_change(self, service, monkeypatch):
        left = resolving(monkeypatch, ["127.0.0.1"], ["10.0.0.1"])
        assert sent({"url": service.url(host="changing.example")}).output["status"] == 200
        assert left == [["10.0.0.1"]]
        assert service.asked[0].header("host") == f"changing.example:{service.port}"

    def test_that_do_not_exist_are_left_to_the_retries(self):
        with pytest.raises(ConnectionError):
            sent({"url": "http://does-not-exist.invalid/"})

    def test_a_mistake_in_what_is_allowed_is_reported_at_once(self):
        with refused("http.not_allowable", InvalidInput):
            Http(allow=["http://internal/"])

    def test_proxies_of_the_environment_are_not_used(self, service, monkeypatch):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        assert sent({"url": service.url()}).output["status"] == 200


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[list[str]]:
    """Let the resolver give these answers, one after the other; those that are left."""
    left = list(answers)

    def getaddrinfo(_host: str, port: int, **_options: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in left.pop(0)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return left


# Services that break the rules, end connections in odd ways, or speak TLS.


SMALL = b"hi"
LARGE = b"0123456789abcdef" * 200_000
"""More than any buffer takes along with the headers: the rest is read after them."""


LENGTH, CHUNKS, CLOSING = "length", "chunks", "closing"


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
            output = sent({"url": service.url(), "max_bytes": 4_000_000}).output
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
            output = sent({"url": url, "max_bytes": 4_000_000}).output
        assert output["status"] == 200
        assert output["body"] == body.decode()

    @pytest.mark.parametrize("ended_by", [CLOSING, LENGTH, CHUNKS])
    def test_refuses_a_body_that_is_larger_than_allowed(self, ended_by):
        with (
            answering("1.1", ended_by, "close", LARGE) as url,
            refused("http.response_too_large", Permanent),
        ):
            sent({"url": url, "max_bytes": 1_000_000})

    @pytest.mark.parametrize(
        "head, body",
        [(b"Content-Length: 9", b"hi"), (b"Transfer-Encoding: chunked", b"5\r\nhi")],
    )
    def test_reports_a_body_that_ends_too_early(self, head, body):
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + head + b"\r\n\r\n"
        with talking(head, body) as url, pytest.raises(ConnectionError):
            sent({"url": url})


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


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

        with pytest.raises(ConnectionError):
            exchange(talk, timeout="50s")

    @pytest.mark.parametrize(
        "response",
        [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nopen-sesame\r\n",
            b"HTTP/1.1 200 OK\r\nopen-sesame\r\n\r\n",
            b"open-sesame\r\n\r\n",
        ],
    )
    def test_what_they_sent_is_not_in_the_error(self, response):
        """Finding 10: it may be a secret, in an encoding in which it is not recognized."""
        with pytest.raises(ConnectionError) as caught:
            exchange(saying(response))
        assert "sesame" not in "".join(traceback.format_exception(caught.value))

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
            secured.sendall(OK)

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

    def test_refuses_an_untrusted_certificate(self, port):
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
                with pytest.raises(TimeoutError):
                    sent_over_tls(port, timeout="300ms")
            finally:
                is_over.set()

    def test_an_abort_ends_a_handshake(self):
        abort = AbortSignal()
        with raw_service(firing(abort)) as port, pytest.raises(Aborted):
            sent_over_tls(port, abort=abort)
