"""Clocks that are wrong for exactly the intended processes."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from perdure.clock import system_clock
from proof.chaos.clock import TurnedClock

HOUR = 3600

WRONG = f"""
from datetime import UTC, datetime
from perdure import clock
from proof.chaos.clock import shift_wall_clock

before = clock.new_id()
shift_wall_clock({HOUR})
shift = clock.system_clock() - datetime.now(UTC)
print(round(shift.total_seconds()), clock.new_id() > before, clock.monotonic() > 0)
"""


def test_a_turned_clock_is_turned_for_all_who_share_it(tmp_path: Path) -> None:
    ours, theirs = TurnedClock(tmp_path / "clock"), TurnedClock(tmp_path / "clock")

    ours.turn(HOUR)
    ours.turn(-60)

    assert theirs.shift_seconds == HOUR - 60
    ahead = theirs() - system_clock()
    assert timedelta(minutes=58) < ahead <= timedelta(minutes=59)


def test_a_process_may_believe_in_another_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRONG], capture_output=True, text=True, check=False
    )

    assert done.stdout == f"{HOUR} True True\n", done.stderr
