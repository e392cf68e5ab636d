"""What clients asked of the store, and what they were told; whoever was told nothing cannot know.

The witness log has what was accepted and refused, which binds the store. This is about the rest:
what may be there or not, and that nothing is there that nobody asked for.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

from perdure.model.value import Value
from proof.evidence.log import new_nonce

VARIABLE = "PERDURE_CHAOS_ASKS"


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
    return AskNotes(os.environ[VARIABLE])


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
