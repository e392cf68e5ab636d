"""What a client answers about runs: plain values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import asdict

from perdure.model.failure import Failure
from perdure.model.ids import RunId
from perdure.model.run import ENDED, Run, RunStatus, RunSummary
from perdure.model.value import Value


class RunRecord(Run):
    """A run as the record shows it, with why it is as it is. ``number`` is its last event's."""

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED

    @property
    def reason(self) -> str | None:
        """Why it was paused or cancelled, as its operator said."""
        return self._why.reason

    @property
    def by(self) -> str | None:
        """Who paused or cancelled it."""
        return self._why.by

    @property
    def failure(self) -> Failure | None:
        """What it failed with."""
        return self._why.failure

    @property
    def failed_node(self) -> str | None:
        return self._why.node or None

    @property
    def _why(self) -> RunSummary:
        if not self.summary:
            return RunSummary()
        try:
            return msgspec.json.decode(self.summary, type=RunSummary)
        except (msgspec.DecodeError, RecursionError):  # the log has it too
            return RunSummary()


def run_record(run: Run) -> RunRecord:
    return RunRecord(**asdict(run))


class RunMoved(Value):
    """What an act did to a run; ``before == after`` when its status stayed."""

    id: RunId
    before: RunStatus
    after: RunStatus


class EventRecord(Value):
    """One thing that happened in a run, and the run's status after it."""

    number: int
    """From 1, without gaps."""
    at: datetime
    kind: str
    """What happened, such as ``node_completed`` or ``run_paused``."""
    status: RunStatus
    """Of the run, once this had happened."""
    details: dict[str, Any]
    """What else the event says of itself, by name."""
    node: str | None = None
    key: str | None = None
    """The node, and of a loop which iteration (``poll#2``), of a map which item (``pack[7]``)."""
    value: Any = None
    """The input, output or payload that it is about, as plain values."""
    failure: Failure | None = None

    @property
    def is_final(self) -> bool:
        """Whether the run was ended by it."""
        return self.status in ENDED


class ChildRun(Value):
    """A run that another one started, and what became of it."""

    key: str
    """The part of the parent that started it."""
    id: RunId
    status: RunStatus | None
    """None if it is not kept any more."""
    failure: Failure | None = None


def child_run(key: str, id: RunId, run: Run | None) -> ChildRun:
    if run is None:
        return ChildRun(key=key, id=id, status=None)
    return ChildRun(key=key, id=id, status=run.status, failure=run_record(run).failure)
