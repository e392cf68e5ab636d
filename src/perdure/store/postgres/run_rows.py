"""Rows of runs, waits and events into values. Rows are read by position: it is the cheapest way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.model.duration import nearest_duration
from perdure.model.event import Parent, StoredEvent
from perdure.model.moment import nearest_storable
from perdure.model.run import (
    LoadedRun,
    NewRun,
    NewWait,
    Run,
    RunStatus,
    Snapshot,
    Wait,
    WaitKind,
)
from perdure.store.postgres.connections import Record

RUN_STATUS_OF: dict[str, RunStatus] = {status.value: status for status in RunStatus}
_KIND_OF: dict[str, WaitKind] = {kind.value: kind for kind in WaitKind}
_SNAPSHOT, _LOG = 13, 15


def run(row: Record, start: int = 0) -> Run:
    """The columns of a run, the first of them at ``start``."""
    (
        id,
        namespace,
        flow,
        version,
        status,
        number,
        parent_run,
        parent_key,
        created_at,
        updated_at,
        finished_at,
        summary,
    ) = row[start : start + 12]
    return Run(
        id=id,
        namespace=namespace,
        flow=flow,
        version=version,
        status=RUN_STATUS_OF[status],
        number=number,
        parent=None if parent_run is None else Parent(run=parent_run, key=parent_key),
        created_at=created_at,
        updated_at=updated_at,
        finished_at=finished_at,
        summary=summary,
    )


def loaded_run(row: Record) -> LoadedRun:
    """A row of ``load_runs``: its position, the run, its snapshot, and its events as lists."""
    number, data = row[_SNAPSHOT : _SNAPSHOT + 2]
    log = (column or () for column in row[_LOG : _LOG + 4])
    return LoadedRun(
        run=run(row, 1),
        snapshot=None if number is None else Snapshot(number=number, data=data),
        events=[
            StoredEvent(number=number, at=at, data=data, value=value)
            for number, at, data, value in zip(*log, strict=True)
        ],
    )


def wait(row: Record) -> Wait:
    return Wait(
        run=row[0],
        namespace=row[1],
        key=row[2],
        kind=_KIND_OF[row[3]],
        name=row[4],
        opened_at=row[5],
        due_at=row[6],
        deciders=tuple(row[7]),
        detail=row[8],
    )


def child_columns(runs: Sequence[NewRun]) -> tuple[list[Any], ...]:
    """The arguments of ``add_runs`` after the moment, one list for each column."""
    return (
        [run.namespace for run in runs],
        [run.id for run in runs],
        [run.flow for run in runs],
        [run.version for run in runs],
        [run.status for run in runs],
        [len(run.events) for run in runs],
        [None if run.parent is None else run.parent.run for run in runs],
        [None if run.parent is None else run.parent.key for run in runs],
        [run.summary for run in runs],
    )


def new_wait_columns(waits: Sequence[NewWait]) -> tuple[list[Any], ...]:
    """The arguments of ``open_waits`` after those that say where, one list for each column."""
    return (
        [wait.key for wait in waits],
        [wait.kind for wait in waits],
        [wait.name for wait in waits],
        [None if wait.delay is None else nearest_duration(wait.delay) for wait in waits],
        [None if wait.due_at is None else nearest_storable(wait.due_at) for wait in waits],
        [_as_array(wait.deciders) for wait in waits],
        [wait.detail for wait in waits],
    )


def _as_array(names: Sequence[str]) -> str:
    """How PostgreSQL writes an array of text: unnested, lists of lists would not stay apart."""
    quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
    return "{" + ",".join(f'"{name}"' for name in quoted) + "}"
