"""What the checker found: each finding names one contradiction, and where it is."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.model.value import Value


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


class Judged(Value):
    """On how much a limit was judged, of what the witness log says ran under it."""

    executions: int
    at_once: int = 0
    """Those of which it is known that they held their claims from beginning to end."""
    starts: int = 0
    """Those of which it is known when they started."""


class Counts(Value):
    """How much was looked at, so that a check of nothing cannot pass for a good one."""

    runs: int = 0
    ended_runs: int = 0
    events: int = 0
    snapshots: int = 0
    jobs: int = 0
    waits: int = 0
    schedules: int = 0
    executions: int = 0
    """Bodies that began, by the witness log."""
    committed: int = 0
    """Of those, the ones whose outputs were found in the store."""
    accepted: int = 0
    refused: int = 0
    acts: int = 0
    ends: int = 0
    """Ends that clients were told."""
    limits: Mapping[str, Judged] = {}
    """By key, for each limit that the check was told of. Bodies that do not sign their outputs
    leave a limit unjudged: then these are 0."""
