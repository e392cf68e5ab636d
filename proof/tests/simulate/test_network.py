"""The simulated network: which faults it may inject, and which not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from perdure.errors import StoreError
from perdure.model.hint import Hint, HintType
from perdure.model.job import JobFilter, Status
from perdure.model.outcome import Completed, Settlement
from perdure.testing.contract.builders import WORKER, new_job, new_run, request
from proof.simulate.loop import SimulatedLoop
from proof.simulate.network import LATE_SECONDS_MAX, FaultProfile
from proof.tests.simulate.simulated import Seen, actor, spawn, store_on


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop("a seed")
    yield loop
    loop.finalize()


class StopsAfter(Seen):
    """Ends all faults once a call has reached the store."""

    def __init__(self, faults: FaultProfile) -> None:
        super().__init__()
        self._faults = faults

    def saw(self, name: str, args: tuple[object, ...], answer: object) -> None:
        super().saw(name, args, answer)
        asyncio.get_running_loop().call_later(0.001, self._faults.calm)


def test_what_is_refused_is_not_written(loop: SimulatedLoop) -> None:
    seen = Seen()
    store = store_on(loop, FaultProfile(refused=1.0), seen)

    with pytest.raises(StoreError):
        loop.run_until_complete(store.jobs.insert([new_job()]))

    assert seen.names == []


def test_an_insert_whose_answer_was_lost_is_repeated_and_counts_once(loop: SimulatedLoop) -> None:
    faults = FaultProfile(lost_after=1.0)
    seen = StopsAfter(faults)
    store = store_on(loop, faults, seen)

    [inserted] = loop.run_until_complete(store.jobs.insert([new_job()]))

    assert inserted.is_new
    assert seen.names == ["jobs.insert", "jobs.insert"]
    assert loop.run_until_complete(store.queries.count_jobs(JobFilter())) == 1


def test_a_claim_whose_answer_was_lost_says_that_it_was_repeated(loop: SimulatedLoop) -> None:
    faults = FaultProfile()
    seen = StopsAfter(faults)
    store = store_on(loop, faults, seen)
    loop.run_until_complete(store.jobs.insert([new_job(), new_job()]))

    faults.lost_after = 1.0
    claimed = loop.run_until_complete(store.jobs.claim(request(limit=1)))
    requeued = loop.run_until_complete(
        store.jobs.requeue_unknown(WORKER, [job.claim.id for job in claimed.jobs])
    )

    assert claimed.is_repeated
    assert len(claimed.jobs) == 1
    assert requeued == 1


def test_an_outcome_whose_answer_was_lost_is_answered_as_written(loop: SimulatedLoop) -> None:
    faults = FaultProfile()
    store = store_on(loop, faults, StopsAfter(faults))
    loop.run_until_complete(store.jobs.insert([new_job()]))
    claimed = loop.run_until_complete(store.jobs.claim(request(limit=1)))

    faults.lost_after = 1.0
    outcome = Settlement(claim=claimed.jobs[0].claim, outcome=Completed(output=b"1"))
    statuses = loop.run_until_complete(store.jobs.settle([outcome]))

    assert statuses == [Status.COMPLETED]


def test_a_call_that_is_given_up_fails_though_it_may_have_been_carried_out(
    loop: SimulatedLoop,
) -> None:
    faults = FaultProfile(lost_after=1.0, given_up=1.0)
    store = store_on(loop, faults, Seen())

    with pytest.raises(StoreError, match="is unknown"):
        loop.run_until_complete(store.jobs.insert([new_job()]))

    faults.calm()
    assert loop.run_until_complete(store.queries.count_jobs(JobFilter())) == 1


def test_a_silent_line_is_noticed_late(loop: SimulatedLoop) -> None:
    faults = FaultProfile(lost_before=1.0, silence=10.0, given_up=1.0)
    store = store_on(loop, faults, Seen())

    with pytest.raises(StoreError):
        loop.run_until_complete(store.jobs.insert([new_job()]))

    assert 1 < loop.now < 10


def test_hints_may_come_twice_or_never(loop: SimulatedLoop) -> None:
    def heard(faults: FaultProfile) -> list[HintType]:
        store, hints = store_on(loop, faults, Seen()), list[Hint]()

        async def listen() -> None:
            stop = store.subscribe(hints.append, [HintType.READY])
            await store.jobs.insert([new_job()])
            await asyncio.sleep(10)
            stop()

        loop.run_until_complete(listen())
        return [hint.type for hint in hints]

    assert heard(FaultProfile()) == [HintType.READY]
    assert heard(FaultProfile(hint_twice=1.0)) == [HintType.READY] * 2
    assert heard(FaultProfile(hint_lost=1.0)) == []


class TestOnTheWay:
    def test_arrives_after_it_was_given_up(self, loop: SimulatedLoop) -> None:
        seen = Seen()
        store = store_on(loop, FaultProfile(lost_before=1.0, late=1.0, given_up=1.0), seen)

        with pytest.raises(StoreError, match="is unknown"):
            loop.run_until_complete(store.jobs.insert([new_job()]))
        before = list(seen.names)
        loop.run_until_complete(asyncio.sleep(LATE_SECONDS_MAX))

        assert before == []
        assert seen.names == ["jobs.insert"]

    def test_arrives_after_its_repeat_and_counts_once(self, loop: SimulatedLoop) -> None:
        faults, seen = FaultProfile(lost_before=1.0, late=1.0), Seen()
        store = store_on(loop, faults, seen)
        loop.call_later(0.01, setattr, faults, "lost_before", 0.0)

        [inserted] = loop.run_until_complete(store.jobs.insert([new_job()]))
        loop.run_until_complete(asyncio.sleep(LATE_SECONDS_MAX))

        assert inserted.is_new
        assert seen.names == ["jobs.insert", "jobs.insert"]
        assert loop.run_until_complete(store.queries.count_jobs(JobFilter())) == 1

    def test_is_undone_after_its_repeat_where_it_takes_several_statements(
        self, loop: SimulatedLoop
    ) -> None:
        """Otherwise a run would replace itself long after it has started."""
        faults, seen = FaultProfile(), Seen()
        store = store_on(loop, faults, seen)
        loop.run_until_complete(store.runs.submit(new_run()))
        faults.lost_before = faults.late = 1.0
        loop.call_later(0.01, setattr, faults, "lost_before", 0.0)

        again = new_run(on_existing="replace")
        submitted = loop.run_until_complete(store.runs.submit(again))
        loop.run_until_complete(asyncio.sleep(LATE_SECONDS_MAX))

        assert submitted.is_new
        assert seen.names == ["runs.submit", "runs.submit"]

    def test_outlives_who_sent_it(self, loop: SimulatedLoop) -> None:
        seen, sender = Seen(), actor("sender")
        store = store_on(loop, FaultProfile(latency=1.0), seen)

        sent = spawn(loop, sender, store.jobs.insert([new_job()]))
        loop.run_until_complete(asyncio.sleep(0.001))
        before = list(seen.names)
        loop.kill(sender.process)
        loop.run_until_complete(asyncio.sleep(2))

        assert before == []
        assert seen.names == ["jobs.insert"]
        assert not sent.done()


def test_an_outage_is_for_everybody_who_comes_meanwhile(loop: SimulatedLoop) -> None:
    faults, seen = FaultProfile(), Seen()
    early = store_on(loop, faults, seen)
    faults.out_until = 7.0
    late = store_on(loop, faults, seen)

    for store in (early, late):
        spawn(loop, actor("someone"), store.jobs.insert([new_job()]))
    loop.run_until_complete(asyncio.sleep(6.9))
    before = list(seen.names)
    loop.run_until_complete(asyncio.sleep(1))

    assert before == []
    assert seen.names == ["jobs.insert"] * 2
