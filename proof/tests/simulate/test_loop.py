"""The simulated loop: one loop as many processes, in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from proof.simulate.loop import NothingLeft, SimulatedLoop
from proof.tests.simulate.simulated import actor, spawn


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop("a seed")
    yield loop
    loop.finalize()


class TestTime:
    def test_jumps_to_the_next_timer(self, loop: SimulatedLoop) -> None:
        loop.run_until_complete(asyncio.sleep(3_600))

        assert loop.now == pytest.approx(3_600)

    def test_runs_faster_where_a_clock_does(self, loop: SimulatedLoop) -> None:
        hasty = actor("hasty", rate=2.0, offset=50.0)

        loop.run_until_complete(spawn(loop, hasty, asyncio.sleep(10)))

        assert loop.now == pytest.approx(5)

    def test_is_not_waited_for_when_nothing_will_happen(self, loop: SimulatedLoop) -> None:
        with pytest.raises(NothingLeft):
            loop.run_until_complete(asyncio.Event().wait())


class TestTurns:
    def test_of_one_actor_are_in_their_order(self, loop: SimulatedLoop) -> None:
        done: list[int] = []

        async def in_a_row() -> None:
            for number in range(50):
                asyncio.get_running_loop().call_soon(done.append, number)
            await asyncio.sleep(1)

        loop.run_until_complete(spawn(loop, actor("one"), in_a_row()))

        assert done == list(range(50))

    def test_of_several_are_mixed_as_the_seed_says(self) -> None:
        def turns(seed: str) -> list[str]:
            loop, done = SimulatedLoop(seed), []

            async def take_turns(name: str) -> None:
                for _ in range(10):
                    done.append(name)
                    await asyncio.sleep(0)

            tasks = [spawn(loop, actor(name), take_turns(name)) for name in "abc"]
            loop.run_until_complete(asyncio.wait(tasks))
            loop.close()
            return done

        assert turns("one") == turns("one")
        assert turns("one") != turns("another")

    def test_are_not_for_the_frozen(self, loop: SimulatedLoop) -> None:
        frozen, ended_at = actor("frozen"), []

        async def work() -> None:
            await asyncio.sleep(1)
            ended_at.append(loop.now)

        act_of_frozen = spawn(loop, frozen, work())
        loop.run_until_complete(asyncio.sleep(0.5))
        frozen.frozen_until = 30.0
        loop.run_until_complete(act_of_frozen)

        assert ended_at == [30.0]


class TestCrash:
    def test_comes_in_the_middle_and_runs_no_finally(self, loop: SimulatedLoop) -> None:
        victim, done = actor("victim"), []

        async def work() -> None:
            try:
                done.append("begun")
                await asyncio.sleep(10)
                done.append("gone on")
            finally:
                done.append("cleaned up")

        doomed = spawn(loop, victim, work())
        loop.run_until_complete(asyncio.sleep(1))
        loop.kill(victim.process)
        loop.run_until_complete(asyncio.sleep(60))

        assert done == ["begun"]
        assert not doomed.done()

    def test_comes_after_so_many_callbacks(self, loop: SimulatedLoop) -> None:
        victim = actor("victim", dies_after=5)
        steps: list[int] = []

        async def work() -> None:
            while True:
                steps.append(len(steps))
                await asyncio.sleep(0.1)

        spawn(loop, victim, work())
        loop.run_until_complete(asyncio.sleep(60))

        assert victim.process.is_dead
        assert 1 <= len(steps) <= 5


def test_what_is_handed_to_a_thread_comes_back(loop: SimulatedLoop) -> None:
    async def work() -> tuple[int, bool]:
        return await asyncio.to_thread(lambda: (7, loop.in_thread))

    assert loop.run_until_complete(work()) == (7, True)
    assert not loop.in_thread
