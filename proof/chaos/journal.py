"""What the processes of chaos note outside the store, in pipes that the harness keeps in files.

Pipes, because a full disk must not keep anybody from telling what happened. The evidence log has
what was accepted and refused, which binds the store. The asks are about the rest: what may be there
or not, and that nothing is there that nobody asked for.
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


ASKS_VARIABLE = "PERDURE_CHAOS_ASKS"


class Answer(StrEnum):
    UNCLEAR = "unclear"
    """None came, because the client gave up or was killed."""
    ACCEPTED = "accepted"
    REFUSED = "refused"


class Ask(Value, omit_defaults=True):
    """One act of a client; noted before it, and again with its answer."""

    id: str
    act: str
    run: str = ""
    group: str = ""
    """Of a plain job, whose id is not known before it is accepted."""
    answer: Answer = Answer.UNCLEAR
    error: str = ""


class AskNotes:
    """Adds lines to the pipe, or file, at ``path``."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def begin(self, act: str, *, run: str = "", group: str = "") -> Ask:
        ask = Ask(id=new_nonce(), act=act, run=run, group=group)
        self.write(ask)
        return ask

    def write(self, ask: Ask) -> None:
        os.write(self._file, msgspec.json.encode(ask) + b"\n")


@cache
def asks() -> AskNotes:
    """The notes of this process."""
    return AskNotes(os.environ[ASKS_VARIABLE])


def read_asks(path: Path) -> list[Ask]:
    """All that was asked, each with its answer."""
    latest: dict[str, Ask] = {}
    for ask in _lines(path):
        latest[ask.id] = ask
    return list(latest.values())


def by_answer(asked: list[Ask]) -> dict[str, Counter[str]]:
    """How often each act was accepted, refused and left unclear."""
    counts: dict[str, Counter[str]] = {}
    for ask in asked:
        counts.setdefault(ask.act, Counter())[ask.answer] += 1
    return counts


def _lines(path: Path) -> Iterator[Ask]:
    decoder = msgspec.json.Decoder(Ask)
    with path.open("rb") as file:
        for line in file:
            yield decoder.decode(line)
