"""A place in memory of one run's own, whose time can be made to pass."""

from __future__ import annotations

from datetime import datetime, timedelta

from perdure.clock import system_clock
from perdure.model.hint import Hint, HintKind
from perdure.store.memory.store import MemoryStore


class SkippingClock:
    """The time of day, plus all that was skipped."""

    def __init__(self) -> None:
        self._skipped = timedelta(0)

    def __call__(self) -> datetime:
        return system_clock() + self._skipped

    def skip_to(self, moment: datetime) -> None:
        self._skipped += max(timedelta(0), moment - self())


class PrivateStore(MemoryStore):
    def __init__(self) -> None:
        self._skipping = SkippingClock()
        super().__init__("memory://", clock=self._skipping)

    def skip_to(self, moment: datetime) -> None:
        """Let this moment come at once, and tell everybody who sleeps until then."""
        self._skipping.skip_to(moment)
        self._session.state.hub.publish(Hint(kind=HintKind.DUE))
