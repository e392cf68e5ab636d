"""``perdure dev``: workers for local work, started anew when the code changes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

from perdure import Client, Flow, task
from tests.cli.commands import Commands
from tests.cli.processes import PATIENCE_SECONDS, clean_environment, run_cli
from tests.cli.test_errors import assert_told

CODE = """
from perdure import Flow, task

@task
def greet(name: str) -> str:
    return f"{GREETING}, {name}"

greeting = Flow("greeting").then(greet).build()
"""


@task
def greet(name: str) -> str:
    raise NotImplementedError("the workers have another one")


greeting = Flow("greeting").then(greet).build()
"""The same as in the code: what its tasks do is no part of a version."""


def write_code(folder: Path, greeting: str) -> None:
    (folder / "hello.py").write_text(f"GREETING = {greeting}\n{CODE}")


class Lines:
    """What ``perdure dev --json`` prints, as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines: Queue[dict[str, Any] | None] = Queue()
        self._process = process
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                self._lines.put(json.loads(line))
        self._lines.put(None)

    def close(self) -> None:
        self._reader.join(PATIENCE_SECONDS)

    def next(self, what: str, **fields: Any) -> dict[str, Any]:
        """The next line about this; others are passed over."""
        while (line := self._lines.get(timeout=PATIENCE_SECONDS)) is not None:
            if line["what"] == what and fields.items() <= line.items():
                return line
        raise AssertionError(f"it ended before it told of {what} with {fields}")

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        self.next("stopped")
        return self._process.wait(PATIENCE_SECONDS)


@contextmanager
def developing(folder: Path) -> Iterator[Lines]:
    command = [sys.executable, "-m", "perdure.cli", "dev", "hello", "--json", "--processes", "1"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    lines = Lines(process)
    try:
        yield lines
    finally:
        process.kill()
        process.wait()
        lines.close()


def test_runs_what_it_finds_and_takes_up_changes(tmp_path):
    write_code(tmp_path, "'hello'")
    with developing(tmp_path) as lines, Client(f"sqlite:///{tmp_path}/perdure.db") as client:
        assert lines.next("store")["text"] == "store: sqlite:///perdure.db"
        [version] = lines.next("flows")["names"]
        assert lines.next("tasks")["names"] == ["greet"]
        lines.next("workers")

        assert version == f"greeting@{greeting.version}"
        first = client.submit(greeting, "ann", id="first")
        lines.next("run", run="first", status="started", flow="greeting")
        lines.next("run", run="first", status="completed")
        assert first.result(timeout=30) == "hello, ann"

        write_code(tmp_path, "oops")
        assert lines.next("changed")["files"] == ["hello.py"]
        lines.next("kept")

        write_code(tmp_path, "'good morning'")
        lines.next("workers")
        second = client.submit(greeting, "bob", id="second")
        assert second.result(timeout=30) == "good morning, bob"

        assert lines.stop() == 0


def test_a_module_that_is_not_there_is_bad_usage(tmp_path):
    done = run_cli("dev", "nope", cwd=tmp_path)

    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("perdure: module 'nope' not found")
    assert list(tmp_path.iterdir()) == []


def test_memory_cannot_be_shared():
    assert_told(Commands("memory://x")("dev", "nope"), 2, "one process")
