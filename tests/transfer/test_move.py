"""A store moves with all its work, and the work goes on where it is."""

from __future__ import annotations

from perdure import Client
from perdure.store.opening import store_at
from perdure.transfer import export_store, import_store
from perdure.transfer.format import NAMES
from perdure.verify import Finding, verify_store
from tests.transfer.conftest import kinds_in, rows_of
from tests.transfer.flows import Gate, flaky
from tests.transfer.scene import LARGE, RESULTS, act, results, working
from tests.transfer.seen import seen_of


async def found_in(url: str) -> list[Finding]:
    """What the checker of invariants has to say."""
    store = store_at(url)
    await store.open()
    try:
        return await verify_store(store)
    finally:
        await store.close()


class TestMove:
    async def test_everything_looks_as_it_did(self, source_url, export, target_url):
        await import_store(target_url, export)

        assert await seen_of(target_url) == await seen_of(source_url)
        assert await found_in(target_url) == []

    async def test_the_work_goes_on(self, export, target_url):
        await import_store(target_url, export)

        fetched = Gate.fetched
        with Client(target_url) as client, working(target_url):
            ticked = client.schedules.get("ticks").started
            act(client)
            assert results(client) == RESULTS
            [retried] = client.jobs.list(task="flaky", status="completed")
            assert client.jobs.handle(retried.id).result() == LARGE.upper()
            [resumed] = client.jobs.list(task="stopped")
            assert client.jobs.handle(resumed.id).result(timeout=20) == 7
            assert client.schedules.get("ticks").started > ticked
            assert client.runs.get("too-soon").status == "skipped"
        assert Gate.fetched == fetched, "a step that was stored was done again"
        assert await found_in(target_url) == []

    async def test_a_worker_that_is_there_already_goes_on_at_once(self, tmp_path, target_url):
        source_url, file = f"sqlite:///{tmp_path}/other.db", tmp_path / "other.jsonl"
        Gate.is_open = True
        with Client(source_url) as client:
            job = client.enqueue(flaky, "hello")
        await export_store(source_url, file)

        with working(target_url, poll="1h"), Client(target_url) as client:
            await import_store(target_url, file)
            assert client.jobs.handle(job.id).result(timeout=20) == "HELLO"

    async def test_the_same_rows_come_out_of_each_store(
        self, export, tmp_path, postgres_url, bare_postgres_url
    ):
        """From SQLite to SQLite, to PostgreSQL, to PostgreSQL, and back to SQLite."""
        urls = [
            f"sqlite:///{tmp_path}/first.db",
            postgres_url,
            bare_postgres_url,
            f"sqlite:///{tmp_path}/last.db",
        ]
        moved = export
        for number, url in enumerate(urls):
            await import_store(url, moved)
            moved = tmp_path / f"{number}.jsonl.gz"
            await export_store(url, moved)

        assert rows_of(moved) == rows_of(export)

    def test_every_kind_of_row_is_in_the_export(self, export):
        """But snapshots, limits and their starts, which have tests of their own."""
        assert kinds_in(rows_of(export)) == set(NAMES) - {"snapshot", "limit", "limit_start"}
