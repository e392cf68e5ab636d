"""Limits at work: what is in use under a key, and the starts that count against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from perdure.model.ids import JobId
from perdure.model.limit import HOLDERS_MAX, LimitRule, LimitUsage, LimitUse
from perdure.rules.limits import Room, memory_of, room_under
from perdure.store.sqlite.rows import as_json, micros_in, moment, moment_or_none
from perdure.store.sqlite.transaction import Transaction


def rooms_under(
    transaction: Transaction, namespace: str, rules: Sequence[LimitRule]
) -> dict[str, Room]:
    """How much room each key leaves; where several rules share a key, the least."""
    now = moment(transaction.now)
    rooms: dict[str, Room] = {}
    for rule, usage in zip(rules, _usages(transaction, namespace, rules), strict=True):
        room = room_under(rule, usage, now)
        if rule.key not in rooms or room.count < rooms[rule.key].count:
            rooms[rule.key] = room
    return rooms


def limit_uses(
    transaction: Transaction, namespace: str, rules: Sequence[LimitRule]
) -> list[LimitUse]:
    holders: dict[str, list[JobId]] = {}
    for key, id in transaction.rows("limit_holders", namespace=namespace, now=transaction.now):
        holders.setdefault(key, []).append(JobId(id))
    usages = _usages(transaction, namespace, rules)
    return [
        LimitUse(usage=usage, held_by=tuple(holders.get(rule.key, ())[:HOLDERS_MAX]))
        for rule, usage in zip(rules, usages, strict=True)
    ]


def _usages(
    transaction: Transaction, namespace: str, rules: Sequence[LimitRule]
) -> list[LimitUsage]:
    live: dict[str, int] = dict(
        transaction.rows("live_under_limits", namespace=namespace, now=transaction.now)
    )
    keys = list({rule.key for rule in rules})
    found = transaction.rows("limits", namespace=namespace, keys=as_json(keys))
    marks = {key: (last_start_at, closed_until) for key, last_start_at, closed_until in found}
    usages = []
    for rule in rules:
        starts, oldest = _starts_in_window(transaction, namespace, rule)
        last_start_at, closed_until = marks.get(rule.key, (None, None))
        usages.append(
            LimitUsage(
                live=live.get(rule.key, 0),
                starts=starts,
                oldest_start_at=moment_or_none(oldest),
                last_start_at=moment_or_none(last_start_at),
                closed_until=moment_or_none(closed_until),
            )
        )
    return usages


def record_starts(
    transaction: Transaction,
    namespace: str,
    started: Sequence[tuple[str, ...]],
    rules: Sequence[LimitRule],
) -> None:
    """Count jobs that just started, given the keys of each, and forget what left the window."""
    now = transaction.now
    counts = Counter(key for keys in started for key in keys)
    transaction.write_rows(
        "record_starts",
        [(namespace, key, now, now + micros_in(memory_of(rules, key))) for key in counts],
    )
    windows: dict[str, timedelta] = {}
    for rule in rules:
        if rule.key in counts and rule.window is not None:
            windows[rule.key] = max(rule.window, windows.get(rule.key, rule.window))
    transaction.write_rows("add_starts", [(namespace, key, now, counts[key]) for key in windows])
    for key, window in windows.items():
        transaction.write(
            "forget_starts", namespace=namespace, key=key, until=now - micros_in(window)
        )


def _starts_in_window(
    transaction: Transaction, namespace: str, rule: LimitRule
) -> tuple[int, int | None]:
    if rule.window is None:
        return 0, None
    since = transaction.now - micros_in(rule.window)
    [(starts, oldest)] = transaction.rows(
        "starts_since", namespace=namespace, key=rule.key, since=since
    )
    return starts, oldest
