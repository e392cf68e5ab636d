"""Limits at work: what is in use under a key, and the starts that count against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from perdure.model.ids import JobId
from perdure.model.limit import HOLDERS_MAX, LimitRule, LimitUsage, LimitUse
from perdure.rules.limits import Room, memory_of, room_under
from perdure.store.memory.state import LimitRecord
from perdure.store.memory.stored_job import StoredJob
from perdure.store.memory.transaction import Transaction


def rooms_under(
    transaction: Transaction, namespace: str, rules: Sequence[LimitRule]
) -> dict[str, Room]:
    """How much room each key leaves; where several rules share a key, the least."""
    rooms: dict[str, Room] = {}
    for rule in rules:
        room = room_under(rule, _usage(transaction, namespace, rule), transaction.now)
        if rule.key not in rooms or room.count < rooms[rule.key].count:
            rooms[rule.key] = room
    return rooms


def limit_use(transaction: Transaction, namespace: str, rule: LimitRule) -> LimitUse:
    group = (namespace, rule.key)
    holders = transaction.state.under_limit.after(transaction.now, group)
    jobs = sorted(map(transaction.state.jobs.__getitem__, holders), key=_held_longest)
    return LimitUse(
        usage=_usage(transaction, namespace, rule),
        held_by=tuple(job.id for job in jobs[:HOLDERS_MAX]),
    )


def _held_longest(job: StoredJob) -> tuple[datetime, JobId]:
    assert job.started_at is not None
    return job.started_at, job.id


def record_starts(
    transaction: Transaction,
    namespace: str,
    started: Sequence[StoredJob],
    rules: Sequence[LimitRule],
) -> None:
    """Count jobs that just started under each of their keys, and forget what left the window."""
    for key, count in Counter(key for job in started for key in job.limit_keys).items():
        record = transaction.state.limit(namespace, key)
        record.last_start_at = transaction.now
        record.count_until(transaction.now + memory_of(rules, key))
        windows = [rule.window for rule in rules if rule.key == key and rule.window is not None]
        if windows:
            record.starts.append((transaction.now, count))
            record.forget_starts(transaction.now - max(windows))


def _usage(transaction: Transaction, namespace: str, rule: LimitRule) -> LimitUsage:
    record = transaction.state.limits.get((namespace, rule.key)) or LimitRecord()
    since = transaction.now - (rule.window or timedelta(0))
    in_window = [(at, count) for at, count in record.starts if at > since]
    return LimitUsage(
        live=transaction.state.under_limit.count_after(transaction.now, (namespace, rule.key)),
        starts=sum(count for _, count in in_window),
        oldest_start_at=in_window[0][0] if in_window else None,
        last_start_at=record.last_start_at,
        closed_until=record.closed_until,
    )
