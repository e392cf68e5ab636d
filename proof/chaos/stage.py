"""Where chaos takes place: a store, the way to it, and what can go wrong with both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from proof.chaos.faults import Fault
from proof.chaos.processes import Crew


class Stage(ABC):
    """One store. ``url`` is for the processes, ``own_url`` for the harness, past every fault."""

    name: str
    url: str
    own_url: str
    clock: Path | None = None
    """The shift of the clock that the processes go by; None: the store has its own."""

    clock_error_seconds: float = 0.0
    """By how much the own clock of each process may be wrong, if the store has one."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def faults(self, crew: Crew) -> list[Fault]:
        """What goes wrong with this store."""

    @abstractmethod
    def left_out(self) -> list[str]:
        """What cannot be done here, and why."""
