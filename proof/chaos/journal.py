"""Records of chaos processes, written to pipes that the harness copies to files.

Pipes, because a full disk must not keep a process from recording. The evidence log has accepted and
refused requests, which bind the store. The asks cover the rest: work that may or may not exist, and
that nothing else exists.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

from perdure.model.value import Value
from proof.evidence.log import EvidenceLog, new_nonce

EVIDENCE_VARIABLE = "PERDURE_CHAOS_EVIDENCE"
CHUNK_BYTES = 64 * 1024


@cache
def evidence() -> EvidenceLog:
    """The evidence log of this process."""
    return EvidenceLog(os.environ[EVIDENCE_VARIABLE])


class NotePipe:
    """Copies everything that processes write to the pipe at ``path`` to the file ``log``."""

    def __init__(self, path: Path, log: Path) -> None:
        self.path = path
        self.log = log
        os.mkfifo(path)
        # Opened for writing too, so that reading it does not end while there is no writer.
        self._pipe = os.open(path, os.O_RDWR)
        self._file = log.open("ab", buffering=0)
        self._thread = threading.Thread(target=self._copy, name=f"notes {log.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the pipe; everything written before is in the file."""
        os.write(self._pipe, b"\0")  # marks the end of everything written before
        self._thread.join()
        os.close(self._pipe)
        self._file.close()

    def _copy(self) -> None:
        while True:
            data = os.read(self._pipe, CHUNK_BYTES)
            self._file.write(data.rstrip(b"\0"))
            if data.endswith(b"\0"):
                return


ASKS_VARIABLE = "PERDURE_CHAOS_ASKS"


class Answer(StrEnum):
    UNCLEAR = "unclear"
    """No response, because the client gave up or was killed."""
    ACCEPTED = "accepted"
    REFUSED = "refused"


class Ask(Value, omit_defaults=True):
    """One action of a client; recorded before it, and again with its response."""

    id: str
    command: str
    run: str = ""
    group: str = ""
    """The group of a standalone job, whose id is unknown until it is accepted."""
    answer: Answer = Answer.UNCLEAR
    error: str = ""


class AskNotes:
    """Appends lines to the pipe or file at ``path``."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def sent(self, command: str, *, run: str = "", group: str = "") -> Ask:
        ask = Ask(id=new_nonce(), command=command, run=run, group=group)
        self.write(ask)
        return ask

    def write(self, ask: Ask) -> None:
        os.write(self._file, msgspec.json.encode(ask) + b"\n")


@cache
def asks() -> AskNotes:
    """The ask notes of this process."""
    return AskNotes(os.environ[ASKS_VARIABLE])


def read_asks(path: Path) -> list[Ask]:
    """All requests, each with its response."""
    latest: dict[str, Ask] = {}
    for ask in _lines(path):
        latest[ask.id] = ask
    return list(latest.values())


def by_answer(asked: list[Ask]) -> dict[str, Counter[str]]:
    """How often each action was accepted, refused and unclear."""
    counts: dict[str, Counter[str]] = {}
    for ask in asked:
        counts.setdefault(ask.command, Counter())[ask.answer] += 1
    return counts


def _lines(path: Path) -> Iterator[Ask]:
    decoder = msgspec.json.Decoder(Ask)
    with path.open("rb") as file:
        for line in file:
            yield decoder.decode(line)
