"""Runs on one file: who commits the same run at once, in one transaction, and at what cost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from perdure.clock import ManualClock
from perdure.errors import InvalidInput
from perdure.model.ids import RunId
from perdure.model.run import CommitAnswer, CommitState, RunFilter
from perdure.store.sqlite.store import SqliteStore
from tests.backends.sqlite import processes
from tests.conformance.builders import MINUTE
from tests.conformance.run_builders import (
    RUN,
    claim_node,
    commit,
    continues,
    ends,
    go_on,
    held_node,
    is_suspended,
    load,
    node_job,
    read_run,
    step,
    submit,
)

DONE, CONFLICT, STALE = CommitState.DONE, CommitState.CONFLICT, CommitState.STALE
PROCESSES = 3
EVENTS = 90
FRAME_BYTES = 4096 + 24


@pytest.fixture
async def other(url: str, store: SqliteStore, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    """A handle with a connection of its own, as another process has one."""
    other = SqliteStore(f"{url}?synchronous=full", clock)
    await other.open()
    yield other
    await other.close()


class TestTheFence:
    async def test_is_that_of_every_other_claim(self, url, store):
        """Nothing aborts a job of a run; if one were aborting, its claim would be current."""
        held = await held_node(store)
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            changed = connection.execute("UPDATE perdure_jobs SET status = 'aborting'")
            assert changed.rowcount == 1
            connection.commit()

        assert await is_suspended(store, held)
        assert (await commit(store, settlements=(ends(held),))).state is DONE


class TestTwoConnections:
    async def test_that_commit_the_same_run_at_once_one_wins_and_one_conflicts(self, store, other):
        await submit(store)

        results = await asyncio.gather(commit(store, 1), commit(other, 1))

        assert sorted(result.state for result in results) == [CONFLICT, DONE]
        assert (await read_run(other)).number == 2

    async def test_that_settle_the_same_job_leave_one_of_them_stale(self, store, other, clock):
        lost = await held_node(store)
        clock.advance(MINUTE)
        await other.maintenance.take_over_expired("team-a", 10, 3)
        held = await claim_node(other)

        late = await commit(store, settlements=(ends(lost),))
        result = await commit(other, settlements=(ends(held),))

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
        answers = await asyncio.gather(*committing, return_exceptions=True)

        states = [
            answer.results[0].state if isinstance(answer, CommitAnswer) else type(answer)
            for answer in answers
        ]
        assert states == [DONE, CONFLICT, InvalidInput, DONE]
        assert [(await read_run(store, id)).number for id in ids] == [2, 1, 1, 2]


class TestCost:
    async def test_a_step_in_place_changes_two_pages(self, store, path):
        held = await held_node(store)
        log = path.with_name(f"{path.name}-wal")
        await go_on(store, settlements=(continues(held, node_job("first")),))
        before = log.stat().st_size

        await go_on(store, settlements=(continues(held, node_job("second")),))

        # One for the event, one for the job: the run's row is left alone.
        assert (log.stat().st_size - before) / FRAME_BYTES == 2
