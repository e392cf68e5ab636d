"""A worker in a process of its own: ``python -m proof.chaos.worker_process JSON``."""

from __future__ import annotations

from perdure import Worker
from perdure.worker.events import JobReleased, WorkerStarted
from proof.chaos.child import say_ready, settings_told, store_told
from proof.chaos.load import FLOWS, LEASE_SECONDS, TASKS
from proof.chaos.notes import witness

DEATHS_MAX = 1_000
"""Nobody's work is a poison pill here: workers die of other things."""


def main() -> None:
    settings = settings_told()
    worker = Worker(
        store_told(settings),
        tasks=TASKS,
        flows=FLOWS,
        concurrency=settings["concurrency"],
        lease=LEASE_SECONDS,
        poll="500ms",
        grace="3s",
        hold_off="100ms",
        deaths_max=DEATHS_MAX,
    )
    worker.on(JobReleased, lambda event: witness().given_back(event.job_id, event.attempt))
    worker.on(WorkerStarted, lambda _: say_ready())
    worker.run()


if __name__ == "__main__":
    main()
