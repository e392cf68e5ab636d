"""A store full of work at every stage, made by a real worker; and what must become of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perdure import Client, Worker
from perdure.client.sync import RunHandle
from perdure.model.job import JobFilter
from perdure.model.run import RunFilter, WaitFilter, WaitType
from perdure.store.contract import EventsAfter
from perdure.store.opening import store_at
from tests.transfer import flows
from tests.transfer.flows import FLOWS, ITEMS, TASKS, Gate

MANY = 1000


async def seen_of(url: str) -> dict[str, Any]:
    store = store_at(url)
    await store.open()
    try:
        runs = await store.queries.list_runs(RunFilter(), MANY)
        jobs = await store.queries.list_jobs(JobFilter(), MANY)
        asked = [EventsAfter(namespace=run.namespace, id=run.id) for run in runs]
        whole = [EventsAfter(namespace=run.namespace, id=run.id, number=0) for run in runs]
        return {
            "runs": runs,
            "states": await store.runs.load(asked),
            "logs": await store.runs.load(whole),
            "definitions": [
                await store.runs.get_definition(run.namespace, run.flow, run.version)
                for run in runs
            ],
            "run jobs": [await store.queries.run_jobs(run.namespace, run.id) for run in runs],
            "run waits": [await store.queries.run_waits(run.namespace, run.id) for run in runs],
            "signals": await store.queries.list_waits(WaitFilter(type=WaitType.SIGNAL), MANY),
            "approvals": await store.queries.list_waits(WaitFilter(type=WaitType.APPROVAL), MANY),
            "outside": await store.queries.list_waits(WaitFilter(type=WaitType.EXTERNAL), MANY),
            "jobs": [await store.queries.get_job(None, job.id) for job in jobs],
            "job states": await store.queries.job_states([job.id for job in jobs]),
            "failures": [await store.queries.failed_attempts(job.id) for job in jobs],
            "schedules": await store.schedules.list(None),
            "paused": await store.admin.paused_queues(None),
            "depth": await store.admin.queue_stats(None),
            "runs in numbers": await store.admin.run_stats(None),
            "counts": await store.queries.work_counts(None),
        }
    finally:
        await store.close()


WAIT_SECONDS = 20
LARGE = "x" * 5000
"""More than SQLite keeps within the row of a job."""


@contextmanager
def working(url: str, poll: str = "200ms") -> Iterator[Worker]:
    """A worker that is gone afterwards, without a job in its hands."""
    worker = Worker(url, tasks=TASKS, flows=FLOWS, poll=poll)
    handle = worker.start()
    try:
        yield worker
    finally:
        handle.shutdown()
        assert handle.join(WAIT_SECONDS)


def fill(url: str) -> None:
    """Run each run until it cannot continue by itself, and stop."""
    Gate.is_open = False
    Gate.fetched = 0
    with Client(url) as client:
        client.queues.pause("stopped", by="ann")
        client.enqueue(flows.stopped.options(group="later"), 7)
        client.enqueue(flows.flaky, LARGE)
        client.enqueue(flows.flaky.options(delay="1d", fingerprint="once"), "tomorrow")
        client.schedules.save("ticks", flows.tick, every="1s", input="tick")
        with working(url):
            client.submit(flows.calm, 8, id="calm").result(timeout=WAIT_SECONDS)
            client.submit(flows.calm, 9, id="too-soon")
            for flow, row_type in _LAST_BEFORE_THE_MOVE.items():
                _follow(client.submit(flow, _INPUTS.get(flow, flow.name), id=flow.name), *row_type)
            client.runs.report("label", "print_label", progress={"page": 1})


_INPUTS: dict[Any, Any] = {flows.sorting: ITEMS}
_LAST_BEFORE_THE_MOVE = {
    flows.nap: ("node_completed", 1),
    flows.letter: ("node_completed", 1),
    flows.question: ("node_completed", 1),
    flows.parent: ("node_completed", 1),
    flows.label: ("node_paused", 1),
    flows.sorting: ("item_completed", 2),
    flows.stepping: ("node_retried", 1),
}
"""The event that each run reaches, and how often."""


def _follow(run: RunHandle, row_type: str, count: int) -> None:
    for event in run.watch():
        count -= event.type == row_type
        if not count:
            return
    raise AssertionError(f"{run.id} is over without {row_type}")


def act(client: Client) -> None:
    """Supply what the runs wait for, and open the gate."""
    Gate.is_open = True
    client.queues.resume("stopped")
    client.runs.signal("letter", "letter", "a letter")
    [child] = client.runs.handle("parent").children()
    client.runs.signal(child.id, "letter", "for the child")
    client.approvals.decide("question:ask", "approve", by="ann")
    client.runs.report("label", "print_label", status="completed", result="L-4")


def results(client: Client) -> dict[str, Any]:
    """The results of the runs."""
    ids = (flow.name for flow in _LAST_BEFORE_THE_MOVE)
    found = {id: client.runs.handle(id).result(timeout=WAIT_SECONDS) for id in ids}
    found["question"] = found["question"]["decision"]
    return found


RESULTS = {
    "nap": "nap",
    "letter": "a letter",
    "question": "approve",
    "parent": "for the child",
    "label": {"label": "L-4", "pages": {"page": 1}},
    "sorting": 2 * sum(ITEMS),
    "stepping": ["first of stepping", "second"],
}
