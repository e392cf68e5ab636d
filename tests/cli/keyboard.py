"""A command at a terminal of its own, with somebody who waits for prompts and types."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from types import TracebackType
from typing import Self

from tests.cli.processes import PATIENCE_SECONDS, clean_environment

_END_OF_INPUT = b"\x04"


class Keyboard:
    def __init__(self, columns: int, *arguments: str) -> None:
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        kept = {k: v for k, v in clean_environment().items() if k not in ("COLUMNS", "NO_COLOR")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perdure.cli", *arguments],
            env={**kept, "TERM": "xterm-256color"},
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

    def __exit__(
        self,
        found_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
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
        self._process.wait(PATIENCE_SECONDS)
        return self.written[self._seen :]

    def _read(self) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], PATIENCE_SECONDS)
        assert ready, f"the command neither wrote nor ended: {self.written}"
        try:
            chunk = os.read(self._terminal, 65536)
        except OSError:  # how Linux says that the other end was closed
            return False
        self._received += self._decoder.decode(chunk)  # a read may end within a character
        return bool(chunk)
