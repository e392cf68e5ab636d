"""A wall clock that somebody turns: all processes of one machine read the same shift of it.

Only SQLite goes by the clock of its processes. PostgreSQL has its own, which cannot be turned
from outside.
"""

from __future__ import annotations

import mmap
import struct
from datetime import datetime, timedelta
from pathlib import Path

from perdure.clock import system_clock

_SHIFT = struct.Struct("<d")


class TurnedClock:
    """The system's clock plus a shift, which is kept in a file that processes share."""

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
        """Forward, or back if negative; at once, for all."""
        _SHIFT.pack_into(self._shared, 0, self.shift_seconds + seconds)
