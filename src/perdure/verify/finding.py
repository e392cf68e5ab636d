"""What a verification is told, and what it found: each finding names one contradiction."""

from __future__ import annotations

from datetime import timedelta

from perdure.model.payload import Codec, PlainCodec
from perdure.model.value import Value

GRACE = timedelta(seconds=60)
"""How late a worker that lives may be with what is due, unless the caller says otherwise."""


class VerifySettings(Value):
    namespace: str | None = None
    """The one to look at; None: all."""
    allows_pruned: bool = False
    """Retention was on: what ended long ago may be gone."""
    grace: timedelta | None = None
    """How late anything due may be. None: a minute, where a worker lives; else there is nobody."""
    closed_max: timedelta = timedelta(days=366)
    """A limit that is closed for longer than this is taken for one that never opens."""
    codec: Codec = PlainCodec()
    """The one that the clients and workers of this store use."""


class Finding(Value, omit_defaults=True):
    """One thing that must not be so. ``text`` says what contradicts what."""

    invariant: str
    """As the design page numbers them: ``I1`` to ``I12``; ``log`` for a log that cannot be used."""
    rule: str
    """The name of the check that it did not pass."""
    text: str
    namespace: str = ""
    run: str = ""
    key: str = ""
    """The part of the run, or the schedule."""
    job: str = ""
    numbers: tuple[int, ...] = ()
    """The events that it is about."""

    def __str__(self) -> str:
        places = [
            f"run {self.run!r}" if self.run else "",
            f"key {self.key!r}" if self.key else "",
            f"job {self.job}" if self.job else "",
            f"event {', '.join(map(str, self.numbers))}" if self.numbers else "",
        ]
        place = ", ".join(each for each in places if each)
        return f"{self.invariant} {self.rule}: {f'{place}: ' if place else ''}{self.text}"


class Counts(Value):
    """How much was looked at, so that verifying nothing cannot pass for a good result."""

    runs: int = 0
    ended_runs: int = 0
    events: int = 0
    snapshots: int = 0
    jobs: int = 0
    waits: int = 0
    schedules: int = 0
