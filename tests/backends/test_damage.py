"""What is found in a database that something happened to; nothing that the library does does it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from perdure import AsyncClient, EventLogCorrupt, Flow, task
from perdure.store.opening import store_at
from perdure.store.postgres.address import parse_address
from tests.backends.sqlite.files import connected
from tests.client.harness import worker_at
from tests.support.stores import opened


class Database:
    """A store's own database, which the test may change behind its back."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite:")

    async def execute(self, statement: str) -> None:
        """``statement`` names tables and indexes as ``{jobs}``."""
        if self.is_sqlite:
            path = Path(self.url.removeprefix("sqlite:///"))
            with connected(path, isolation_level=None) as connection:
                connection.execute(statement.format(prefix="perdure_"))
            return
        address = parse_address(self.url)
        connection = await asyncpg.connect(address.dsn)
        await connection.execute(statement.format(prefix=f"{address.schema}."))
        await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request):
    return Database(request.getfixturevalue(f"{request.param}_url"))


@task
async def first(number: int) -> int:
    return number


WHERE = {"property": "order", "op": "eq", "value": 7}
STATES = ["waiting", "ended", "signaled", "running", "in place", "beside another"]


@pytest.mark.parametrize("state", STATES)
async def test_a_log_that_lost_its_end_is_refused_by_readers_and_commands(database, state):
    """Finding 20: at rest, a run's row says where its log ends; so does a job that continues."""
    started, release = asyncio.Event(), asyncio.Event()

    @task
    async def hold(_: Any) -> None:
        started.set()
        await release.wait()

    flow = Flow("waits").wait_for_signal("go", where=WHERE).then(hold).build()
    if state == "in place":
        flow = Flow("chain").then(first).then(hold).build()
    elif state == "beside another":
        flow = Flow("branches").fork(x=first, y=hold).build()
    async with (
        opened(store_at(database.url)) as store,
        AsyncClient(store) as client,
        worker_at(store, [flow]),
    ):
        run = await client.submit(flow, 1, id="a")
        if state == "ended":
            await run.cancel()
        elif state == "signaled":  # the status stays
            await run.signal("go", {"order": 8})
        elif state == "running":
            await run.signal("go", {"order": 7})
            await started.wait()
        elif state != "waiting":
            async for event in run.watch():
                if event.type == "node_completed":
                    break
        last = "(SELECT max(number) FROM {prefix}events)"
        await database.execute(f"DELETE FROM {{prefix}}events WHERE number = {last}")

        for call in (run.events, run.nodes, run.pause):
            with pytest.raises(EventLogCorrupt):
                await call()
        release.set()


async def test_an_index_that_was_dropped_comes_with_how_to_make_it(database):
    async with opened(store_at(database.url)) as store:
        await database.execute("DROP INDEX {prefix}jobs_claimed")
        found = (await store.admin.inspect_storage()).missing_indexes
        assert [name.removeprefix("perdure_") for name in found] == ["jobs_claimed"]
        [statement] = found.values()
        await database.execute(statement.replace("{", "{{").replace("}", "}}"))
        assert (await store.admin.inspect_storage()).missing_indexes == {}
