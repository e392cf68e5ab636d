"""The guard of a simulation reports violations, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta

import msgspec
import pytest

from perdure.errors import StoreError
from perdure.model.client_event import ClientEvent
from perdure.model.job import Status
from perdure.model.run import RunCommit, RunStatus
from perdure.store.lifecycle import Transition
from perdure.store.memory.state import MemoryState
from perdure.testing.contract.builders import (
    NAMESPACE,
    SUSPECTED,
    WORKER,
    event,
    new_job,
    new_run,
    request,
    step,
)
from proof.simulate.guard import LATENESS_MAX, CallGuard
from proof.simulate.loop import SimulatedLoop, Trace, moment
from proof.simulate.mutants import mutated
from proof.simulate.network import LATE_SECONDS_MAX, FaultProfile
from proof.simulate.world import SimulatedStore
from proof.tests.simulate.simulated import store_on

LATE_SECONDS = (2 * LATENESS_MAX).total_seconds()


class Watched:
    """A simulated store without faults, and the findings of its guard."""

    def __init__(self, loop: SimulatedLoop) -> None:
        state = MemoryState()
        self.found: list[str] = []
        guard = CallGuard(state, lambda: moment(loop.now), Trace(loop), self.found.append)
        self.faults = FaultProfile()
        self.store: SimulatedStore = store_on(loop, self.faults, guard, state)
        self.run = loop.run_until_complete

    def later(self) -> None:
        self.run(asyncio.sleep(LATE_SECONDS))


@pytest.fixture
def watched() -> Iterator[Watched]:
    loop = SimulatedLoop("a seed")
    yield Watched(loop)
    loop.finalize()


class TestDeadlines:
    def test_a_job_may_not_be_claimed_long_after_its_own(self, watched: Watched) -> None:
        watched.run(watched.store.jobs.insert([new_job(deadline=timedelta(seconds=1))]))
        watched.later()
        watched.run(watched.store.jobs.claim(request()))

        [found] = watched.found
        assert "after its deadline" in found

    def test_a_parked_job_has_time_to_be_noticed(self, watched: Watched) -> None:
        [job] = watched.run(watched.store.jobs.insert([new_job(deadline=timedelta(seconds=1))]))
        watched.run(watched.store.admin.change_jobs(Transition.DISABLE, None, [job.id]))
        watched.later()
        [enabled] = watched.run(watched.store.admin.change_jobs(Transition.ENABLE, None, [job.id]))
        watched.run(watched.store.jobs.claim(request()))

        assert enabled.after is Status.WAITING
        assert watched.found == []


class TestClaimsOfSuspects:
    """They are claimed by a worker that has no other jobs, as far as it knows."""

    @pytest.mark.parametrize("is_told", [True, False])
    def test_with_other_jobs(self, watched: Watched, is_told: bool) -> None:
        store, run = watched.store, watched.run
        run(store.jobs.insert([new_job()]))
        run(store.jobs.claim(request(incarnation=1)))
        run(store.maintenance.take_over_former(NAMESPACE, WORKER, 2, 1))
        run(store.jobs.insert([new_job()]))
        watched.faults.lost_after = watched.faults.given_up = 0.0 if is_told else 1.0
        with nullcontext() if is_told else pytest.raises(StoreError):
            run(store.jobs.claim(request(incarnation=2)))
        watched.faults.calm()

        alone = request(suspicion=SUSPECTED, incarnation=2, is_alone=True)
        assert len(run(store.jobs.claim(alone)).jobs) == 1

        assert ["was claimed alone" in each for each in watched.found] == [True] * is_told

    def test_that_arrives_late_is_not_the_workers(self, watched: Watched) -> None:
        store, run, faults = watched.store, watched.run, watched.faults
        run(store.jobs.insert([new_job()]))
        run(store.jobs.claim(request(incarnation=1)))
        run(store.maintenance.take_over_former(NAMESPACE, WORKER, 2, 1))
        run(store.jobs.insert([new_job()]))
        faults.lost_before = faults.late = faults.given_up = 1.0
        alone = request(suspicion=SUSPECTED, incarnation=2, is_alone=True)
        with pytest.raises(StoreError):
            run(store.jobs.claim(alone))
        faults.lost_before = 0.0
        assert len(run(store.jobs.claim(request(incarnation=2))).jobs) == 1
        run(asyncio.sleep(LATE_SECONDS_MAX))

        assert run(store.jobs.claim(alone)).jobs == [], "it arrived"
        assert watched.found == []


class TestEndedRuns:
    def test_get_no_more_events(self, watched: Watched) -> None:
        watched.run(watched.store.runs.submit(new_run()))
        watched.run(watched.store.runs.commit([_ended()]))
        watched.run(watched.store.runs.commit([step(2)]))

        [found] = watched.found
        assert "had ended, and got more events" in found

    def test_may_be_replaced_by_one_that_starts_at_the_same_moment(self, watched: Watched) -> None:
        watched.run(watched.store.runs.submit(new_run()))
        watched.run(watched.store.runs.commit([_ended()]))
        watched.run(watched.store.runs.submit(new_run(on_existing="replace")))
        for expected in (1, 2, 3):
            watched.run(watched.store.runs.commit([step(expected)]))

        assert watched.found == []


class TestReplacedRuns:
    def test_get_no_commit_for_the_one_before(self, watched: Watched) -> None:
        store, run = watched.store, watched.run
        former = run(store.runs.submit(new_run())).run
        run(store.runs.submit(new_run(on_existing="replace")))
        with mutated("replacement_unnoticed"):
            run(store.runs.commit([step(1, created_at=former.created_at)]))

        [found] = watched.found
        assert "decided about the one before it" in found


class TestLiveEvents:
    @pytest.mark.parametrize(
        "type, reason", [("job.retried", "not written"), ("job.started", "no worker has claimed")]
    )
    def test_say_what_was_written(self, watched: Watched, type: str, reason: str) -> None:
        store, run = watched.store, watched.run
        [there] = run(store.jobs.insert([new_job()]))
        if type == "job.retried":
            run(store.jobs.claim(request()))
        event = ClientEvent(
            type=type, at=moment(0), namespace=NAMESPACE, job=there.id, worker=WORKER
        )
        run(store.live.publish(NAMESPACE, [msgspec.json.encode(event)]))

        [found] = watched.found
        assert reason in found


def _ended() -> RunCommit:
    return step(events=(event("RunCompleted"),), status=RunStatus.COMPLETED)
