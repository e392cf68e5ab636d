"""The places of flows that limit how many of their runs are in progress (``max_running``).

A transaction that changes who holds or waits for places of a key locks it first, before runs, so
that it neither misses a run that is being queued nor one that is ending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from perdure.model.ids import RunId
from perdure.model.run import RunCommit
from perdure.store.admission import starting
from perdure.store.hints import WriteHints
from perdure.store.postgres.connection import Connection

Places = Collection[tuple[str, str]]
"""Namespaces and keys."""


def places_of(commits: Iterable[RunCommit]) -> Places:
    return {(commit.namespace, commit.place.key) for commit in commits if commit.place is not None}


async def lock_places(
    connection: Connection, statements: Mapping[str, str], places: Places
) -> None:
    if places:
        await connection.fetch(statements["lock_places"], *_columns(places))


async def without_place(
    connection: Connection,
    statements: Mapping[str, str],
    commits: Sequence[RunCommit],
    now: datetime | None,
) -> set[tuple[str, RunId]]:
    """Queue the runs of these commits that have to wait for a place; return them.

    Their places and rows are locked.
    """
    queued = [
        (commit.namespace, commit.run, commit.place.aging.total_seconds())
        for commit in commits
        if commit.is_started and commit.place is not None
    ]
    if not queued:
        return set()
    columns = [list(column) for column in zip(*queued, strict=True)]
    found = await connection.fetch(statements["queue_for_place"], now, *columns)
    chosen = set(await _next_runs(connection, statements, places_of(commits)))
    full = sorted({(namespace, run) for namespace, run in found} - chosen)
    if full:
        await connection.fetch(statements["wait_for_place"], *_columns(full))
    return set(full)


async def start_next(
    connection: Connection,
    statements: Mapping[str, str],
    places: Places,
    now: datetime | None,
    hints: WriteHints,
) -> None:
    """Start the next runs that have a place; their places are locked."""
    runs = sorted(await _next_runs(connection, statements, places)) if places else []
    if runs and await connection.fetch(statements["place_found"], now, *_columns(runs)):
        hints.due()


async def _next_runs(
    connection: Connection, statements: Mapping[str, str], places: Places
) -> list[tuple[str, RunId]]:
    rows = await connection.fetch(statements["next_runs"], *_columns(places))
    found: list[tuple[str, RunId]] = []
    for (namespace, _), group in groupby(rows, itemgetter(0, 1)):
        queue = list(group)
        chosen = starting(queue[0][2], ((row[3], row[4]) for row in queue))
        found += [(namespace, run) for run in chosen]
    return found


def _columns(pairs: Collection[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [first for first, _ in pairs], [second for _, second in pairs]
