"""Calls with a lost response behave the same on the simulated store and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from perdure.model.job import JobFilter, Status
from perdure.model.outcome import Completed
from perdure.model.run import RunFilter
from perdure.model.schedule import ScheduleCommit, ScheduleCommitState
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from perdure.store.postgres.store import PostgresStore
from perdure.testing.contract import builders as runs
from perdure.testing.contract.builders import (
    WORKER,
    claim,
    claim_one,
    commit_tick,
    insert,
    insert_many,
    new_job,
    new_schedule,
    read_schedule,
    save_schedule,
    settle,
)
from proof.simulate.loop import SimulatedLoop
from proof.simulate.network import FaultProfile
from proof.tests.simulate.simulated import Seen, store_on
from tests.backends.postgres.line import Line

LOST = "lost on the way back"
TEXT = b'"lost on the way back"'
DONE, CONFLICT = ScheduleCommitState.DONE, ScheduleCommitState.CONFLICT

Lose = Callable[[str], None]
"""Loses the response to the next call; on a wire, at the message with this string."""
Case = Callable[[Store, Lose], Awaitable[None]]


async def an_insert_counts_once(store: Store, lose: Lose) -> None:
    lose(LOST)
    [inserted] = await store.jobs.insert([new_job(input=TEXT)])

    assert inserted.is_new
    assert await store.queries.count_jobs(JobFilter()) == 1


async def an_insert_is_no_conflict_with_itself(store: Store, lose: Lose) -> None:
    job = new_job(fingerprint="once", on_conflict="raise")
    lose("COMMIT")
    [inserted] = await store.jobs.insert([job])

    assert (inserted.id, inserted.is_new) == (job.id, True)


async def an_outcome_is_not_stale(store: Store, lose: Lose) -> None:
    await insert(store)
    held = await claim_one(store)
    lose(LOST)

    assert await settle(store, held, Completed(output=TEXT)) is Status.COMPLETED


async def a_stale_outcome_stays_stale(store: Store, lose: Lose) -> None:
    await insert(store)
    held = await claim_one(store)
    await store.admin.change_jobs(Transition.DISABLE, None, [held.id])
    lose(LOST)

    assert await settle(store, held, Completed(output=TEXT)) is None


async def a_claim_says_that_it_was_repeated(store: Store, lose: Lose) -> None:
    await insert_many(store, 2)
    lose(WORKER)
    claimed = await claim(store, limit=1)

    assert claimed.is_repeated
    assert await store.jobs.requeue_unknown(WORKER, [job.claim.id for job in claimed.jobs]) == 1


async def a_commit_counts_once(store: Store, lose: Lose) -> None:
    held = await runs.claim_new_node(store)
    lose(LOST)
    result = await runs.commit(
        store, settlements=(runs.finishes(held),), events=(runs.event(LOST),)
    )

    assert result.state is runs.DONE
    assert len((await runs.load(store)).events) == 2


async def a_submission_is_new(store: Store, lose: Lose) -> None:
    lose(LOST)
    submitted = await store.runs.submit(runs.new_run(events=(runs.event(LOST),)))

    assert submitted.is_new
    assert await store.queries.count_runs(RunFilter(namespace=runs.NAMESPACE)) == 1


async def a_tick_counts_once(store: Store, lose: Lose) -> None:
    before = await save_schedule(store)
    lose("COMMIT")
    answer = await commit_tick(store, before)

    assert answer.state is DONE
    assert answer.submitted is not None
    assert answer.submitted.is_new
    assert await store.queries.count_runs(RunFilter(namespace=runs.NAMESPACE)) == 1
    assert (await commit_tick(store, before)).state is CONFLICT


async def a_new_schedule_is_no_conflict_with_itself(store: Store, lose: Lose) -> None:
    new = new_schedule()
    lose("COMMIT")
    answer = await store.schedules.commit(ScheduleCommit(schedule=new, expected=None))

    assert answer.state is DONE
    assert await read_schedule(store) == new


CASES: tuple[Case, ...] = (
    an_insert_counts_once,
    an_insert_is_no_conflict_with_itself,
    an_outcome_is_not_stale,
    a_stale_outcome_stays_stale,
    a_claim_says_that_it_was_repeated,
    a_commit_counts_once,
    a_submission_is_new,
    a_tick_counts_once,
    a_new_schedule_is_no_conflict_with_itself,
)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


class LosesOne(Seen):
    """Ends all faults once a call has arrived whose response gets lost."""

    def __init__(self, faults: FaultProfile, loop: SimulatedLoop) -> None:
        super().__init__()
        self.faults = faults
        self.lost = 0
        self._loop = loop

    def saw(self, name: str, args: tuple[object, ...], answer: object) -> None:
        super().saw(name, args, answer)
        if self.faults.lost_after:
            self.lost += 1
            self._loop.call_later(0.001, self.faults.calm)

    def lose(self, _: str) -> None:
        self.faults.lost_after = 1.0


@each_case
def test_on_the_simulated_store(case: Case) -> None:
    loop, faults = SimulatedLoop("a seed"), FaultProfile()
    seen = LosesOne(faults, loop)
    loop.run_until_complete(case(store_on(loop, faults, seen), seen.lose))
    loop.finalize()

    assert seen.lost == 1


@each_case
async def test_on_postgres(case: Case, postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Line(postgres_url) as line:
        store = PostgresStore(line.url)
        await store.open()
        await case(store, line.lose_answer_to)
        await store.close()

    assert "lost the connection to the store" in caplog.text
