"""What operators ask a store now and then: how it is, which flows it has, what has ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from perdure.model.ids import RunId
from perdure.model.job import Status
from perdure.model.run import RunStatus
from perdure.model.value import Value

STRAYS_MAX = 100


class OrphanedRun(Value):
    """A run that goes nowhere: under way, with no job to do and nothing to wait for."""

    run: RunId
    namespace: str


class StorageReport(Value):
    """How the place itself is that a store keeps its contents in."""

    schema_version: int | None = None
    """None: it has no tables."""
    damages: tuple[str, ...] = ()
    missing_indexes: Mapping[str, str] = {}
    """By name, the statement that would make it."""
    invalid_indexes: Mapping[str, str] = {}
    """They are there, and not used: their making was interrupted. The same for making them anew."""
    log_bytes: int | None = None
    """What is written and not yet moved into the database's file; None: it has no such log."""
    strays: tuple[OrphanedRun, ...] = ()


class FlowRuns(Value):
    """How many runs of one version of a flow there are."""

    namespace: str
    flow: str
    version: str
    live: int
    ended: int
    last_submitted_at: datetime | None
    """None: no run of it is left."""


class EndedCounts(Value):
    """How many jobs and runs have ended, by how."""

    jobs: Mapping[Status, int]
    runs: Mapping[RunStatus, int]
    """Without child runs, which go with their parents."""
