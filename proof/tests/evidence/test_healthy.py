"""Stores of every kind in which nothing failed: the checker finds nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from perdure import CONTEXT, AsyncClient, AsyncContext, Flow, RunFailed, task
from perdure.engine import plan
from perdure.model.ids import RunId
from perdure.model.job import FINISHED
from perdure.model.run import ENDED
from perdure.store.contract import Store
from perdure.store.memory.store import MemoryStore
from perdure.store.opening import store_at
from perdure.verify import verify_store
from proof.evidence import EvidenceSettings, EvidenceVerifier, MemoryEvidenceLog
from proof.tests.evidence.history import Maker
from tests.flows.catalogue import FLOWS
from tests.flows.conftest import results_of_all
from tests.worker.conftest import client, start_worker

__all__ = ["client", "start_worker"]


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = store_at(store_url)
    await store.open()
    yield store
    await store.close()


async def test_finds_nothing_where_everything_happened_once(store: Store) -> None:
    made = await Maker(store).make()
    verifier = EvidenceVerifier(store, made.evidence.lines, made.settings)

    findings = [finding async for finding in verifier.findings()]

    assert findings == []
    counts = verifier.counts
    assert counts.runs > 20
    assert 0 < counts.ended_runs < counts.runs
    assert counts.events > 300
    assert counts.snapshots > 0
    assert counts.waits > 3
    assert counts.jobs > 3
    assert counts.schedules == 1
    assert verifier.evidence_counts.committed > 25
    assert verifier.evidence_counts.accepted > 20
    assert verifier.evidence_counts.refused == 1


async def test_finds_nothing_after_every_flow_of_the_catalogue(
    store: Store, client: AsyncClient, start_worker: Callable[..., Awaitable[Any]]
) -> None:
    await start_worker(flows=FLOWS)
    await results_of_all(client)
    assert await verify_store(store) == []


async def test_decides_runs_again_by_the_limits_they_were_submitted_with(
    store: Store,
    client: AsyncClient,
    start_worker: Callable[..., Awaitable[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding 8: also those of an earlier version, which had none."""

    @task
    def double(value: str) -> str:
        return value * 2

    branches = {name: Flow().then(double, name=name) for name in ("left", "right")}
    flow = Flow("ends").fork(**branches).build()
    await start_worker(flows=[flow])
    for most in (0, 300, 200):
        monkeypatch.setattr(plan, "GATHERED_MAX_BYTES", most)
        run = await client.submit(flow, "x" * 70)
        with pytest.raises(RunFailed) if most == 200 else nullcontext():
            await run.result(20)
    monkeypatch.undo()
    assert await verify_store(store) == []


async def test_finds_nothing_after_everything_that_ended_was_pruned(store: Store) -> None:
    made = await Maker(store).make()
    at_once = timedelta(0)
    while await store.maintenance.prune_runs("default", dict.fromkeys(ENDED, at_once), 100):
        pass
    while await store.maintenance.prune_jobs("default", dict.fromkeys(FINISHED, at_once), 100):
        pass
    settings = EvidenceSettings(limits=made.settings.limits, allows_pruned=True)
    verifier = EvidenceVerifier(store, made.evidence.lines, settings)

    assert [finding async for finding in verifier.findings()] == []
    assert verifier.counts.runs > 5
    assert verifier.counts.ended_runs == 0


async def test_looks_at_jobs_that_only_their_waiters_still_see(
    store: Store, client: AsyncClient, start_worker: Callable[..., Awaitable[Any]]
) -> None:
    evidence = MemoryEvidenceLog()

    @task
    async def sign(value: int, ctx: AsyncContext = CONTEXT) -> str:
        with evidence.execution(ctx) as execution:
            return execution.nonce

    await start_worker(sign, keep_completed=0)
    job = await client.enqueue(sign, 1)
    await job.result(20)
    verifier = EvidenceVerifier(store, evidence.lines)

    assert [finding async for finding in verifier.findings()] == []
    assert list(await client.jobs.list()) == []
    assert verifier.evidence_counts.committed == 1


async def test_finds_nothing_in_an_empty_store(store: Store) -> None:
    assert await verify_store(store) == []


async def test_finds_nothing_where_an_approval_is_older_than_the_bounds_of_its_texts() -> None:
    """An earlier version stored titles and messages in full; deciding again truncates them."""
    store = MemoryStore("memory://")
    flow = Flow("asking").approve("{{ value }}", message="{{ value }}", name="ok").build()
    async with AsyncClient(store) as client:
        await client.submit(flow, "x" * 30_000, id="open")
        records = store._session.state.records
        [wait] = records.waits_of(("default", RunId("open")))
        request = msgspec.json.decode(wait.detail)
        for text, codes in (("x" * 30_000, []), ("y" * 30_000, ["verify.waits_as_opened.detail"])):
            detail = msgspec.json.encode(request | {"title": text, "message": text})
            records.put_wait(wait.place, replace(wait, detail=detail))
            assert [each.code for each in await verify_store(store)] == codes
