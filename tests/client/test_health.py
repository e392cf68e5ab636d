"""How a store is, as a client tells it, on every store; and clearing it out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from perdure import AsyncClient, Client, Flow, InvalidInput, Worker, task
from perdure.clock import ManualClock
from perdure.diagnostics import Severity
from perdure.model.job import Status
from perdure.model.run import RunStatus
from perdure.operations.insight.health import Health
from perdure.store.opening import store_at
from tests.conformance.builders import worker_info
from tests.support.refusal import refused


@task
def add(a: int, b: int) -> int:
    return a + b


@task
def refuse(value: int) -> int:
    raise ValueError("no")


asks = Flow("asks").then(add, config={"a": 1, "b": 2}).wait_for_signal("go").build()
fails = Flow("fails").then(refuse).build()


@pytest.fixture
def client(store_url: str) -> Iterator[Client]:
    with Client(store_url) as client:
        yield client


@pytest.fixture
def everywhere(client: Client, store_url: str) -> Iterator[Client]:
    with Client(store_url, namespace="*") as everywhere:
        yield everywhere


def wrong(health: Health) -> list[str]:
    return [f"{each.severity} {each.about}" for each in health.findings if each.severity != "ok"]


class TestHealth:
    def test_a_new_store_is_well_and_has_no_worker(self, client):
        health = client.store.health()

        assert health.is_well
        assert wrong(health) == ["warning workers"]
        assert health.url == client.store_url

    def test_work_without_a_worker_is_an_error_wherever_it_is(self, client, everywhere, store_url):
        with Client(store_url, namespace="team-a") as other:
            other.enqueue(add, 1, 2)

        assert client.store.health().is_well
        assert wrong(everywhere.store.health()) == ["error workers"]

    async def test_jobs_that_a_live_worker_has_no_code_for(self, store_url):
        store = store_at(store_url)
        await store.open()
        async with AsyncClient(store_url) as client:
            await client.enqueue(add, 1, 2)
            await client.submit(asks, None)
            await store.maintenance.register_worker(
                worker_info(namespace="default", tasks=("refuse",))
            )
            findings = (await client.store.health()).findings
        await store.close()

        found = {each.code: each.args for each in findings if each.severity is Severity.ERROR}
        assert found == {
            "health.task_unserved": {"task": "add"},
            "health.flow_unserved": {"flow": f"asks@{asks.version}"},
        }

    def test_a_waiting_run_is_well(self, client, store_url):
        run = client.submit(asks, None)
        with_it = Worker(store_url, flows=[asks]).start()
        try:
            assert any(event.status == "waiting" for event in run.watch())
            assert client.store.health().is_well
        finally:
            with_it.shutdown()
            with_it.join()

    def test_paused_queues_are_told_of(self, client):
        client.queues.pause("mail", by="ann")

        assert "warning queues" in wrong(client.store.health())


class TestFlows:
    def test_counts_runs_by_version(self, client, everywhere):
        client.submit(asks, None, id="a")
        client.submit(asks, None, id="b")
        client.runs.cancel("b")

        [found] = client.flows.list()
        assert (found.flow, found.version) == ("asks", asks.version)
        assert (found.live, found.ended) == (1, 1)
        assert list(everywhere.flows.list()) == [found]


class TestPrune:
    def test_removes_what_was_counted(self, client):
        client.submit(asks, None, id="live")
        client.submit(asks, None, id="over")
        client.runs.cancel("over")
        job = client.enqueue(add, 1, 2)
        job.cancel()

        found = client.store.count_finished(older_than=0)
        assert (found.jobs, found.runs) == ({Status.CANCELLED: 1}, {RunStatus.CANCELLED: 1})
        assert client.store.prune(older_than="1h") == 0
        assert client.store.prune(older_than=0, status="completed") == 0
        assert client.store.prune(older_than=0, status="cancelled") == 2

        assert [run.id for run in client.runs.list()] == ["live"]
        assert client.store.count_finished(older_than=0).jobs == {}

    def test_takes_more_than_one_batch(self, store_url, monkeypatch):
        monkeypatch.setattr("perdure.operations.store.PRUNE_BATCH", 2)
        with Client(store_url) as client:
            client.enqueue_many(add.options(group="all"), [(1, 2)] * 5)
            client.jobs.cancel_group("all")

            assert client.store.prune(older_than=0) == 5

    def test_refuses_what_is_no_end(self, client, everywhere):
        ends = ("cancelled", "completed", "dead", "failed", "skipped")
        with refused("argument.choice", InvalidInput, name="status", choices=ends):
            client.store.prune(older_than=0, status="running")
        with refused("argument.duration", InvalidInput, name="older_than"):
            client.store.count_finished(older_than="soon")
        with refused("client.namespace_required", InvalidInput, operation="store.prune"):
            everywhere.store.prune(older_than=0)


def test_a_clock_that_goes_wrong_is_noticed(store_url):
    with Client(store_at(store_url, clock=ManualClock(datetime(2020, 1, 1, tzinfo=UTC)))) as client:
        assert "warning clock" in wrong(client.store.health())
