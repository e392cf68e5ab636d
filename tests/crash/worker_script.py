"""A worker in a process of its own: ``worker_script.py URL {"lease": "1s", ...}``.

It prints one JSON line for each event, and stops gracefully on SIGTERM. ``"flows": "module:NAME"``
gives it flows instead of tasks, ``"dies": ["committed", "b"]`` a point at which it is killed.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from perdure import Worker
from perdure.flows.built import BuiltFlow
from perdure.store.opening import store_at
from perdure.worker.events import JobEvent, WorkerEvent
from tests.crash.crash_tasks import ALL
from tests.crash.deadly_store import DeadlyStore


def tell(event: WorkerEvent) -> None:
    job = event.job_id if isinstance(event, JobEvent) else None
    print(json.dumps({"event": type(event).__name__, "job": job}), flush=True)


def flows_named(place: str) -> list[BuiltFlow]:
    module, _, name = place.partition(":")
    flows: list[BuiltFlow] = getattr(importlib.import_module(module), name)
    return flows


def main(url: str, settings: str) -> None:
    options: dict[str, Any] = json.loads(settings)
    store = store_at(url)
    if (point := options.pop("dies", None)) is not None:
        store = DeadlyStore(store, *point).as_store()
    code: dict[str, Any] = {"tasks": ALL}
    if (place := options.pop("flows", None)) is not None:
        code = {"flows": flows_named(place)}
    worker = Worker(store, **code, **options)
    worker.on(WorkerEvent, tell)
    worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
