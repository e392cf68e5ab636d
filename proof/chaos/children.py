"""The child processes of chaos: ``python -m proof.chaos.children JSON``.

A worker, or clients, by the role in its settings. Each ends with its parent; SIGTERM stops it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

from perdure import Worker
from perdure.model.job import DEFAULT_QUEUE
from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.worker.events import AttemptRequeued, WorkerStarted
from proof.chaos.clients import Clients
from proof.chaos.clock import TurnedClock, shift_wall_clock
from proof.chaos.journal import evidence
from proof.chaos.load import ASIDE, FLOWS, LEASE_SECONDS, TASKS
from proof.chaos.processes import READY

MAX_CRASHES = 1_000
"""High enough that no job becomes a poison pill: workers die of injected faults."""

_log = logging.getLogger("perdure.chaos")


def main() -> None:
    settings = own_settings()
    # If the settings name a clock, the store uses it, and faults may shift it.
    clock = None if settings["clock"] is None else TurnedClock(Path(settings["clock"]))
    store = store_at(settings["url"], clock=clock)
    if settings["role"] == "worker":
        run_worker(store, settings)
    else:
        asyncio.run(run_clients(store, settings))


def run_worker(store: Store, settings: dict[str, Any]) -> None:
    worker = Worker(
        store,
        tasks=TASKS,
        flows=FLOWS,
        queues=[DEFAULT_QUEUE, ASIDE] if settings["serves_all"] else [DEFAULT_QUEUE],
        tags=None if settings["serves_all"] else [],
        id=settings["worker"],
        concurrency=settings["concurrency"],
        lease=LEASE_SECONDS,
        poll="500ms",
        grace="3s",
        hold_off="100ms",
        max_crashes=MAX_CRASHES,
    )
    worker.on(AttemptRequeued, lambda event: evidence().requeued(event.job_id, event.attempt))
    worker.on(WorkerStarted, lambda _: say_ready())
    worker.run()


async def run_clients(store: Store, settings: dict[str, Any]) -> None:
    serving = asyncio.ensure_future(Clients(store, settings).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    say_ready()
    await asyncio.wait([serving])
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise error


def own_settings() -> dict[str, Any]:
    """The settings of this process; from now on it ends with its parent."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level="WARNING")
    logging.getLogger("perdure.chaos").setLevel("INFO")
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    config: dict[str, Any] = json.loads(sys.argv[1])
    if most := config.get("clock_error_seconds"):
        error = Random(f"{config['name']}.{config['generation']}").uniform(-most, most)
        shift_wall_clock(error)
        _log.info("the clock is wrong by %+.0f s", error)
    return config


def say_ready() -> None:
    print(READY, file=sys.stderr, flush=True)


def _end_with_parent() -> None:
    # Not through sys.stdin: its lock would be held at interpreter exit.
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
