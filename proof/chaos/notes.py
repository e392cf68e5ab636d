"""Where the processes of chaos note what they do: in a pipe that the harness keeps in a file.

A pipe, because a full disk must not keep anybody from telling what happened.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from pathlib import Path

from proof.evidence.log import EvidenceLog

VARIABLE = "PERDURE_CHAOS_WITNESS"
CHUNK_BYTES = 64 * 1024


@cache
def witness() -> EvidenceLog:
    """The witness of this process."""
    return EvidenceLog(os.environ[VARIABLE])


class NotePipe:
    """Takes what all processes write into the pipe at ``path``, and adds it to the file ``log``."""

    def __init__(self, path: Path, log: Path) -> None:
        self.path = path
        self.log = log
        os.mkfifo(path)
        # Read and write, so that it has no end while nobody writes.
        self._pipe = os.open(path, os.O_RDWR)
        self._file = log.open("ab", buffering=0)
        self._thread = threading.Thread(target=self._copy, name=f"notes {log.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """After this, all that was written is in the file."""
        os.write(self._pipe, b"\0")  # the last byte: what came before it is before it
        self._thread.join()
        os.close(self._pipe)
        self._file.close()

    def _copy(self) -> None:
        while True:
            data = os.read(self._pipe, CHUNK_BYTES)
            self._file.write(data.rstrip(b"\0"))
            if data.endswith(b"\0"):
                return
