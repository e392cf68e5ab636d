"""The guard of a simulation reports violations, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from perdure.model.job import Status
from perdure.model.run import RunCommit, RunStatus
from perdure.store.lifecycle import Transition
from perdure.store.memory.state import MemoryState
from perdure.testing.contract.builders import event, new_job, new_run, request, step
from proof.simulate.guard import LATENESS_MAX, CallGuard
from proof.simulate.loop import SimulatedLoop, Trace, moment
from proof.simulate.network import FaultProfile
from proof.simulate.world import SimulatedStore
from proof.tests.simulate.simulated import store_on

LATE_SECONDS = (2 * LATENESS_MAX).total_seconds()


class Watched:
    """A simulated store without faults, and the findings of its guard."""

    def __init__(self, loop: SimulatedLoop) -> None:
        state = MemoryState()
        self.found: list[str] = []
        guard = CallGuard(state, lambda: moment(loop.now), Trace(loop), self.found.append)
        self.store: SimulatedStore = store_on(loop, FaultProfile(), guard, state)
        self.run = loop.run_until_complete

    def later(self) -> None:
        self.run(asyncio.sleep(LATE_SECONDS))


@pytest.fixture
def watched() -> Iterator[Watched]:
    loop = SimulatedLoop("a seed")
    yield Watched(loop)
    loop.bury()


class TestDeadlines:
    def test_a_job_may_not_be_claimed_long_after_its_own(self, watched: Watched) -> None:
        watched.run(watched.store.jobs.insert([new_job(deadline=timedelta(seconds=1))]))
        watched.later()
        watched.run(watched.store.jobs.claim(request()))

        [found] = watched.found
        assert "after its deadline" in found

    def test_a_job_that_was_set_aside_has_time_to_be_noticed(self, watched: Watched) -> None:
        [job] = watched.run(watched.store.jobs.insert([new_job(deadline=timedelta(seconds=1))]))
        watched.run(watched.store.admin.change_jobs(Transition.DISABLE, None, [job.id]))
        watched.later()
        [enabled] = watched.run(watched.store.admin.change_jobs(Transition.ENABLE, None, [job.id]))
        watched.run(watched.store.jobs.claim(request()))

        assert enabled.after is Status.WAITING
        assert watched.found == []


class TestEndedRuns:
    def test_get_no_more_events(self, watched: Watched) -> None:
        watched.run(watched.store.runs.submit(new_run()))
        watched.run(watched.store.runs.commit([_ended()]))
        watched.run(watched.store.runs.commit([step(2)]))

        [found] = watched.found
        assert "had ended, and got more events" in found

    def test_may_be_replaced_by_one_that_begins_at_the_same_moment(self, watched: Watched) -> None:
        watched.run(watched.store.runs.submit(new_run()))
        watched.run(watched.store.runs.commit([_ended()]))
        watched.run(watched.store.runs.submit(new_run(on_existing="replace")))
        for expected in (1, 2, 3):
            watched.run(watched.store.runs.commit([step(expected)]))

        assert watched.found == []


def _ended() -> RunCommit:
    return step(events=(event("RunCompleted"),), status=RunStatus.COMPLETED)
