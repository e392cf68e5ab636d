"""The command line as a real process, followed through the JSON lines that it logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Self

PATIENCE_SECONDS = 30.0
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
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def clean_environment(more: dict[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PERDURE_STORE"}
    return {**kept, **(more or {})}


class WorkerProcess:
    """``perdure worker … --json``; its log is read as it is written."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perdure.cli", "worker", *arguments, "--json", "--verbose"],
            cwd=cwd,
            env=clean_environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: Queue[Line | None] = Queue()
        self.seen: list[Line] = []
        self._unmatched: list[Line] = []
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        found_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for _ in self._until_silent():
            pass

    @property
    def pid(self) -> int:
        return self._process.pid

    def next(self, message: str, **fields: Any) -> Line:
        """Wait for a line with this message and these fields that was not asked for before."""
        for line in chain(list(self._unmatched), self._until_silent()):
            if line["message"] == message and fields.items() <= line.items():
                self._unmatched.remove(line)
                return line
        raise AssertionError(f"no {message!r} with {fields} among {self.seen}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(PATIENCE_SECONDS)

    def wait_for_silence(self) -> list[Line]:
        """Everything it logged, once nobody is left who could log: no child lives on."""
        for _ in self._until_silent():
            pass
        return self.seen

    def _until_silent(self) -> Iterator[Line]:
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE_SECONDS)
            except Empty:
                raise AssertionError(f"nothing more came after {self.seen}") from None
            if line is None:
                self._lines.put(None)
                return
            self.seen.append(line)
            self._unmatched.append(line)
            yield line

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for text in stream:
                self._lines.put(json.loads(text) if text.startswith("{") else {"message": text})
        self._lines.put(None)


@contextmanager
def killed_at_the_end(pids: list[int]) -> Iterator[None]:
    """Leave no process behind, whatever the test finds."""
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
