"""Asking why a run is where it is: everything around it is looked at."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure import Action, AsyncClient, Finding, Flow, RunNotFound, RunStatus
from tests.client.flows import asking, failing, keep, late, ordering, parent
from tests.client.runs import until, worker_at


async def only(client: AsyncClient, id: str) -> Finding:
    [finding] = (await client.runs.explain(id)).findings
    return finding


class TestExplain:
    async def test_says_that_there_is_no_worker(self, client, clock):
        since = clock()
        await client.submit(ordering, 3, id="order-3")
        clock.advance(timedelta(hours=1))

        explanation = await client.runs.explain("order-3")

        [finding] = explanation.findings
        assert (finding.code, finding.about) == ("explain.no_worker", "read_order")
        assert finding.args["since"] == since
        assert explanation.headline == (finding,)

    async def test_names_the_version_that_workers_have(self, client, store):
        newer = Flow("ordering").then(keep).build()
        async with worker_at(store):
            await client.submit(newer, 3, id="order-3")

            finding = await only(client, "order-3")

        assert finding.code == "explain.no_version"
        assert finding.args["flow"] == newer.graph.text
        assert finding.args["nearest"] == ordering.graph.text

    async def test_tells_who_executes_what(self, client, worker):
        await client.submit(ordering, 3, id="order-3")
        await worker.claim()

        finding = await only(client, "order-3")

        assert finding.code == "explain.running"
        assert (finding.args["task"], finding.args["attempt"]) == ("read_order", 1)
        assert finding.args["worker"] == "played-worker"

    async def test_tells_that_a_queue_is_paused(self, client):
        await client.submit(ordering, 3, id="order-3")
        await client.queues.pause("default", by="ann")

        finding = await only(client, "order-3")

        assert finding.code == "explain.queue_paused"
        assert (finding.args["queue"], finding.args["by"]) == ("default", "ann")

    async def test_tells_what_is_waited_for(self, client, store):
        asked = await client.submit(asking, 3, id="asked")
        above = await client.submit(parent, 3, id="above")
        await client.submit(late, 3, id="late")
        async with worker_at(store):
            await until(asked, RunStatus.WAITING)
            await until(above, RunStatus.WAITING)

            signal = await only(client, "asked")
            child = await only(client, "above")
            timer = await only(client, "late")

        assert (signal.code, signal.args["signal"]) == ("explain.signal", "answer")
        assert (child.code, child.args["child"]) == ("explain.child", "above/asking")
        assert timer.code == "explain.timer"

    async def test_tells_why_it_is_paused(self, client, clock):
        await client.submit(ordering, 3, id="order-3")
        clock.advance(timedelta(hours=1))
        since = clock()
        await client.runs.pause("order-3", reason="maintenance", by="ann")
        clock.advance(timedelta(hours=1))

        assert await only(client, "order-3") == Finding(
            code="explain.paused",
            args={"run": "order-3", "by": "ann", "since": since, "reason": "maintenance"},
            actions=(Action("runs.resume", {"id": "order-3"}),),
        )

    async def test_tells_what_it_failed_with(self, client, store):
        async with worker_at(store):
            run = await client.submit(failing, 3)
            await until(run, RunStatus.FAILED)

        explanation = await client.runs.explain(run.id)

        assert explanation.headline == explanation.findings
        assert explanation.findings[0].code == "explain.node_failed"
        assert explanation.findings[0].args == {
            "node": "refuse",
            "error": "ValueError",
            "reason": "out of paper",
        }

    async def test_of_no_run(self, client):
        with pytest.raises(RunNotFound):
            await client.runs.explain("order-3")
