"""From the rows of runs to values."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from perdure.model.event import Parent, StoredEvent
from perdure.model.ids import RunId
from perdure.model.run import ENDED, Run, RunStatus, Wait, WaitKind
from perdure.store.sqlite.rows import Row, moment, moment_or_none

LAST_NUMBER = """\
coalesce((
           SELECT max(event.number)
           FROM {prefix}events AS event
           WHERE event.run_serial = run.serial
       ), 0)"""

RUN_ROW = """\
run.id, run.namespace, run.flow, run.version, run.status, run.parent_run, run.parent_key,
       run.created_at, run.finished_at, run.summary, run.updated_at,
       {last_number},
       (
           SELECT event.at
           FROM {prefix}events AS event
           WHERE event.run_serial = run.serial
           ORDER BY event.number DESC
           LIMIT 1
       )"""

RUN_COLUMNS = 13

WAIT_ROW = """\
wait.run_id, wait.namespace, wait.key, wait.kind, wait.name, wait.opened_at, wait.due_at,
       wait.deciders, wait.detail"""

NODE_JOB_ROW = """\
job.rowid, job.epoch, job.status, job.input IS NULL, job.limit_keys IS NOT NULL,
       job.failures + job.postpones + job.deaths"""

RUN_STATUSES = {status.value: status for status in RunStatus}
"""The same as ``RunStatus(text)``, at a fraction of its cost."""
ENDED_TEXTS = frozenset(status.value for status in ENDED)

_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


class NodeJobRow(NamedTuple):
    """What a step has to know of the job that it settles."""

    number: int
    epoch: int
    status: str
    is_large: int
    """Its input lives beside it."""
    is_limited: int
    troubles: int
    """More than 0 if it has a history of failures."""


class RunRow(NamedTuple):
    """What a step has to know of its run; ``number`` is that of its last event."""

    serial: int
    number: int
    token: int | None
    status: str
    flow: str
    parent_run: RunId | None
    parent_key: str | None


RUN_ROW_COLUMNS = len(RunRow._fields)


def run_from(row: Row) -> Run:
    id, namespace, flow, version, status, parent_run, parent_key, *rest = row
    created_at, finished_at, summary, updated_at, number, last_event_at = rest
    return Run(
        id=id,
        namespace=namespace,
        flow=flow,
        version=version,
        status=RUN_STATUSES[status],
        number=number,
        parent=None if parent_run is None else Parent(run=parent_run, key=parent_key),
        created_at=moment(created_at),
        updated_at=moment(max(updated_at, last_event_at or 0)),
        finished_at=moment_or_none(finished_at),
        summary=summary,
    )


def event_from(row: Row) -> StoredEvent:
    number, at, data, value = row
    return StoredEvent(number=number, at=moment(at), data=data, value=value)


def names_in(data: str) -> tuple[str, ...]:
    """None where they cannot be read: who decides is in the log, and other waits go on."""
    try:
        return _decode_names(data)
    except (msgspec.DecodeError, RecursionError):
        return ()


def wait_from(row: Row) -> Wait:
    run, namespace, key, kind, name, opened_at, due_at, deciders, detail = row
    return Wait(
        run=run,
        namespace=namespace,
        key=key,
        kind=WaitKind(kind),
        name=name,
        opened_at=moment(opened_at),
        due_at=moment_or_none(due_at),
        deciders=names_in(deciders),
        detail=detail,
    )
