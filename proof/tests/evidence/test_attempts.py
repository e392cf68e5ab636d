"""Regressions about requeued attempts, from real histories."""

from __future__ import annotations

from perdure.store.memory.store import MemoryStore
from perdure.verify import Finding
from proof.evidence.log import BodyStarted, Line, Requeued
from proof.evidence.rules import EvidenceRules, EvidenceSettings


def began(at: float, key: str, epoch: int, attempt: int) -> BodyStarted:
    return BodyStarted(
        nonce=f"{key}-{attempt}",
        at=at,
        namespace="default",
        job="j",
        epoch=epoch,
        attempt=attempt,
        task="t",
        worker="w",
        idempotency_key=f"r:{key}:0",
        run="r",
        key=key,
    )


async def test_an_attempt_at_a_later_part_of_the_same_job_may_be_requeued() -> None:
    """The job continued in place from a to b, whose first attempt was requeued."""
    lines: list[Line] = [
        began(1, "a", 1, 1),
        began(2, "a", 2, 2),
        Requeued(at=3, job="j", attempt=1),
        began(4, "b", 3, 1),
    ]

    assert await findings_in(lines) == []


async def test_an_attempt_that_was_requeued_before_must_not_count() -> None:
    lines: list[Line] = [
        began(1, "a", 1, 1),
        Requeued(at=2, job="j", attempt=1),
        began(3, "a", 2, 2),
    ]

    [finding] = await findings_in(lines)

    assert finding.code == "evidence.attempts_follow.too_many"


async def findings_in(lines: list[Line]) -> list[Finding]:
    rules = EvidenceRules(lines, EvidenceSettings())
    try:
        return [each async for each in rules.attempts_follow(MemoryStore("memory://"))]
    finally:
        rules.close()
