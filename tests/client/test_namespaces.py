"""Namespaces: a client sees and touches only its own rows; an operator's client sees all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from perdure import AsyncClient, InvalidInput, JobNotFound, NoResult, Status
from perdure.model.outcome import Parked
from perdure.store.contract import Store
from tests.client.played_worker import PlayedWorker
from tests.client.tasks import add
from tests.support.refusal import refused

Act = Callable[[AsyncClient, str], Awaitable[Any]]

BY_ID: dict[str, Act] = {
    "job": lambda client, id: client.jobs.get(id),
    "failures": lambda client, id: client.jobs.attempts(id),
    "abort": lambda client, id: client.jobs.cancel(id),
    "disable": lambda client, id: client.jobs.disable(id),
    "enable": lambda client, id: client.jobs.enable(id),
    "retry": lambda client, id: client.jobs.retry(id),
    "resume": lambda client, id: client.jobs.resume(id),
    "result": lambda client, id: client.jobs.handle(id).result(timeout=0),
    "status": lambda client, id: client.jobs.handle(id).status(),
    "watch": lambda client, id: anext(client.jobs.handle(id).watch()),
}

OF_ONE_NAMESPACE: dict[str, Callable[[AsyncClient], Awaitable[Any]]] = {
    "enqueue": lambda client: client.enqueue(add, 1),
    "enqueue_many": lambda client: client.enqueue_many(add, [1]),
    "result_of": lambda client: client.jobs.find_result(add, [1]),
    "abort_group": lambda client: client.jobs.cancel_group("run-1"),
    "pause_queue": lambda client: client.queues.pause("default"),
    "resume_queue": lambda client: client.queues.resume("default"),
}


@pytest.fixture
async def team_a(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, namespace="team-a") as client:
        yield client


@pytest.fixture
async def team_b(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, namespace="team-b") as client:
        yield client


@pytest.fixture
async def operator(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, namespace="*") as client:
        yield client


class TestANamespace:
    @pytest.mark.parametrize("act", BY_ID.values(), ids=BY_ID)
    async def test_hides_its_jobs_from_others(self, team_a, team_b, act):
        handle = await team_a.enqueue(add, 1)

        with pytest.raises(JobNotFound):
            await act(team_b, handle.id)

        assert await handle.status() is Status.WAITING

    async def test_is_listed_and_counted_alone(self, team_a, team_b):
        await team_a.enqueue_many(add.options(group="run-1"), [1, 2])
        mine = await team_b.enqueue(add.options(group="run-1"), 1)

        assert [job.id for job in await team_b.jobs.list()] == [mine.id]
        assert await team_b.jobs.count(group="run-1") == 1
        assert [each.total for each in await team_b.queues.list()] == [1]

    async def test_has_fingerprints_of_its_own(self, team_a, team_b):
        first = await team_a.enqueue(add.options(fingerprint="one"), 1)
        second = await team_b.enqueue(add.options(fingerprint="one", on_conflict="fail"), 1)

        assert second.id != first.id

    async def test_aborts_its_own_group(self, team_a, team_b):
        other = await team_a.enqueue(add.options(group="run-1"), 1)
        await team_b.enqueue(add.options(group="run-1"), 1)

        assert (await team_b.jobs.cancel_group("run-1")).cancelled == 1
        assert await other.status() is Status.WAITING

    async def test_pauses_its_own_queue(self, store, team_a, team_b):
        await team_a.enqueue(add, 1)
        await team_b.queues.pause("default")

        assert len(await PlayedWorker(store, "team-a").claim_all()) == 1
        assert not any(each.is_paused for each in await team_a.queues.list())

    async def test_finds_its_own_results(self, store, team_a, team_b):
        await team_a.enqueue(add, 1)
        worker = PlayedWorker(store, "team-a")
        await worker.complete(await worker.claim(), 2)

        assert await team_a.jobs.find_result(add, [1]) == 2
        with pytest.raises(NoResult):
            await team_b.jobs.find_result(add, [1])


class TestAnOperator:
    async def test_looks_across_all(self, operator, team_a, team_b):
        first = await team_a.enqueue(add, 1)
        second = await team_b.enqueue(add, 2)
        await team_b.queues.pause("default")

        assert [job.id for job in await operator.jobs.list()] == [second.id, first.id]
        assert [job.namespace for job in await operator.jobs.list()] == ["team-b", "team-a"]
        assert await operator.jobs.count(status="waiting") == 2
        queues = {
            (each.namespace, each.name): (each.total, each.is_paused)
            for each in await operator.queues.list()
        }
        assert queues == {("team-a", "default"): (1, False), ("team-b", "default"): (1, True)}
        assert (await operator.jobs.get(first.id)).args == [1]

    async def test_acts_on_any_job_by_id(self, store, operator, team_a):
        handle = await team_a.enqueue(add, 1)

        assert (await operator.jobs.disable(handle.id)).after is Status.DISABLED
        assert (await operator.jobs.enable(handle.id)).after is Status.WAITING
        worker = PlayedWorker(store, "team-a")
        await worker.settle(await worker.claim(), Parked())
        assert (await operator.jobs.resume(handle.id)).after is Status.WAITING
        assert (await operator.jobs.cancel(handle.id)).after is Status.CANCELLED
        assert (await operator.jobs.retry(handle.id)).after is Status.WAITING
        await worker.complete(await worker.claim(), 5)
        assert await operator.jobs.handle(handle.id).result(timeout=10) == 5

    @pytest.mark.parametrize("act", OF_ONE_NAMESPACE.values(), ids=OF_ONE_NAMESPACE)
    async def test_is_refused_what_needs_one_namespace(self, operator, act):
        with refused("client.namespace_required", InvalidInput):
            await act(operator)

        assert await operator.jobs.count() == 0
