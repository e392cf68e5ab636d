"""Asking why a run is where it is: everything around it is looked at."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure import AsyncClient, Finding, FindingKind, Flow, RunNotFound, RunStatus
from perdure.clock import ManualClock
from perdure.store.contract import Store
from tests.client.flows import asking, failing, keep, late, ordering, parent
from tests.client.played_worker import PlayedWorker
from tests.client.runs import until, worker_at


def told(clock: ManualClock) -> str:
    return clock().isoformat(sep=" ", timespec="seconds")


async def kinds_and_texts(client: AsyncClient, id: str) -> list[tuple[FindingKind, str]]:
    return [(each.kind, each.text) for each in (await client.explain(id)).findings]


class TestExplain:
    async def test_says_that_there_is_no_worker(
        self, client: AsyncClient, clock: ManualClock
    ) -> None:
        since = told(clock)
        await client.submit(ordering, 3, id="order-3")
        clock.advance(timedelta(hours=1))

        explanation = await client.explain("order-3")

        assert explanation.summary == (
            f"Nothing runs: no worker is live; the job is ready since {since}."
        )
        [finding] = explanation.findings
        assert (finding.kind, finding.key) == (FindingKind.NO_WORKER, "read_order")

    async def test_names_the_version_that_workers_have(
        self, client: AsyncClient, store: Store
    ) -> None:
        newer = Flow("ordering").then(keep).build()
        async with worker_at(store):
            await client.submit(newer, 3, id="order-3")

            [(kind, text)] = await kinds_and_texts(client, "order-3")

        assert kind is FindingKind.NO_VERSION
        assert newer.graph.text in text
        assert ordering.graph.text in text

    async def test_tells_who_executes_what(self, client: AsyncClient, worker: PlayedWorker) -> None:
        await client.submit(ordering, 3, id="order-3")
        await worker.claim()

        [(kind, text)] = await kinds_and_texts(client, "order-3")

        assert kind is FindingKind.RUNNING
        assert "attempt 1 of task 'read_order' runs on worker played-worker" in text

    async def test_tells_that_a_queue_is_paused(self, client: AsyncClient) -> None:
        await client.submit(ordering, 3, id="order-3")
        await client.pause_queue("default", by="ann")

        [found] = (await client.explain("order-3")).findings

        assert found.text.startswith("queue 'default' is paused by ann since ")

    async def test_tells_what_is_waited_for(self, client: AsyncClient, store: Store) -> None:
        asked = await client.submit(asking, 3, id="asked")
        above = await client.submit(parent, 3, id="above")
        await client.submit(late, 3, id="late")
        async with worker_at(store):
            await until(asked, RunStatus.WAITING)
            await until(above, RunStatus.WAITING)

            signal = await kinds_and_texts(client, "asked")
            child = await kinds_and_texts(client, "above")
            timer = await kinds_and_texts(client, "late")

        assert signal[0][0] is FindingKind.SIGNAL
        assert signal[0][1].startswith("it waits for signal 'answer' since ")
        assert child[0][0] is FindingKind.CHILD
        assert "child run 'above/asking' (" in child[0][1]
        assert timer[0][0] is FindingKind.TIMER

    async def test_tells_why_it_is_paused(self, client: AsyncClient, clock: ManualClock) -> None:
        await client.submit(ordering, 3, id="order-3")
        clock.advance(timedelta(hours=1))
        since = told(clock)
        await client.pause("order-3", reason="maintenance", by="ann")
        clock.advance(timedelta(hours=1))

        [found] = (await client.explain("order-3")).findings

        assert found == Finding(
            kind=FindingKind.PAUSED,
            text=f"it is paused by ann since {since}: maintenance",
            help="client.unpause('order-3')",
        )

    async def test_tells_what_it_failed_with(self, client: AsyncClient, store: Store) -> None:
        async with worker_at(store):
            run = await client.submit(failing, 3)
            await until(run, RunStatus.FAILED)

        explanation = await client.explain(run.id)

        assert explanation.summary == "Node 'refuse' failed: ValueError: out of paper."

    async def test_of_no_run(self, client: AsyncClient) -> None:
        with pytest.raises(RunNotFound):
            await client.explain("order-3")
