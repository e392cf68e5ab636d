"""Wrong clocks: one shifted for all processes, and one wrong in a single process.

SQLite uses the clock of its processes, which run on one machine and read the same one. PostgreSQL
uses its own, and the clocks of its clients must not matter.
"""

from __future__ import annotations

import mmap
import struct
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

from perdure import clock
from perdure.clock import system_clock

_SHIFT = struct.Struct("<d")


class TurnedClock:
    """The system clock plus a shift, stored in a file that processes share."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_SHIFT.pack(0.0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _SHIFT.size)

    def __call__(self) -> datetime:
        return system_clock() + timedelta(seconds=self.shift_seconds)

    @property
    def shift_seconds(self) -> float:
        shift: float = _SHIFT.unpack_from(self._shared)[0]
        return shift

    def turn(self, seconds: float) -> None:
        """Shift the clock forward, or back if negative, immediately for all."""
        _SHIFT.pack_into(self._shared, 0, self.shift_seconds + seconds)


def shift_wall_clock(shift_seconds: float) -> None:
    """Make the wall clock of this process, which only ``perdure.clock`` reads, wrong."""
    right, shift_ns = vars(clock)["time"], round(shift_seconds * 1e9)
    vars(clock)["time"] = SimpleNamespace(
        monotonic=right.monotonic, time_ns=lambda: right.time_ns() + shift_ns
    )
    vars(clock)["system_clock"] = lambda: system_clock() + timedelta(seconds=shift_seconds)
