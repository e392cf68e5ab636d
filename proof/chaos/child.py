"""What worker and client processes have in common: their settings, and an end with their parent."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

from perdure.store.contract import Store
from perdure.store.opening import store_at
from proof.chaos.processes import READY
from proof.chaos.turned_clock import TurnedClock, believe_in_another_time

_log = logging.getLogger("perdure.chaos")


def settings_told() -> dict[str, Any]:
    """The settings that this process was started with; from now on it ends with its parent."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level="WARNING")
    logging.getLogger("perdure.chaos").setLevel("INFO")
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    told: dict[str, Any] = json.loads(sys.argv[1])
    if most := told.get("clock_error_seconds"):
        error = Random(f"{told['name']}.{told['generation']}").uniform(-most, most)
        believe_in_another_time(error)
        _log.info("the clock is wrong by %+.0f s", error)
    return told


def store_told(settings: dict[str, Any]) -> Store:
    """The store by its URL, going by a clock that may be turned if the settings name one."""
    clock = settings.get("clock")
    return store_at(settings["url"], clock=None if clock is None else TurnedClock(Path(clock)))


def say_ready() -> None:
    print(READY, file=sys.stderr, flush=True)


def _end_with_parent() -> None:
    # Not through sys.stdin: at the end of the interpreter its lock would be held for ever.
    while os.read(0, 1024):
        pass
    os._exit(1)
