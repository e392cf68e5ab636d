"""What a real history taught the checker about attempts that were given back."""

from __future__ import annotations

from perdure.verify import Finding, testimony
from perdure.verify.rules.witnessed import attempts_follow
from perdure.verify.settings import CheckSettings
from perdure.verify.witness import BodyBegan, GivenBack, Line


def began(at: float, key: str, epoch: int, attempt: int) -> BodyBegan:
    return BodyBegan(
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


def test_an_attempt_at_a_later_part_of_the_same_job_may_be_given_back() -> None:
    """The job went on in place from a to b, whose first attempt was given back."""
    lines: list[Line] = [
        began(1, "a", 1, 1),
        began(2, "a", 2, 2),
        GivenBack(at=3, job="j", attempt=1),
        began(4, "b", 3, 1),
    ]

    assert findings_in(lines) == []


def test_an_attempt_that_was_given_back_before_must_not_count() -> None:
    lines: list[Line] = [
        began(1, "a", 1, 1),
        GivenBack(at=2, job="j", attempt=1),
        began(3, "a", 2, 2),
    ]

    [finding] = findings_in(lines)

    assert finding.invariant == "I9"


def findings_in(lines: list[Line]) -> list[Finding]:
    heard = testimony.Testimony.of(lines)
    try:
        return list(attempts_follow(heard, CheckSettings()))
    finally:
        heard.close()
