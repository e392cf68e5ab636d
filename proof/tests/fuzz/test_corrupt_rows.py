"""Unreadable rows: a worker logs them occasionally, and does not spin on them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from perdure import AsyncClient
from perdure.clock import ManualClock
from perdure.store.opening import store_at
from proof.fuzz import rows, work
from proof.fuzz.rows import corrupt_rows

LOOKS = 20
"""Polls that a worker makes while it is observed."""


@pytest.mark.parametrize(
    "table, column",
    [("jobs", "partition_key"), ("events", "data"), ("waits", "key"), ("schedules", "state")],
)
async def test_are_logged_less_often_than_they_are_read(
    table: str, column: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = store_at(f"sqlite:///{tmp_path}/work.db", clock=clock)
    await store.open()
    async with AsyncClient(store, tasks=work.TASKS, flows=work.FLOWS) as client:
        await rows.fill(client)
        assert await corrupt_rows(f"sqlite:///{tmp_path}/work.db", table, column, b'{"type":')
        running = await rows.finish_healthy_work(store, client, clock)
        caplog.clear()

        with caplog.at_level(logging.WARNING, "perdure"):
            await asyncio.sleep(0.02 * LOOKS)  # the worker's poll interval

        assert len(caplog.records) < LOOKS
        await running.stop()
    await store.close()


async def test_leave_the_other_approvals_in_the_inbox(tmp_path: Path) -> None:
    store = store_at(f"sqlite:///{tmp_path}/work.db", clock=ManualClock())
    await store.open()
    async with AsyncClient(store, tasks=work.TASKS, flows=work.FLOWS) as client:
        for id in ("victim-deciding", "good-deciding"):
            await client.submit("deciding", 1, id=id)
        await corrupt_rows(f"sqlite:///{tmp_path}/work.db", "waits", "detail", b'{"type":7}')

        readable = {each.run: each.fault is None for each in await client.approvals.list()}

        assert readable == {"good-deciding": True, "victim-deciding": False}
    await store.close()
