"""Runs on one file: who commits the same run at once, in one transaction, and at what cost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from perdure import Client, Flow, Worker, task
from perdure.clock import ManualClock
from perdure.diagnostics import Action
from perdure.model.ids import RunId
from perdure.model.partition import Suspicion
from perdure.model.run import CommitState, RunFilter
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.contract.builders import (
    MINUTE,
    RUN,
    claim_new_node,
    claim_node,
    commit,
    commit_next,
    continues,
    finishes,
    is_still_claimed,
    load,
    node_job,
    read_run,
    step,
    submit,
)
from tests.backends.sqlite import processes
from tests.backends.sqlite.files import connected
from tests.support.stores import opened

DONE, CONFLICT, STALE = CommitState.DONE, CommitState.CONFLICT, CommitState.STALE
PROCESSES = 3
EVENTS = 90
FRAME_BYTES = 4096 + 24


@pytest.fixture
async def other(url: str, store: SqliteStore, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    """A handle with a connection of its own, as another process has one."""
    async with opened(SqliteStore(f"{url}?synchronous=full", clock)) as other:
        yield other


class TestTheFence:
    async def test_is_that_of_every_other_claim(self, url, store):
        """Nothing aborts a job of a run; if one were aborting, its claim would be current."""
        held = await claim_new_node(store)
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            changed = connection.execute("UPDATE perdure_jobs SET status = 'aborting'")
            assert changed.rowcount == 1
            connection.commit()

        assert await is_still_claimed(store, held)
        assert (await commit(store, settlements=(finishes(held),))).state is DONE


class TestTwoConnections:
    async def test_that_commit_the_same_run_at_once_one_wins_and_one_conflicts(self, store, other):
        await submit(store)
        results = await asyncio.gather(commit(store, 1), commit(other, 1))
        assert sorted(result.state for result in results) == [CONFLICT, DONE]
        assert (await read_run(other)).number == 2

    async def test_that_settle_the_same_job_leave_one_of_them_stale(self, store, other, clock):
        lost = await claim_new_node(store)
        clock.advance(MINUTE)
        await other.maintenance.take_over_expired("team-a", 10)
        held = await claim_node(other, suspicion=Suspicion(crashes=1))

        late = await commit(store, settlements=(finishes(lost),))
        result = await commit(other, settlements=(finishes(held),))

        assert (late.state, late.stale) == (STALE, (lost,))
        assert result.state is DONE


class TestTwoProcesses:
    async def test_submit_one_run_of_an_id(self, url, store):
        with processes.processes(PROCESSES) as pool:
            submitting = [pool.submit(processes.submit_one, url) for _ in range(PROCESSES * 2)]
            are_new = [future.result() for future in submitting]
        assert sorted(are_new) == [False] * (PROCESSES * 2 - 1) + [True]
        assert await store.queries.count_runs(RunFilter()) == 1
        assert len(await store.queries.run_jobs("team-a", RUN)) == 1

    async def test_number_the_events_of_one_run_without_a_gap(self, url, store):
        await submit(store)
        with processes.processes(PROCESSES) as pool:
            running = [pool.submit(processes.commit_until, url, EVENTS) for _ in range(PROCESSES)]
            done = sum(future.result() for future in running)
        loaded = await load(store)
        assert [event.number for event in loaded.events] == list(range(1, loaded.run.number + 1))
        assert loaded.run.number == done + 1 >= EVENTS


class TestGroupCommit:
    async def test_writes_what_it_can_of_steps_that_came_together(self, store, rival):
        ids = [RunId(f"run-{number}") for number in range(4)]
        for id in ids:
            await submit(store, id=id)
        late = step(7, run=ids[1])
        bad = step(run=ids[2], jobs=(node_job(run=ids[2], delay=MINUTE * 10**9),))
        steps = [step(run=ids[0]), late, bad, step(run=ids[3])]

        rival.lock()
        committing = [asyncio.ensure_future(store.runs.commit([each])) for each in steps]
        await store.queries.count_runs(
            RunFilter()
        )  # the reader answers after all of them were handed over
        rival.unlock()
        answers = await asyncio.gather(*committing)

        states = [answer.results[0].state for answer in answers]
        assert states == [DONE, CONFLICT, CommitState.REFUSED, DONE]
        assert [(await read_run(store, id)).number for id in ids] == [2, 1, 1, 2]


class TestCost:
    async def test_a_step_in_place_changes_two_pages(self, store, path):
        held = await claim_new_node(store)
        log = path.with_name(f"{path.name}-wal")
        await commit_next(store, settlements=(continues(held, node_job("first")),))
        before = log.stat().st_size
        await commit_next(store, settlements=(continues(held, node_job("second")),))
        # One for the event, one for the job: the run's row is left alone.
        assert (log.stat().st_size - before) / FRAME_BYTES == 2


# What an examination finds in a file that something happened to.


async def test_an_index_that_a_later_version_rebuilt_is_the_later_one(store, path):
    with connected(path) as connection:
        connection.execute("DROP INDEX perdure_jobs_deadline")
        connection.commit()
    [statement] = (await store.admin.inspect_storage()).missing_indexes.values()
    assert "run_id IS NULL" in statement


async def test_finds_pages_that_were_overwritten(store, url, path):
    await store.close()
    with path.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\x00" * 4096)
    damaged = SqliteStore(url)
    await damaged.open()
    try:
        assert (await damaged.admin.inspect_storage()).damages
    finally:
        await damaged.close()


async def test_reports_the_size_of_the_log(store):
    await store.runs.save_definition("default", "orders", "v1", b"x" * 100_000)
    size = (await store.admin.inspect_storage()).log_bytes
    assert size is not None
    assert size > 100_000


@task
def pack(value: int) -> int:
    return value + 1


packing = Flow("packing").then(pack).build()


def test_an_orphaned_run_continues_once_it_was_cancelled_and_retried(url, path):
    """As the doctor advises; nothing that the library does makes one."""
    with Client(url) as client:
        run = client.submit(packing, 7, id="lost")
        with connected(path) as connection:
            connection.execute("DELETE FROM perdure_jobs")
            connection.commit()
        [found] = [each for each in client.store.health().findings if each.about == "runs"]
        assert found.code == "health.run_orphaned"
        steps = Action("runs.cancel", {"id": "lost"}), Action("runs.retry", {"id": "lost"})
        assert found.actions == steps

        client.runs.cancel("lost")
        client.runs.retry("lost")
        worker = Worker(url, flows=[packing]).start()
        try:
            assert run.result(timeout=30) == 8
        finally:
            worker.shutdown()
            worker.join()
