"""Ends that become visible later than the time that they wrote."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from perdure import AsyncClient
from perdure.clock import ManualClock
from perdure.model.outcome import Completed
from perdure.operations import events
from perdure.store.postgres.store import PostgresStore
from perdure.testing.contract.builders import claim_new, settle
from tests.backends.postgres.line import until_somebody_waits

HELD = "SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE"


async def test_an_end_is_delivered_though_a_later_one_was_visible_first(
    postgres_url, admin, schema, monkeypatch
):
    monkeypatch.setattr(events, "POLL_SECONDS", 0.02)
    clock = ManualClock()
    store = PostgresStore(postgres_url, clock=clock)
    await store.open()
    late = await claim_new(store, namespace="default")
    async with AsyncClient(store) as client, asyncio.timeout(30):
        seen: asyncio.Queue[str | None] = asyncio.Queue()
        await client.events.subscribe(lambda event: seen.put_nowait(event.job))
        async with admin.transaction():
            await admin.execute(HELD.format(schema=schema), late.id)
            settling = asyncio.create_task(settle(store, late, Completed(output=b"1")))
            await until_somebody_waits(admin, schema)
            clock.advance(timedelta(seconds=4))
            early = await claim_new(store, namespace="default")
            await settle(store, early, Completed(output=b"1"))
            assert await seen.get() == early.id
        await settling
        clock.advance(timedelta(seconds=2))
        assert await seen.get() == late.id
    await store.close()
