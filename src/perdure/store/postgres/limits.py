"""Claiming under limits: usage is read, and room given out, while the keys are held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from perdure.clock import Clock
from perdure.model.duration import nearest_duration
from perdure.model.job import Claimed
from perdure.model.limit import HOLDERS_MAX, LimitRule, LimitUsage, LimitUse
from perdure.rules.limits import Room, memory_of, room_under, share_out
from perdure.store.contract import ClaimRequest, LaneRequest
from perdure.store.postgres.connections import Connection, Record
from perdure.store.postgres.rows import by_rank, claimed_job
from perdure.store.postgres.transacting import Transacting


class LimitedClaim:
    """One claim from lanes of which some are governed by rules; one transaction."""

    def __init__(
        self,
        statements: Mapping[str, str],
        request: ClaimRequest,
        lanes: Sequence[LaneRequest],
        clock: Clock | None,
    ) -> None:
        self._statements = statements
        self._request = request
        self._lanes = lanes
        self._clock = clock
        self._rules = tuple(dict.fromkeys(rule for lane in lanes for rule in lane.rules))
        self._keys = sorted({rule.key for rule in self._rules})

    async def run(self, connection: Connection, is_repeated: bool) -> Claimed:
        async with Transacting(connection) as transaction:
            claimed = await self._claim(connection)
            if not claimed.jobs:
                transaction.undo()
        return msgspec.structs.replace(claimed, is_repeated=True) if is_repeated else claimed

    async def _claim(self, connection: Connection) -> Claimed:
        usages, paused, now = await self._usage(connection, await self._lock(connection))
        lanes = [lane for lane in self._lanes if lane.queue not in paused]
        rooms = _rooms(lanes, usages, now)
        left = {key: room.count for key, room in rooms.items()}

        candidates = await self._candidates(connection, lanes, left, now)
        keys_of = {lane.lane: sorted({rule.key for rule in lane.rules}) for lane in lanes}
        lane_of = {row[0]: row[1] for row in candidates}
        chosen = share_out(
            ((id, keys_of[lane]) for id, lane in lane_of.items()), left, self._request.limit
        )

        windows = _longest_windows(lanes)
        rows = await self._start(
            connection, {id: keys_of[lane_of[id]] for id in chosen}, windows, now
        )
        openings = [room.opens_at for room in rooms.values() if not room.count and room.opens_at]
        return Claimed(
            jobs=[claimed_job(row, self._request.namespace) for row in rows],
            now=now,
            opens_at=min(openings, default=None),
        )

    async def _lock(self, connection: Connection) -> dict[str, Record]:
        """The rows of all keys, held until the end; made where they are missing."""
        arguments = (self._request.namespace, self._keys)
        while True:
            rows = await connection.fetch(self._statements["lock_limits"], *arguments)
            if len(rows) == len(self._keys):
                return {row[0]: row for row in rows}
            await connection.fetch(self._statements["add_limits"], *arguments)

    async def _usage(
        self, connection: Connection, limits: Mapping[str, Record]
    ) -> tuple[dict[LimitRule, LimitUsage], Sequence[str], datetime]:
        """What is in use under each rule, which queues are paused, and at which moment."""
        rates = [rule for rule in self._rules if rule.window is not None]
        now, paused, keys, counts, starts, oldest = await connection.fetchrow(
            self._statements["limit_usage"],
            None if self._clock is None else self._clock(),
            self._request.namespace,
            [rule.key for rule in rates],
            [rule.window for rule in rates],
        )
        live = dict(zip(keys, counts, strict=True))
        started = dict(zip(rates, zip(starts, oldest, strict=True), strict=True))
        usages = {}
        for rule in self._rules:
            count, oldest_start_at = started.get(rule, (0, None))
            usages[rule] = LimitUsage(
                live=live.get(rule.key, 0),
                starts=count,
                oldest_start_at=oldest_start_at,
                last_start_at=limits[rule.key][2],
                closed_until=limits[rule.key][1],
            )
        return usages, paused, now

    async def _candidates(
        self,
        connection: Connection,
        lanes: Sequence[LaneRequest],
        left: Mapping[str, int],
        now: datetime,
    ) -> list[Record]:
        """What could start, lowest rank first; from no lane more than its keys have room for."""
        wanted = {}
        for lane in lanes:
            room = min([self._request.limit, *(left[rule.key] for rule in lane.rules)])
            if room > 0:
                wanted[lane.lane] = room
        if not wanted:
            return []
        rows: list[Record] = await connection.fetch(
            self._statements["limit_candidates"],
            now,
            self._request.namespace,
            self._request.worker,
            list(wanted),
            list(wanted.values()),
        )
        return rows

    async def _start(
        self,
        connection: Connection,
        chosen: Mapping[str, list[str]],
        windows: Mapping[str, timedelta],
        now: datetime,
    ) -> list[Record]:
        if not chosen:
            return []
        counts = Counter(key for keys in chosen.values() for key in keys)
        rows: list[Record] = await connection.fetch(
            self._statements["start_under_limits"],
            now,
            self._request.namespace,
            self._request.worker,
            nearest_duration(self._request.lease),
            list(chosen),
            [msgspec.json.encode(keys).decode() if keys else None for keys in chosen.values()],
            list(counts),
            list(counts.values()),
            [windows.get(key) for key in counts],
            [memory_of(self._rules, key) for key in counts],
        )
        return sorted(rows, key=by_rank)


def limit_use(row: Record) -> LimitUse:
    ids = row[0]
    usage = LimitUsage(
        live=len(ids),
        starts=row[1],
        oldest_start_at=row[2],
        last_start_at=row[3],
        closed_until=row[4],
    )
    return LimitUse(usage=usage, held_by=tuple(ids[:HOLDERS_MAX]))


def _rooms(
    lanes: Sequence[LaneRequest], usages: Mapping[LimitRule, LimitUsage], now: datetime
) -> dict[str, Room]:
    """How much room each key leaves; where several rules share a key, the least."""
    rooms: dict[str, Room] = {}
    for rule in dict.fromkeys(rule for lane in lanes for rule in lane.rules):
        room = room_under(rule, usages[rule], now)
        if rule.key not in rooms or room.count < rooms[rule.key].count:
            rooms[rule.key] = room
    return rooms


def _longest_windows(lanes: Sequence[LaneRequest]) -> dict[str, timedelta]:
    """For how long starts under each key have to be remembered."""
    windows: dict[str, timedelta] = {}
    for rule in (rule for lane in lanes for rule in lane.rules):
        if rule.window is not None:
            windows[rule.key] = max(rule.window, windows.get(rule.key, rule.window))
    return windows
