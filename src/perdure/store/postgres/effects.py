"""What commits do beyond going on: waits, children, and what is taken, parked or moved elsewhere.

Carried out in the transaction of their commits, for those that were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.model.job import HELD
from perdure.model.lane import Lane
from perdure.model.run import RunCommit
from perdure.store.postgres.commit_batch import CommitBatch
from perdure.store.postgres.connections import Connection, Record
from perdure.store.postgres.hints import Moves
from perdure.store.postgres.starting import Starting


def has_effects(commit: RunCommit) -> bool:
    """Whether a commit needs more than the one statement."""
    return bool(
        commit.waits
        or commit.closes
        or commit.children
        or commit.snapshot is not None
        or takes_jobs(commit)
    )


def takes_jobs(commit: RunCommit) -> bool:
    """Whether it touches jobs that it does not settle."""
    return bool(
        commit.clears or commit.drops or commit.holds is not None or commit.version is not None
    )


class Effects:
    def __init__(self, connection: Connection, statements: Mapping[str, str], moves: Moves) -> None:
        self._connection = connection
        self._statements = statements
        self._moves = moves

    async def lock(self, batch: CommitBatch) -> None:
        """Lock everything beforehand: the statement itself would lock only what is settled."""
        await self._fetch("lock_runs", *_places(batch.commits))
        taking = [commit for commit in batch.commits if takes_jobs(commit)]
        await self._fetch("lock_jobs", *_places(taking), batch.settled)

    async def write(self, commits: Sequence[RunCommit], now: datetime) -> None:
        """Carry out what these commits ask for; ``now`` is the moment of the commit."""
        own = [settlement.claim.id for each in commits for settlement in each.settlements]
        own += [job.id for commit in commits for job in commit.jobs]
        await self._give_up(commits, own, now)
        await self._hold(commits, own, now)
        await self._change_versions(commits)
        await self._keep_snapshots(commits)
        starting = Starting(self._connection, self._statements, self._moves, now)
        await starting.open_waits(
            [(commit.namespace, commit.run, wait) for commit in commits for wait in commit.waits]
        )
        await starting.add_runs([child for commit in commits for child in commit.children])

    async def _give_up(
        self, commits: Sequence[RunCommit], own: Sequence[str], now: datetime
    ) -> None:
        closed = [(commit, key) for commit in commits for key in commit.closes]
        dropped = [(commit, key) for commit in commits if not commit.clears for key in commit.drops]
        cleared = [commit for commit in commits if commit.clears]
        if dropped:
            columns = _key_columns(dropped)
            self._moves.taken(await self._fetch("drop_jobs", *columns, own))
        if cleared:
            self._moves.taken(await self._fetch("clear_jobs", *_places(cleared), own))
        if closed:
            await self._fetch("close_waits", *_key_columns(closed))
        ended = [*dropped, *((commit, None) for commit in cleared)]
        if ended and await self._fetch("drop_waits", now, *_key_columns(ended)):
            self._moves.due()

    async def _hold(self, commits: Sequence[RunCommit], own: Sequence[str], now: datetime) -> None:
        held = [commit for commit in commits if commit.holds is True]
        released = [commit for commit in commits if commit.holds is False]
        if held:
            self._moves.taken(await self._fetch("hold_jobs", *_places(held), own))
            await self._fetch("hold_waits", *_places(held), True)
        if released:
            for status, lane in await self._fetch("release_jobs", now, *_places(released)):
                self._moves.queued(status, lane)
            if any(row[0] for row in await self._fetch("hold_waits", *_places(released), False)):
                self._moves.due()

    async def _change_versions(self, commits: Sequence[RunCommit]) -> None:
        moved = [commit for commit in commits if commit.version is not None]
        if not moved:
            return
        versions = [commit.version for commit in moved]
        flows = {
            (namespace, id): flow
            for namespace, id, flow in await self._fetch(
                "change_versions", *_places(moved), versions
            )
        }
        renamed = []
        for position, before in await self._fetch("lanes_of_runs", *_places(moved)):
            commit = moved[position - 1]
            flow = flows[commit.namespace, commit.run]
            after = replace(Lane.parse(before), flow=f"{flow}@{commit.version}")
            renamed.append((commit.namespace, commit.run, before, after.text))
        columns = _turned(renamed, 4)
        for status, lane in await self._fetch("change_lanes", *columns):
            if status not in HELD:
                self._moves.queued(status, lane)

    async def _keep_snapshots(self, commits: Sequence[RunCommit]) -> None:
        kept = [
            (commit.namespace, commit.run, commit.snapshot.number, commit.snapshot.data)
            for commit in commits
            if commit.snapshot is not None
        ]
        if kept:
            await self._fetch("put_snapshots", *_turned(kept, 4))

    async def _fetch(self, statement: str, *arguments: Any) -> list[Record]:
        rows: list[Record] = await self._connection.fetch(self._statements[statement], *arguments)
        return rows


def _places(commits: Sequence[RunCommit]) -> tuple[list[str], list[str]]:
    """Namespaces and ids of runs, in the order of the commits, which is that of locking."""
    return [commit.namespace for commit in commits], [commit.run for commit in commits]


def _key_columns(keys: Sequence[tuple[RunCommit, str | None]]) -> list[list[Any]]:
    """In the order of keys, in which all lock the waits of a run. No key: all of them."""
    places = [(commit.namespace, commit.run, key) for commit, key in keys]
    return _turned(sorted(places, key=lambda place: (place[1], place[0], place[2] or "")), 3)


def _turned(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Rows into columns."""
    return [[row[number] for row in rows] for number in range(width)]
