"""Whole simulated histories: deterministic, and without findings."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import closing

import pytest

from proof.simulate.__main__ import main
from proof.simulate.history import listening, simulate
from proof.simulate.many import simulate_many
from proof.simulate.world import World

SEEDS = range(50_000, 50_020)
FEW = (7, 8, 9)


def digests_in_another_process(hash_seed: str) -> list[str]:
    code = (
        "from proof.simulate.history import simulate\n"
        f"for seed in {FEW}: print(simulate(seed).digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


class TestSameSeed:
    @pytest.mark.timeout(180)
    def test_gives_the_same_history_in_every_process(self) -> None:
        here = [simulate(seed).digest for seed in FEW]

        assert here == digests_in_another_process("1")
        assert here == digests_in_another_process("2")
        assert len(set(here)) == len(FEW)

    def test_gives_the_same_lines_after_other_seeds(self) -> None:
        def lines(seed: int) -> list[str]:
            shown: list[str] = []
            simulate(seed, shown.append)
            return shown

        first = lines(3)
        lines(4)

        assert lines(3) == first
        assert any("runs.commit" in line for line in first)


@pytest.mark.timeout(600)
def test_nothing_is_found_in_many_histories() -> None:
    printed: list[str] = []

    tally = simulate_many(SEEDS, 2, printed.append)

    assert tally.failed == [], "\n".join(printed)
    assert tally.histories == len(SEEDS)
    assert tally.runs > len(SEEDS)
    assert tally.jobs > len(SEEDS)


def test_loggers_say_afterwards_what_they_said_before() -> None:
    log = logging.getLogger("perdure.client")
    assert log.isEnabledFor(logging.WARNING)

    world = World(1)
    with closing(world.loop), listening(world):
        assert not log.isEnabledFor(logging.WARNING)

    assert log.isEnabledFor(logging.WARNING)


@pytest.mark.parametrize("seed", [80, 1200, 1386, 2455, 32628])
def test_nothing_is_found_where_something_once_was(seed: int) -> None:
    assert simulate(seed).findings == ()


class TestCommand:
    def test_shows_one_seed_step_by_step(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--seed", "3", "--trace"]) == 0

        shown = capsys.readouterr().out
        assert "no more faults from here on" in shown
        assert "seed 3: all is well" in shown

    def test_prints_how_to_see_what_failed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--seed", "1", "--mutant", "event_numbered_twice"]) == 1

        shown = capsys.readouterr().out
        command = "--seed 1 --mutant event_numbered_twice --trace"
        assert f"see it: python -m proof.simulate {command}" in shown
