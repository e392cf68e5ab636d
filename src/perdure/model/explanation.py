"""Explanations: why a run or a job is where it is, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from perdure.diagnostics import PYTHON, Finding, Renderer, message
from perdure.model.ids import JobId, RunId
from perdure.model.job import FailedAttempt, Job, QueueInfo, Status
from perdure.model.limit import LimitRule, LimitUse
from perdure.model.run import RunStatus, Wait
from perdure.model.value import Value
from perdure.model.worker import WorkerState


class Explanation(Value):
    """Why a run, a job, or a job of a run is where it is."""

    status: RunStatus | Status
    """Of the job, if it is about one."""
    headline: tuple[Finding, ...]
    """The finding that matters most, or how many there are of each type."""
    findings: tuple[Finding, ...] = ()
    """What is known of each part; ``about`` is the node's key, empty for the run as a whole."""
    run: RunId | None = None
    job: JobId | None = None

    @property
    def summary(self) -> str:
        """The headline as one sentence."""
        return self.summarize()

    def summarize(self, renderer: Renderer = PYTHON) -> str:
        text = ", ".join(message(each, renderer) for each in self.headline)
        return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


class Surroundings(Value):
    """What is around a run or a job: everything that may keep it from going on."""

    jobs: tuple[Job, ...] = ()
    waits: tuple[Wait, ...] = ()
    workers: tuple[WorkerState, ...] = ()
    """Of the run's namespace, dead ones too."""
    paused_queues: tuple[QueueInfo, ...] = ()
    children: Mapping[RunId, RunStatus] = {}
    """Of the child runs that it waits for."""
    details: Mapping[str, Any] = {}
    """What is kept with the waits, by their keys, as far as it can be read."""
    failures: Mapping[JobId, FailedAttempt] = {}
    """How jobs that wait for another attempt failed last, and those that ended."""
    paused_at: datetime | None = None
    """Since when the run is paused, if it is and its log still tells."""
    limit_uses: Mapping[LimitRule, LimitUse] = {}
    """What is in use under the limits that govern waiting jobs."""
    holders: Mapping[JobId, Job] = {}
    """Jobs that hold what those limits allow."""
