"""Where a kit keeps everything: a place in memory whose time stands still until it is turned.

The kit's worker sees it through a gate. While the gate is shut there is nothing to claim, so that
work is done only when the test says so; and nothing is ever due for the worker, because the kit
itself lets time pass.
"""

from __future__ import annotations

from dataclasses import replace as with_changes
from datetime import datetime

from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.model.hint import Hint, HintKind
from perdure.model.job import Claimed
from perdure.model.worker import PollResult
from perdure.store.contract import ClaimRequest
from perdure.store.memory.jobs import MemoryJobs
from perdure.store.memory.maintenance import MemoryMaintenance
from perdure.store.memory.store import MemoryStore
from perdure.store.memory.transaction import Session

URL = "memory://"


class Gate:
    """Whether the worker may claim, and what it asked for in vain."""

    def __init__(self) -> None:
        self.is_open = False
        self.refused: set[str] = set()
        """Lanes of which nothing could be claimed since something changed: they are at a limit."""
        self.opens_at: datetime | None = None
        """When the first limit that refused something has room again."""

    def forget(self) -> None:
        """Something changed: what was refused may be there now."""
        self.refused.clear()
        self.opens_at = None

    def refuse(self, request: ClaimRequest, claimed: Claimed) -> None:
        self.refused.update(lane.lane for lane in request.lanes)
        moments = [each for each in (self.opens_at, claimed.opens_at) if each is not None]
        self.opens_at = min(moments, default=None)


class KitPlace:
    """The place, its clock, and the handles on it."""

    def __init__(self, now: datetime | None) -> None:
        self.clock = ManualClock(now)
        self.gate = Gate()
        self.store = MemoryStore(URL, self.clock)
        self.workers_store = GatedStore(self.store, self.gate)

    def turn_to(self, moment: datetime) -> None:
        self.clock.advance(moment - self.clock())
        self.gate.forget()
        self.workers_store.refresh_workers()

    def hint_at(self, lanes: tuple[str, ...]) -> None:
        """Tell the worker that there may be work in these lanes."""
        if lanes:
            self.workers_store.publish(Hint(kind=HintKind.READY, names=frozenset(lanes)))


class GatedStore(MemoryStore):
    """The place as the kit's worker sees it."""

    def __init__(self, place: MemoryStore, gate: Gate) -> None:
        super().__init__(place.url, session=place._session)
        self._gate = gate
        self.jobs = GatedJobs(place._session, gate)
        self.maintenance = TimelessMaintenance(place._session)

    def clone(self) -> GatedStore:
        return GatedStore(self, self._gate)

    def publish(self, hint: Hint) -> None:
        self._session.state.hub.publish(hint)

    def refresh_workers(self) -> None:
        """A worker that stood still with the time is no dead one."""
        state = self._session.state
        with state.lock:
            now, workers = self._session.clock(), state.workers
            for id, record in workers.items():
                workers[id] = with_changes(record, seen_at=now)


class GatedJobs(MemoryJobs):
    """Hands out jobs while the gate is open."""

    def __init__(self, session: Session, gate: Gate) -> None:
        super().__init__(session)
        self._gate = gate

    async def claim(self, request: ClaimRequest) -> Claimed:
        if not self._gate.is_open:
            return Claimed(jobs=[], now=self._session.clock())
        claimed = await super().claim(request)
        if not claimed.jobs:
            self._gate.refuse(request, claimed)
        return claimed


class TimelessMaintenance(MemoryMaintenance):
    """Names nothing that is due later: the kit itself lets time pass."""

    async def poll(self, namespace: str, after_lane: str = "") -> PollResult:
        return replace(
            await super().poll(namespace, after_lane),
            next_due_at=None,
            next_lease_end_at=None,
            next_deadline_at=None,
            next_wait_at=None,
            next_tick_at=None,
        )
