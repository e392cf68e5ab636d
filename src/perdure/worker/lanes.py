"""The lanes a worker knows to have work it can run. A hint adds one, a survey corrects them all."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.client.registry import TaskRegistry
from perdure.model.lane import Lane
from perdure.rules.lanes import can_run
from perdure.rules.limits import governing_rules
from perdure.store.contract import LaneRequest
from perdure.worker.settings import WorkerSettings

REQUEST_LANES_MAX = 200
"""Lanes that one claim asks for; with more of them, claims take turns through all."""


class KnownLanes:
    """Texts of lanes seen, and the claim requests for those this worker can run."""

    def __init__(self, tasks: TaskRegistry, settings: WorkerSettings) -> None:
        self._tasks = tasks
        self._settings = settings
        self._requests: dict[str, LaneRequest] = {}
        self._hinted: set[str] = set()
        self._turn = 0

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def are_limited(self) -> bool:
        return any(request.rules for request in self._requests.values())

    def hint(self, texts: Iterable[str]) -> bool:
        """Note lanes that just got work; True if this worker can run any of them."""
        is_ours = False
        for text in texts:
            self._hinted.add(text)
            is_ours |= self._add(text)
        return is_ours

    def begin_survey(self) -> None:
        self._hinted.clear()

    def end_survey(self, texts: Iterable[str]) -> None:
        """These lanes have work, and besides them only what was hinted since the survey began."""
        wanted = set(texts) | self._hinted
        for text in [text for text in self._requests if text not in wanted]:
            del self._requests[text]
        for text in wanted:
            self._add(text)

    def requests(self) -> list[LaneRequest]:
        """What to claim from now."""
        known = list(self._requests.values())
        if len(known) <= REQUEST_LANES_MAX:
            return known
        start = self._turn % len(known)
        self._turn += REQUEST_LANES_MAX
        return (known[start:] + known[:start])[:REQUEST_LANES_MAX]

    def _add(self, text: str) -> bool:
        if text in self._requests:
            return True
        lane = Lane.parse(text)
        settings = self._settings
        if not can_run(lane, queues=settings.queues, tasks=self._tasks, tags=settings.tags):
            return False
        rules = governing_rules(lane, self._tasks[lane.task].limits, settings.limits)
        self._requests[text] = LaneRequest(lane=text, queue=lane.queue, rules=rules)
        return True
