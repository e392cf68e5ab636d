"""How a store and the work in it are, and what would put right what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from perdure.diagnostics import Finding, Severity
from perdure.model.insight import StorageReport
from perdure.model.job import QueueDepth, QueueInfo
from perdure.model.schedule import UnreadableSchedule
from perdure.model.value import Value
from perdure.model.worker import PollResult, WorkerState


class Health(Value):
    """What was checked: ``about`` names it (``store``, ``workers``, ``leases``, ...).

    An error means that work stands still or slows down until somebody acts.
    """

    url: str
    findings: tuple[Finding, ...]

    @property
    def is_well(self) -> bool:
        """Whether there is no error; warnings are no illness."""
        return all(each.severity is not Severity.ERROR for each in self.findings)


class Vitals(Value):
    """What was measured and read, for a judgement."""

    now: datetime
    """By the store's clock."""
    latency: timedelta
    """How long the store took to answer."""
    skew: timedelta
    """How far this machine's clock is ahead of the store's."""
    examination: StorageReport = StorageReport()
    workers: tuple[WorkerState, ...] = ()
    surveys: Mapping[str, PollResult] = {}
    """By namespace, with all its lanes."""
    depth: tuple[QueueDepth, ...] = ()
    paused_queues: tuple[QueueInfo, ...] = ()
    unreadable_schedules: tuple[UnreadableSchedule, ...] = ()
