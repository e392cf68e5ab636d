"""Commands run in this process, on one store."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import chain
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self

from click.testing import CliRunner

from perdure.cli.app import app
from perdure.flows.built import BuiltFlow
from perdure.model.ids import WorkerId
from perdure.model.job import DEFAULT_NAMESPACE
from perdure.model.worker import WorkerInfo
from perdure.store.opening import store_at
from perdure.testing.contract.builders import worker_info


class Commands:
    def __init__(self, url: str | None) -> None:
        self._environment = {"PERDURE_STORE": url, "NO_COLOR": "1"}

    def __call__(self, *arguments: str) -> Answer:
        result = CliRunner(env=self._environment).invoke(
            app, arguments, prog_name="perdure", catch_exceptions=False
        )
        return Answer(result.exit_code, result.stdout, result.stderr)

    def refused(self, code: str, *arguments: str, exit_code: int = 2, **args: Any) -> Any:
        """Run a command that fails with this code and these arguments; its error, as JSON."""
        answer = self(*arguments, "--json")
        assert answer.exit_code == exit_code, answer
        assert answer.out.strip() in ("", "[]"), answer
        error = json.loads(answer.error)["error"]
        found = [(each["code"], each["args"]) for each in (error, *error["faults"])]
        assert any(
            code == each and args.items() <= found_args.items() for each, found_args in found
        ), found
        return error


class Answer:
    """What a command printed, and its exit code."""

    def __init__(self, exit_code: int, out: str, error: str) -> None:
        self.exit_code = exit_code
        self.out = out
        self.error = error

    def __repr__(self) -> str:
        return f"exit {self.exit_code}\n{self.out}\n{self.error}"

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def items(self) -> Any:
        """A page as JSON."""
        return self.json["items"]

    @property
    def rows(self) -> list[list[str]]:
        """A printed table, heads first."""
        return [line.split() for line in self.out.splitlines()]


# The command line as a real process, followed through the JSON lines that it logs.


WAIT_SECONDS = 30.0
"""How long to wait for an event on a busy machine."""

Line = dict[str, Any]


def run_cli(
    *arguments: str, cwd: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "perdure.cli", *arguments],
        cwd=cwd,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


def clean_environment(more: dict[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PERDURE_STORE"}
    return {**kept, **(more or {})}


class FollowedProcess:
    """A command whose JSON lines are read as they are written to one of its streams."""

    def __init__(
        self,
        *arguments: str,
        stream: str,
        key: str,
        cwd: Path,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perdure.cli", *arguments, "--json"],
            cwd=cwd,
            env=clean_environment(environment),
            text=True,
            stdout=subprocess.PIPE if stream == "stdout" else subprocess.DEVNULL,
            stderr=subprocess.PIPE if stream == "stderr" else subprocess.DEVNULL,
        )
        self._key = key
        self._lines: Queue[Line | None] = Queue()
        self.seen: list[Line] = []
        self._unmatched: list[Line] = []
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for _ in self._until_silent():
            pass

    @property
    def pid(self) -> int:
        return self._process.pid

    def next(self, text: str, **fields: Any) -> Line:
        """Wait for a line with this text and these fields that no call has returned yet."""
        for line in chain(list(self._unmatched), self._until_silent()):
            if line[self._key] == text and fields.items() <= line.items():
                self._unmatched.remove(line)
                return line
        raise AssertionError(f"no {text!r} with {fields} among {self.seen}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(WAIT_SECONDS)

    def wait_for_silence(self) -> list[Line]:
        """Everything it logged, once nobody is left who could log: no child lives on."""
        for _ in self._until_silent():
            pass
        return self.seen

    def _until_silent(self) -> Iterator[Line]:
        while True:
            try:
                line = self._lines.get(timeout=WAIT_SECONDS)
            except Empty:
                raise AssertionError(f"nothing more came after {self.seen}") from None
            if line is None:
                self._lines.put(None)
                return
            self.seen.append(line)
            self._unmatched.append(line)
            yield line

    def _read(self) -> None:
        stream = self._process.stdout or self._process.stderr
        assert stream is not None
        with stream:
            for text in stream:
                self._lines.put(json.loads(text) if text.startswith("{") else {self._key: text})
        self._lines.put(None)


class WorkerProcess(FollowedProcess):
    """``perdure worker … --json``; its log is read as it is written."""

    def __init__(
        self, *arguments: str, cwd: Path, environment: dict[str, str] | None = None
    ) -> None:
        super().__init__(
            *("worker", *arguments, "--verbose"),
            stream="stderr",
            key="message",
            cwd=cwd,
            environment=environment,
        )


@contextmanager
def killed_at_the_end(pids: list[int]) -> Iterator[None]:
    """Leave no process behind, whatever the test finds."""
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# A command at a terminal of its own, with somebody who waits for prompts and types.


_END_OF_INPUT = b"\x04"


class Keyboard:
    def __init__(self, columns: int, *arguments: str, **environment: str) -> None:
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        kept = {k: v for k, v in clean_environment().items() if k not in ("COLUMNS", "NO_COLOR")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perdure.cli", *arguments],
            env={**kept, "TERM": "xterm-256color", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            close_fds=True,
        )
        os.close(theirs)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._received = ""
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(WAIT_SECONDS)
        os.close(self._terminal)

    @property
    def written(self) -> str:
        return self._received.replace("\r\n", "\n")

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def answer(self, prompt: str, typed: str) -> None:
        self.expect(prompt)
        os.write(self._terminal, f"{typed}\n".encode())

    def expect(self, prompt: str) -> None:
        """Wait until the command asks so, after what it asked last."""
        while (found := self.written.find(prompt, self._seen)) < 0:
            assert self._read(), f"{prompt!r} was not asked: {self.written}"
        self._seen = found + len(prompt)

    def leave(self) -> None:
        os.write(self._terminal, _END_OF_INPUT)

    def interrupt(self) -> None:
        """As Ctrl-C does at the terminal that a process belongs to."""
        self._process.send_signal(signal.SIGINT)

    def rest(self) -> str:
        """What is written until the command ends."""
        while self._read():
            pass
        self._process.wait(WAIT_SECONDS)
        return self.written[self._seen :]

    def _read(self) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], WAIT_SECONDS)
        assert ready, f"the command neither wrote nor ended: {self.written}"
        try:
            chunk = os.read(self._terminal, 65536)
        except OSError:  # how Linux says that the other end was closed
            return False
        self._received += self._decoder.decode(chunk)  # a read may end within a character
        return bool(chunk)


# Workers that only the record has, like those that were killed.


def record_worker(
    url: str, *flows: BuiltFlow, id: str = "killed", lease: timedelta = timedelta(minutes=1)
) -> None:
    """Leave the row of a worker that gives no sign of life any more."""
    flow_names = tuple(flow.graph.text for flow in flows)
    info = worker_info(
        id=WorkerId(id), namespace=DEFAULT_NAMESPACE, tasks=(), lease=lease, flows=flow_names
    )
    register_workers(url, info)


def register_workers(url: str, *infos: WorkerInfo) -> None:
    async def register() -> None:
        store = store_at(url)
        await store.open()
        for each in infos:
            await store.maintenance.register_worker(each)
        await store.close()

    asyncio.run(register())
