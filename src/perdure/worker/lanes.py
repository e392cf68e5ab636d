"""The lanes a worker knows to have work it can run. A hint adds one, a survey corrects them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from perdure.model.lane import Lane
from perdure.rules.limits import governing_rules
from perdure.rules.serving import can_run
from perdure.store.contract import LaneRequest
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
