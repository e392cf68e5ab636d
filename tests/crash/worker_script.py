"""A worker in a process of its own: ``worker_script.py URL {"lease": "1s", ...}``.

It prints one JSON line for each event, and stops gracefully on SIGTERM.
"""

from __future__ import annotations

import json
import sys

from perdure import Worker
from perdure.worker.events import JobEvent, WorkerEvent
from tests.crash.crash_tasks import ALL


def tell(event: WorkerEvent) -> None:
    job = event.job_id if isinstance(event, JobEvent) else None
    print(json.dumps({"event": type(event).__name__, "job": job}), flush=True)


def main(url: str, settings: str) -> None:
    worker = Worker(url, tasks=ALL, **json.loads(settings))
    worker.on(WorkerEvent, tell)
    worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
