"""How waiting jobs become held ones: the order of the queue, and the limits on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.model.job import Claimed
from perdure.model.limit import LimitRule
from perdure.rules.limits import share_out
from perdure.store.contract import ClaimRequest
from perdure.store.sqlite.limits import record_starts, rooms_under
from perdure.store.sqlite.rows import Row, as_json, claimed_from, micros_in, moment
from perdure.store.sqlite.transaction import Transaction

LaneRules = Mapping[str, tuple[LimitRule, ...]]


def claim_jobs(transaction: Transaction, request: ClaimRequest) -> Claimed:
    """Lease the most urgent jobs of the lanes, as many as the limits leave room for."""
    paused = {name for (name,) in transaction.rows("paused_among", namespace=request.namespace)}
    lanes = {lane.lane: lane.rules for lane in request.lanes if lane.queue not in paused}
    if any(lanes.values()):
        return _claim_limited(transaction, request, lanes)
    rows = transaction.rows(
        "claim_jobs",
        namespace=request.namespace,
        lanes=as_json(list(lanes)),
        worker=request.worker,
        lease_until=transaction.now + micros_in(request.lease),
        now=transaction.now,
        limit=request.limit,
    )
    return _claimed(transaction, rows)


def _claim_limited(transaction: Transaction, request: ClaimRequest, lanes: LaneRules) -> Claimed:
    rules = tuple(dict.fromkeys(rule for of_lane in lanes.values() for rule in of_lane))
    rooms = rooms_under(transaction, request.namespace, rules)
    open_lanes = [
        lane for lane, of_lane in lanes.items() if all(rooms[rule.key].count for rule in of_lane)
    ]
    keys = {lane: tuple(dict.fromkeys(rule.key for rule in lanes[lane])) for lane in open_lanes}
    front = transaction.rows(
        "front_of_lanes",
        namespace=request.namespace,
        lanes=as_json(open_lanes),
        worker=request.worker,
        now=transaction.now,
        limit=request.limit,
    )

    lane_of = {str(number): lane for number, lane in front}
    candidates = ((number, keys[lane]) for number, lane in lane_of.items())
    left = {key: room.count for key, room in rooms.items()}
    chosen = share_out(candidates, left, request.limit)

    rows = _start(transaction, request, [(number, keys[lane_of[number]]) for number in chosen])
    started = [keys[lane_of[number]] for number in chosen]
    record_starts(transaction, request.namespace, started, rules)
    openings = [room.opens_at for room in rooms.values() if not room.count and room.opens_at]
    claimed = _claimed(transaction, rows)
    return Claimed(jobs=claimed.jobs, now=claimed.now, opens_at=min(openings, default=None))


def _start(
    transaction: Transaction, request: ClaimRequest, chosen: Sequence[tuple[str, tuple[str, ...]]]
) -> list[Row]:
    until = transaction.now + micros_in(request.lease)
    return transaction.returned_rows(
        "claim_picked",
        [
            (int(number), request.worker, until, transaction.now, as_json(keys) if keys else None)
            for number, keys in chosen
        ],
    )


def _claimed(transaction: Transaction, rows: Sequence[Row]) -> Claimed:
    rows = sorted(rows, key=_rank_then_id)
    without_input = [row[1] for row in rows if row[5] is None]
    large_inputs: dict[str, bytes] = {}
    if without_input:
        found = transaction.rows("large_inputs", ids=as_json(without_input))
        large_inputs = dict(found)
    jobs = [claimed_from(row, large_inputs) for row in rows]
    return Claimed(jobs=jobs, now=moment(transaction.now))


def _rank_then_id(row: Row) -> tuple[float, str]:
    return row[0], row[1]
