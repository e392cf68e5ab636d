"""Namespaces: a client sees and touches only its own rows; an operator's client sees all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from perdure import AsyncClient, InvalidInput, JobNotFound, NoResult, Status
from perdure.model.outcome import Released
from perdure.store.contract import Store
from tests.client.played_worker import PlayedWorker
from tests.client.tasks import add
from tests.support.refusal import refused

Act = Callable[[AsyncClient, str], Awaitable[Any]]

BY_ID: dict[str, Act] = {
    "job": lambda client, id: client.job(id),
    "failures": lambda client, id: client.failures(id),
    "abort": lambda client, id: client.abort(id),
    "disable": lambda client, id: client.disable(id),
    "enable": lambda client, id: client.enable(id),
    "retry": lambda client, id: client.retry(id),
    "resume": lambda client, id: client.resume(id),
    "result": lambda client, id: client.handle(id).result(timeout=0),
    "status": lambda client, id: client.handle(id).status(),
    "watch": lambda client, id: anext(client.handle(id).watch()),
}

OF_ONE_NAMESPACE: dict[str, Callable[[AsyncClient], Awaitable[Any]]] = {
    "enqueue": lambda client: client.enqueue(add, 1),
    "enqueue_many": lambda client: client.enqueue_many(add, [1]),
    "result_of": lambda client: client.result_of(add, 1),
    "abort_group": lambda client: client.abort_group("run-1"),
    "pause_queue": lambda client: client.pause_queue("default"),
    "resume_queue": lambda client: client.resume_queue("default"),
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
    async def test_hides_its_jobs_from_others(
        self, team_a: AsyncClient, team_b: AsyncClient, act: Act
    ) -> None:
        handle = await team_a.enqueue(add, 1)

        with pytest.raises(JobNotFound):
            await act(team_b, handle.id)

        assert await handle.status() is Status.WAITING

    async def test_is_listed_and_counted_alone(
        self, team_a: AsyncClient, team_b: AsyncClient
    ) -> None:
        await team_a.enqueue_many(add.options(group="run-1"), [1, 2])
        mine = await team_b.enqueue(add.options(group="run-1"), 1)

        assert [job.id for job in await team_b.jobs()] == [mine.id]
        assert await team_b.count(group="run-1") == 1
        assert (await team_b.depth()).total == 1

    async def test_has_fingerprints_of_its_own(
        self, team_a: AsyncClient, team_b: AsyncClient
    ) -> None:
        first = await team_a.enqueue(add.options(fingerprint="one"), 1)
        second = await team_b.enqueue(add.options(fingerprint="one", on_conflict="raise"), 1)

        assert second.id != first.id

    async def test_aborts_its_own_group(self, team_a: AsyncClient, team_b: AsyncClient) -> None:
        other = await team_a.enqueue(add.options(group="run-1"), 1)
        await team_b.enqueue(add.options(group="run-1"), 1)

        assert (await team_b.abort_group("run-1")).cancelled == 1
        assert await other.status() is Status.WAITING

    async def test_pauses_its_own_queue(
        self, store: Store, team_a: AsyncClient, team_b: AsyncClient
    ) -> None:
        await team_a.enqueue(add, 1)
        await team_b.pause_queue("default")

        assert len(await PlayedWorker(store, "team-a").claim_all()) == 1
        assert await team_a.paused_queues() == []

    async def test_finds_its_own_results(
        self, store: Store, team_a: AsyncClient, team_b: AsyncClient
    ) -> None:
        await team_a.enqueue(add, 1)
        worker = PlayedWorker(store, "team-a")
        await worker.complete(await worker.claim(), 2)

        assert await team_a.result_of(add, 1) == 2
        with pytest.raises(NoResult):
            await team_b.result_of(add, 1)


class TestAnOperator:
    async def test_looks_across_all(
        self, operator: AsyncClient, team_a: AsyncClient, team_b: AsyncClient
    ) -> None:
        first = await team_a.enqueue(add, 1)
        second = await team_b.enqueue(add, 2)
        await team_b.pause_queue("default")

        assert [job.id for job in await operator.jobs()] == [second.id, first.id]
        assert [job.namespace for job in await operator.jobs()] == ["team-b", "team-a"]
        assert await operator.count(status="waiting") == 2
        assert (await operator.depth()).by_queue == {"default": {Status.WAITING: 2}}
        assert [each.namespace for each in await operator.paused_queues()] == ["team-b"]
        assert (await operator.job(first.id)).args == [1]

    async def test_acts_on_any_job_by_id(
        self, store: Store, operator: AsyncClient, team_a: AsyncClient
    ) -> None:
        handle = await team_a.enqueue(add, 1)

        assert (await operator.disable(handle.id)).after is Status.DISABLED
        assert (await operator.enable(handle.id)).after is Status.WAITING
        worker = PlayedWorker(store, "team-a")
        await worker.settle(await worker.claim(), Released())
        assert (await operator.resume(handle.id)).after is Status.WAITING
        assert (await operator.abort(handle.id)).after is Status.CANCELLED
        assert (await operator.retry(handle.id)).after is Status.WAITING
        await worker.complete(await worker.claim(), 5)
        assert await operator.handle(handle.id).result(timeout=10) == 5

    @pytest.mark.parametrize("act", OF_ONE_NAMESPACE.values(), ids=OF_ONE_NAMESPACE)
    async def test_is_refused_what_needs_one_namespace(
        self, operator: AsyncClient, act: Callable[[AsyncClient], Awaitable[Any]]
    ) -> None:
        with refused("client.namespace_required", InvalidInput):
            await act(operator)

        assert await operator.count() == 0
