"""I11: what is remembered of a limit lets its jobs run again one day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from perdure.verify.finding import Finding
from perdure.verify.inside.reads import LimitDetails

AHEAD_MAX = timedelta(hours=1)
"""How far in the future something may have happened: clocks of processes differ."""


class LimitView:
    def __init__(self, limit: LimitDetails, now: datetime, closed_max: timedelta) -> None:
        self.limit = limit
        self.now = now
        self.closed_max = closed_max

    def finding(self, invariant: str, rule: str, text: str) -> Finding:
        limit = self.limit
        told = f"limit {limit.key!r}: {text}"
        return Finding(invariant=invariant, rule=rule, text=told, namespace=limit.namespace)


def opens_again(view: LimitView) -> Iterator[Finding]:
    closed_until = view.limit.closed_until
    if closed_until is not None and closed_until - view.now > view.closed_max:
        text = f"closed until {closed_until}, which is longer than {view.closed_max}"
        yield view.finding("I11", "opens_again", text)


def began_in_the_past(view: LimitView) -> Iterator[Finding]:
    """A start that is counted has happened; one of the future would keep others back until then."""
    limit = view.limit
    for at in {limit.last_start_at, limit.latest_start_at} - {None}:
        if at is not None and at - view.now > AHEAD_MAX:
            text = f"a start at {at} is counted, and it is {view.now}"
            yield view.finding("I11", "began_in_the_past", text)


RULES = (opens_again, began_in_the_past)
