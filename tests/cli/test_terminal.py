"""What people see: colours and live bars in a terminal, whole plain lines in a pipe."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from perdure import Client, Worker
from perdure.cli.terminal import stdout_terminal
from tests.cli import sample_tasks as sample
from tests.cli.processes import PATIENCE_SECONDS, clean_environment, run_cli

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def in_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """What a command writes to a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    # A test runner may say how wide its own output is, and that it wants no colours.
    kept = {k: v for k, v in clean_environment().items() if k not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure.cli", *arguments],
        env={**kept, "TERM": "xterm-256color", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        close_fds=True,
    )
    os.close(theirs)
    written = b""
    while chunk := _read(ours):
        written += chunk
    os.close(ours)
    process.wait(PATIENCE_SECONDS)
    return written.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other end was closed
        return b""


@pytest.fixture
def finished(url: str, client: Client) -> str:
    """The id of a completed job, in a queue and group with long names."""
    long = "a-name-that-needs-a-wide-terminal"
    job = client.enqueue(sample.echo.options(queue=long, group=long), "x" * 200)
    worker = Worker(url, tasks=[sample.echo], queues=[long]).start()
    job.result(timeout=30)
    worker.shutdown()
    worker.join()
    return job.id


@pytest.mark.parametrize("columns", [40, 60, 80, 160])
def test_a_table_fits_the_terminal(url, finished, columns):
    written = in_terminal(columns, "jobs", "list", "--store", url)

    lines = _ESCAPES.sub("", written).splitlines()
    assert [len(line) > columns for line in lines] == [False, False]
    assert lines[1].startswith(finished)


def test_a_terminal_has_colours_unless_they_are_not_wanted(url, finished):
    assert "\x1b[32mcompleted" in in_terminal(80, "jobs", "list", "--store", url)
    assert "\x1b[32m" not in in_terminal(80, "jobs", "list", "--store", url, NO_COLOR="1")


def test_a_pipe_gets_whole_lines_without_colours(url, finished, folder):
    listed = run_cli("jobs", "list", "--store", url, cwd=folder, environment={"COLUMNS": "40"})
    shown = run_cli("jobs", "get", finished, "--store", url, cwd=folder)

    assert "a-name-that-needs-a-wide-terminal" in listed.stdout
    assert "x" * 200 in shown.stdout
    assert "\x1b" not in listed.stdout + shown.stdout


def test_watching_in_a_terminal_shows_a_bar(url, finished):
    written = in_terminal(60, "jobs", "watch", finished, "--store", url)

    last = _ESCAPES.sub("", written).splitlines()[-1]
    assert last.strip().startswith("completed")
    assert "━" in last
    assert "100%" in last


def test_a_reader_that_leaves_early_is_no_error(url, finished, folder):
    program = f"{sys.executable} -m perdure.cli jobs get {finished} --json --store {url}"
    done = subprocess.run(
        ["/bin/sh", "-c", f"{program} | head -n 1"],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr


def test_writes_what_the_terminal_cannot_show_in_another_way(
    monkeypatch,
):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))

    stdout_terminal().print("Zoë: ✓")
    sys.stdout.flush()

    assert written.getvalue() == b"Zo?: ?\n"
