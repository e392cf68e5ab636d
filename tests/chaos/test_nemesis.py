"""The nemesis follows its seed, and tells what happened and what misbehaved."""

from __future__ import annotations

from random import Random

import pytest

from perdure.testing.chaos import nemesis as module
from perdure.testing.chaos.faults import Fault, Misbehaved
from perdure.testing.chaos.nemesis import Nemesis

KINDS = ["a", "b", "c", "d"]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", (0.0, 0.001))


async def raged(seed: int) -> list[tuple[str, str]]:
    async def happen(random: Random) -> str:
        return f"{random.random():.6f}"

    nemesis = Nemesis([Fault(kind, happen) for kind in KINDS], seed, lambda _: None)
    await nemesis.rage(0.2)
    return [(record.name, record.detail) for record in nemesis.records]


async def test_faults_of_one_seed_come_in_the_same_order_with_the_same_numbers() -> None:
    first, second, other = await raged(1), await raged(1), await raged(2)

    common = min(len(first), len(second), len(other), 12)
    assert common == 12
    assert sorted(first[:common]) == sorted(second[:common])
    assert sorted(first[:common]) != sorted(other[:common])


async def test_every_kind_of_fault_has_its_turn() -> None:
    names = [name for name, _ in await raged(1)]

    assert set(names[: 2 * len(KINDS)]) == set(KINDS)


async def test_what_misbehaves_is_a_complaint_and_faults_go_on() -> None:
    async def happen(random: Random) -> str:
        raise Misbehaved("it would not stop")

    nemesis = Nemesis([Fault("stop", happen)], 1, lambda _: None)
    await nemesis.rage(0.05)

    assert len(nemesis.complaints) > 1
    assert nemesis.complaints[0] == "stop: it would not stop"
    assert nemesis.counts["stop"] == len(nemesis.complaints)
