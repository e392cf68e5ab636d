"""Contexts as a worker makes them, for kinds that are executed without one."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from perdure.model.ids import JobId, Key, Part, RunId
from perdure.model.job import Claim, ClaimedJob, NodeRef, Progress
from perdure.model.partition import Partition
from perdure.model.wait import PastPause, Report, Resumption
from perdure.tasks.context import AbortSignal, AsyncContext, Context
from perdure.tasks.result import Pause
from perdure.worker.secrets import Masker


@dataclass
class Scope:
    """What a call brings besides its arguments."""

    inputs: Mapping[str, Any] = field(default_factory=dict)
    resumption: Resumption = field(default_factory=Resumption)
    allows_scripts: bool = False
    pauses: list[Pause] = field(default_factory=list)
    masker: Masker | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "secret": self.secret,
            "mask": self.mask,
            "pause": self.pause,
            "inputs": self.inputs,
            "resumption": self.resumption,
            "allows_scripts": self.allows_scripts,
        }

    def mask(self, data: Any) -> Any:
        if self.masker is None:
            return data
        return self.masker.raw(data) if isinstance(data, bytes) else self.masker.text(data)

    def secret(self, name: str) -> str:
        raise LookupError(name)

    def pause(self, asked: Pause) -> None:
        self.pauses.append(asked)


class NoSteps:
    async def find(self, name: str) -> tuple[Any, ...]:
        return ()

    async def save(self, name: str, value: Any) -> Any:
        return value

    def wait(self, act: Coroutine[Any, Any, Any]) -> Any:
        raise AssertionError("no steps are taken here")


def context(
    scope: Scope | None = None,
    *,
    run: str = "order-3",
    part: Part = "",
    abort: AbortSignal | None = None,
    progress: list[Progress] | None = None,
) -> Context:
    reported = progress if progress is not None else []
    scope = scope or Scope()
    return Context(
        _job(run, part),
        "worker-1",
        reported.append,
        abort or AbortSignal(),
        NoSteps(),
        **scope.arguments,
    )


def async_context(scope: Scope | None = None, *, part: Part = "") -> AsyncContext:
    scope, job = scope or Scope(), _job("r1", part)
    return AsyncContext(
        job, "worker-1", lambda _: None, AbortSignal(), NoSteps(), **scope.arguments
    )


def _job(run: str, part: Part) -> ClaimedJob:
    return ClaimedJob(
        claim=Claim(id=JobId("j1"), epoch=1),
        namespace="default",
        partition=Partition(queue="default", task="orders.ask"),
        input=b"[[],{}]",
        attempt=1,
        failures=0,
        snoozes=0,
        max_attempts=None,
        policy=None,
        group=None,
        deadline_at=None,
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
        node=NodeRef(run=RunId(run), key=Key(node="ask", part=part).text),
    )


def paused_before(checkpoint: Any, report: Report) -> Scope:
    """The scope of a body that continues after a pause."""
    past = PastPause(name="", checkpoint=checkpoint, report=report)
    return Scope(resumption=Resumption(pauses=(past,)))


# A real HTTP service on loopback with scripted answers, which records its requests.


@dataclass
class Asked:
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(found) < 2
        return found[0] if found else None


@dataclass
class Service:
    """``answer`` is called with the handler for each request."""

    port: int = 0
    answer: Callable[[BaseHTTPRequestHandler], None] = lambda handler: reply(handler)
    asked: list[Asked] = field(default_factory=list)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


def reply(
    handler: BaseHTTPRequestHandler,
    status: int = 200,
    body: Any = b"",
    content_type: str | None = None,
    **headers: str,
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    node_type = content_type or ("text/plain" if isinstance(body, bytes) else "application/json")
    handler.send_response(status)
    handler.send_header("Content-Type", node_type)
    handler.send_header("Content-Length", str(len(data)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    if handler.close_connection:  # as it was asked to do
        handler.send_header("Connection", "close")
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(data)


@contextmanager
def serving() -> Iterator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            asked = Asked(self.command, self.path, list(self.headers.items()), body)
            service.asked.append(asked)
            service.answer(self)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        service.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def raw_service(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a service that does what it likes with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        talk(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
