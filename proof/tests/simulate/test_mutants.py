"""Mutants are applied, caught, and reverted."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.store.memory import commit as committing
from perdure.store.memory.jobs import MemoryJobs
from proof.simulate.mutants import MUTANTS, mutated
from proof.simulate.mutants.hunt import SHOWN_MAX, Catch, caught, table
from proof.simulate.mutants.patch import Change, Mutant

MUTANTS_MIN = 20
"""Fewer would prove too little."""
QUICKLY_FOUND = (
    "attempts_unbounded",
    "claims_from_everywhere",
    "clock_without_delay",
    "delayed_starts_early",
    "event_skipped",
    "gap_unnoticed",
    "jobs_left_behind",
    "live_runs_pruned",
    "parent_not_woken",
    "place_of_run_ignored",
    "queue_hands_out_nodes",
    "retried_at_once",
    "snapshot_wrong",
    "snoozes_unbounded",
    "start_without_delay",
)
"""Caught by the first few seeds, each by another rule; ``make simulate-mutants`` hunts all."""


def test_there_are_many_and_each_says_what_it_breaks() -> None:
    assert len(MUTANTS) >= MUTANTS_MIN
    assert len({mutant.what for mutant in MUTANTS.values()}) == len(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_what_was_broken_is_whole_afterwards(name: str) -> None:
    changes = MUTANTS[name].changes()
    before = [getattr(owner, attribute) for owner, attribute, _ in changes]

    with mutated(name):
        during = [getattr(owner, attribute) for owner, attribute, _ in changes]

    assert during != before
    assert [getattr(owner, attribute) for owner, attribute, _ in changes] == before


def test_what_was_broken_is_whole_even_after_an_error() -> None:
    before = committing._is_repeated

    with pytest.raises(RuntimeError), mutated("token_ignored"):
        raise RuntimeError("in the middle")

    assert committing._is_repeated is before


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_is_found_out(name: str) -> None:
    catch = caught(name)

    assert catch.seed is not None
    assert catch.finding


def test_that_only_raises_because_the_code_has_changed_is_not_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def changes() -> list[Change]:
        async def claim(self: Any, request: Any) -> Any:
            return self.no_longer_there

        return [(MemoryJobs, "claim", claim)]

    monkeypatch.setitem(
        MUTANTS, "outdated", Mutant("outdated", "claims by a name that is gone", changes, 5)
    )

    catch = caught("outdated")

    assert catch.seed is None
    assert "broken" in catch.finding


def test_are_reported_as_a_table_with_the_hardest_to_find_last() -> None:
    finding = "verifier: I2 evidence.commands_are_logged.repeated: "
    finding += f"{'order-1'.rjust(SHOWN_MAX - len(finding))}, event 4"
    catches = [
        Catch("got_away", None, "not in 300 seeds"),
        Catch("late", 215, finding),
        Catch("soon", 3, "a body ran twice"),
    ]

    assert list(table(catches)) == [
        "mutant    seeds  found out by",
        "soon          3  a body ran twice",
        f"late        215  {finding.partition(',')[0]}",
        "got_away   none  not in 300 seeds",
    ]
