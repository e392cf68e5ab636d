"""What any worker may do beside its jobs, several at once too, when a survey shows it to be due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from perdure.model.worker import Survey


class Duty(Protocol):
    @property
    def pause_seconds(self) -> float:
        """How long there is no use in looking for more that is due."""

    def due_at(self, survey: Survey) -> datetime | None:
        """When there is something to do, as the survey tells it."""

    def tend(self, then: Callable[[], None]) -> None:
        """See to what is due, and call ``then``; if that is not under way already."""

    async def stop(self) -> None: ...
