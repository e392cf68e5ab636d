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
        self._fresh: set[str] = set()
        self._turn = 0

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
