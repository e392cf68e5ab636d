"""The simulated time and ids, in place of those of ``perdure.clock`` while a simulation runs.

Everything in the library asks ``perdure.clock``, so turning what that module asks is enough, also
for those who keep one of its functions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from perdure import clock
from proof.simulate.actors import ACTING
from proof.simulate.loop import SimulatedLoop

BEGINNING = datetime(2030, 1, 1, tzinfo=UTC)


def moment(seconds: float) -> datetime:
    return BEGINNING + timedelta(seconds=seconds)


class _Time:
    """What ``perdure.clock`` reads of ``time``, on the clock of whoever asks."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def time_ns(self) -> int:
        return int(self.wall().timestamp() * 1e9)

    def wall(self) -> datetime:
        loop = self._loop
        return moment(loop.now + ACTING.get(loop.home).process.wall_offset)


class _Datetime:
    """What it reads of ``datetime``."""

    def __init__(self, time: _Time) -> None:
        self._time = time

    def now(self, timezone: tzinfo) -> datetime:
        return self._time.wall().astimezone(timezone)


class _Os:
    """What it reads of ``os``."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def urandom(self, size: int) -> bytes:
        return self._draw.randbytes(size)


@contextmanager
def simulated_clock(loop: SimulatedLoop, seed: str) -> Iterator[None]:
    """Let time, ids and chance come from the simulation within the block."""
    time = _Time(loop)
    chance = random.getstate()
    ids: Any = clock.new_id.__self__  # type: ignore[attr-defined]  # it is a method
    names: dict[str, Any] = {
        "time": time,
        "datetime": _Datetime(time),
        "os": _Os(random.Random(f"ids of {seed}")),
    }
    before = {name: getattr(clock, name) for name in names}
    _replace(names)
    ids.__init__()  # or they would count on from those of the last simulation
    random.seed(f"chance of {seed}")
    try:
        yield
    finally:
        _replace(before)
        ids.__init__()
        random.setstate(chance)


def _replace(names: dict[str, Any]) -> None:
    for name, value in names.items():
        setattr(clock, name, value)
