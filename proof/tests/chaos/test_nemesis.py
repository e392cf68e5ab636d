"""The nemesis follows its seed, and reports faults and violations."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from proof.chaos import faults as module
from proof.chaos.faults import TRIES_MAX, Fault, Misbehaved, Missed, Nemesis

KINDS = ["a", "b", "c", "d"]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", (0.0, 0.001))


async def raged(seed: int) -> list[tuple[str, str]]:
    async def happen(random: Random) -> str:
        return f"{random.random():.6f}"

    nemesis = Nemesis([Fault(found_type, happen) for found_type in KINDS], seed, lambda _: None)
    await nemesis.inject(0.2)
    return [(record.name, record.detail) for record in nemesis.records]


async def test_faults_of_one_seed_come_in_the_same_order_with_the_same_numbers() -> None:
    first, second, other = await raged(1), await raged(1), await raged(2)

    common = min(len(first), len(second), len(other), 12)
    assert common == 12
    assert sorted(first[:common]) == sorted(second[:common])
    assert sorted(first[:common]) != sorted(other[:common])


async def test_every_fault_type_has_its_turn() -> None:
    names = [name for name, _ in await raged(1)]

    assert set(names[: 2 * len(KINDS)]) == set(KINDS)


async def test_what_misbehaves_is_a_complaint_and_faults_continue() -> None:
    async def happen(random: Random) -> str:
        raise Misbehaved("it would not stop")

    nemesis = Nemesis([Fault("stop", happen)], 1, lambda _: None)
    await nemesis.inject(0.05)

    assert len(nemesis.complaints) > 1
    assert nemesis.complaints[0] == "stop: it would not stop"
    assert nemesis.hits["stop"] == len(nemesis.complaints)


async def test_what_befell_nothing_is_reported_and_not_counted() -> None:
    lines: list[str] = []

    async def happen(random: Random) -> str:
        raise Missed("the server was down")

    nemesis = Nemesis([Fault("cut", happen)], 1, lines.append)
    await nemesis.inject(0.02)

    assert nemesis.records[0].detail == "the server was down"
    assert lines[0] == "cut: the server was down (missed)"
    assert not nemesis.hits


class TestCertainFaults:
    async def test_happen_before_all_others_however_short_the_time(self) -> None:
        async def happen(random: Random) -> str:
            return "so"

        others = [Fault(f"other {number}", happen) for number in range(20)]
        certain = [Fault(found_type, happen, is_certain=True) for found_type in KINDS]
        nemesis = Nemesis([*others, *certain], 1, lambda _: None)
        await nemesis.inject(0)

        assert sorted(record.name for record in nemesis.records) == KINDS

    async def test_are_tried_again_until_they_hit(self) -> None:
        tries = iter([Missed("not yet"), Missed("nor now"), None])

        async def happen(random: Random) -> str:
            if (error := next(tries)) is not None:
                raise error
            return "at last"

        nemesis = Nemesis([Fault("cut", happen, is_certain=True)], 1, lambda _: None)
        await nemesis.inject(0)

        details = [record.detail for record in nemesis.records]
        assert details == ["not yet", "nor now", "at last"]
        assert nemesis.hits == {"cut": 1}

    async def test_are_given_up_in_the_end(self) -> None:
        async def happen(random: Random) -> str:
            raise Missed("never")

        nemesis = Nemesis([Fault("cut", happen, is_certain=True)], 1, lambda _: None)
        await nemesis.inject(0)

        assert len(nemesis.records) == TRIES_MAX
        assert not nemesis.hits

    async def test_overlap_but_for_those_that_would_end_the_others(self) -> None:
        under_way: set[str] = set()
        seen: dict[str, set[str]] = {}

        def fault(name: str, *, ends_others: bool) -> Fault:
            async def happen(random: Random) -> str:
                seen[name] = set(under_way)
                under_way.add(name)
                await asyncio.sleep(0.05)
                under_way.remove(name)
                return "so"

            return Fault(name, happen, is_certain=True, ends_others=ends_others)

        faults = [fault("crash", ends_others=True), fault("a", ends_others=False)]
        await Nemesis([*faults, fault("b", ends_others=False)], 1, lambda _: None).inject(0)

        assert seen["crash"] == set()
        assert seen["a"] | seen["b"] in ({"a"}, {"b"})
