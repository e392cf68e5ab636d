"""The claim loop: asks for as many jobs as there is room for, whenever there may be some."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from datetime import timedelta

from perdure import clock
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Claimed
from perdure.store.contract import ClaimRequest, LaneRequest, Store
from perdure.worker.lanes import KnownLanes

RETRY_SECONDS = 1.0
BATCH_MAX = 500
MOMENT_SECONDS = 0.001
_log = logging.getLogger("perdure.worker")


class ClaimLoop:
    """Claims until it is stopped. ``room`` says how many jobs can be taken, ``take`` takes them."""

    def __init__(
        self,
        store: Store,
        lanes: KnownLanes,
        request: Callable[[], tuple[str, WorkerId, timedelta]],
        room: Callable[[], int],
        take: Callable[[Claimed, bool], None],
        held: Callable[[], Sequence[JobId]],
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._request = request
        self._room = room
        self._take = take
        self._held = held
        self._may_have_work = False
        self._unasked = 0
        """Lanes that are left to ask in turn since a claim last got something."""
        self._may_hold_unknown = False
        """Whether a claim may have taken jobs without an answer that says which."""
        self._moments: set[int] = set()
        self._changed = asyncio.Event()
        self._is_stopping = False

    def look(self) -> None:
        """There may be work: ask for it."""
        self._may_have_work = True
        self._changed.set()

    def look_at(self, seconds: float) -> None:
        """Ask again in so many seconds. However many want the same moment, it is one timer."""
        loop = asyncio.get_running_loop()
        moment = math.ceil((loop.time() + max(0.0, seconds)) / MOMENT_SECONDS)
        if moment not in self._moments:
            self._moments.add(moment)
            loop.call_at(moment * MOMENT_SECONDS, self._look_at_last, moment)

    def room_changed(self) -> None:
        self._changed.set()

    def stop(self) -> None:
        """Claim no more; a claim under way is still answered."""
        self._is_stopping = True
        self._changed.set()

    def _look_at_last(self, moment: int) -> None:
        self._moments.discard(moment)
        self.look()

    async def run(self) -> None:
        while not self._is_stopping:
            room = min(self._room(), BATCH_MAX)
            can_claim = room > 0 and bool(self._lanes)
            if not self._may_have_work or not (can_claim or self._may_hold_unknown):
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                await self._give_back_unknown()
                if can_claim:
                    # Down before the question, so that a hint during it is not lost.
                    self._may_have_work = False
                    await self._claim(room)
            except Exception:
                _log.exception("claiming failed; trying again")
                self._may_have_work = False
                self.look_at(RETRY_SECONDS)

    async def _claim(self, room: int) -> None:
        namespace, worker, lease = self._request()
        requests = self._lanes.requests()
        if self._unasked <= 0:
            self._unasked = len(self._lanes)
        asked_at = clock.monotonic()
        self._may_hold_unknown = True
        claimed = await self._store.jobs.claim(
            ClaimRequest(
                namespace=namespace, worker=worker, lanes=requests, limit=room, lease=lease
            )
        )
        # While the event loop was busy the lease may have run out unrenewed.
        is_fresh = clock.monotonic() - asked_at < lease.total_seconds()
        self._may_hold_unknown = claimed.is_repeated
        self._take(claimed, is_fresh)
        await self._give_back_unknown()
        if claimed.jobs:
            self._unasked = len(self._lanes)
        self._unasked -= len(requests)
        if len(claimed.jobs) == room or self._unasked > 0:
            self._may_have_work = True
        if claimed.jobs and any(_is_timed(request) for request in requests):
            # A rate that had room has none now, perhaps: only the next answer says until when.
            self._may_have_work = True
        if claimed.opens_at is not None:
            self.look_at((claimed.opens_at - claimed.now).total_seconds())

    async def _give_back_unknown(self) -> None:
        """Free what an unanswered claim took: it would be nobody's until its lease ends.

        Only while no claim of this worker is under way.
        """
        if self._may_hold_unknown:
            _, worker, _ = self._request()
            await self._store.jobs.requeue_unknown(worker, self._held())
            self._may_hold_unknown = False


def _is_timed(request: LaneRequest) -> bool:
    """Whether time alone may let more of a lane start."""
    return any(rule.window is not None or rule.spacing is not None for rule in request.rules)
