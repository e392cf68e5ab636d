"""Claim jobs while there is room, from the partitions known to have work for this worker.

A hint adds a partition, a poll corrects them all.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

from perdure import clock
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Claimed
from perdure.model.partition import Lane
from perdure.model.worker import can_run
from perdure.store.admission import governing_rules
from perdure.store.contract import ClaimRequest, LaneRequest, Store
from perdure.worker.nodes import Code
from perdure.worker.settings import WorkerSettings

REQUEST_LANES_MAX = 200
"""Lanes that one claim asks for; with more of them, claims take turns through all."""
JUDGED_MAX = 4096
"""Lanes of which it is remembered whether this worker can run their jobs."""

T = TypeVar("T")


class KnownLanes:
    """Texts of lanes seen, and the claim requests for those this worker can run."""

    def __init__(self, code: Code, settings: WorkerSettings) -> None:
        self._code = code
        self._settings = settings
        self._requests: dict[str, LaneRequest] = {}
        self._judged: dict[Lane, LaneRequest | None] = {}
        self.paused: frozenset[str] = frozenset()
        """Queues that were paused at the last survey."""
        self._fresh: set[str] = set()
        self._turn = 0
        self._texts_turn = 0

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def are_limited(self) -> bool:
        return any(request.rules for request in self._requests.values())

    def note(self, texts: Iterable[str]) -> bool:
        """These lanes have work, as a hint or a survey tells; True if any of it is ours."""
        ours = [text for text in texts if self._add(text)]
        self._fresh.update(ours)
        return bool(ours)

    def begin_survey(self) -> None:
        self._fresh.clear()

    def end_survey(self) -> None:
        """Only lanes that were noted since the survey began have work."""
        for text in self._requests.keys() - self._fresh:
            del self._requests[text]

    def requests(self) -> list[LaneRequest]:
        """What to claim from now."""
        self._turn += REQUEST_LANES_MAX
        return _in_turn(list(self._requests.values()), self._turn)

    def texts(self) -> list[str]:
        """The lanes that have work; some of them in turn, where there are very many."""
        self._texts_turn += REQUEST_LANES_MAX
        return _in_turn(list(self._requests), self._texts_turn)

    def serves(self, lane: Lane) -> bool:
        """Whether a job of a run may go on in this lane here, without asking the store.

        Under a limit it may not: only a claim counts what is live. Nor into a paused queue.
        """
        if lane.queue in self.paused:
            return False
        request = self._request_for(lane)
        return request is not None and not request.rules

    def _add(self, text: str) -> bool:
        if text in self._requests:
            return True
        request = self._request_for(Lane.parse(text))
        if request is None:
            return False
        self._requests[text] = request
        return True

    def _request_for(self, lane: Lane) -> LaneRequest | None:
        """How to claim from a lane, if this worker can run its jobs."""
        try:
            return self._judged[lane]
        except KeyError:
            if len(self._judged) >= JUDGED_MAX:
                self._judged.clear()
        request = self._judged[lane] = self._judge(lane)
        return request

    def _judge(self, lane: Lane) -> LaneRequest | None:
        settings = self._settings
        task = self._code.find(lane)
        if task is None or not can_run(lane, queues=settings.queues, tags=settings.tags):
            return None
        rules = governing_rules(lane, task.limits, settings.limits)
        return LaneRequest(lane=lane.text, queue=lane.queue, rules=rules)


def _in_turn(known: list[T], turn: int) -> list[T]:
    if len(known) <= REQUEST_LANES_MAX:
        return known
    start = turn % len(known)
    return (known[start:] + known[:start])[:REQUEST_LANES_MAX]


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
