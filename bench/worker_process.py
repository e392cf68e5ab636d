"""A measured worker process: ``python -m bench.worker_process URL CONCURRENCY``."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.flow_tasks import FLOWS
from bench.tasks import noop, noop_sync, stamp
from bench.waiting_tasks import WAITING_FLOWS
from perdure import Worker
from perdure.worker.events import WorkerStarted


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    url, concurrency = sys.argv[1], int(sys.argv[2])
    flows = [*FLOWS, *WAITING_FLOWS]
    worker = Worker(url, tasks=[noop, noop_sync, stamp], flows=flows, concurrency=concurrency)
    worker.on(WorkerStarted, lambda _: print("started", flush=True))
    worker.run()


@contextmanager
def worker_processes(url: str, count: int, concurrency: int = 100) -> Iterator[list[int]]:
    """Run worker processes until the block ends; yields their ids once all have started."""
    command = [sys.executable, "-m", "bench.worker_process", url, str(concurrency)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "started", "a worker did not start"
        yield [child.pid for child in children]
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(30)


if __name__ == "__main__":
    main()
