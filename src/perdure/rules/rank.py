"""The order of the queue, without a sort.

Aging asks for ``priority - waited / aging``, lowest first. At any one moment all jobs share the
same "now", so that order is the order of the constant ``ready_at + priority * aging``, which is
stored once and indexed.
"""

from __future__ import annotations

from datetime import datetime, timedelta

AGING_DEFAULT = timedelta(minutes=5)


def rank_of(ready_at: datetime, priority: int, aging: timedelta) -> float:
    """Lower is claimed first."""
    return ready_at.timestamp() + priority * aging.total_seconds()


def moved_rank(rank: float, ready_before: datetime, ready_after: datetime) -> float:
    """The rank of a job that becomes ready at another time: its waiting begins anew."""
    return rank + (ready_after - ready_before).total_seconds()
