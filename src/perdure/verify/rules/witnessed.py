"""What the witness log says by itself: attempts (I9), limits (I11), idempotency keys (I2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import groupby

from perdure.model.limit import LimitRule
from perdure.verify.finding import Finding, Judged
from perdure.verify.settings import CheckSettings
from perdure.verify.testimony import Testimony, WitnessedExecution


def readable(testimony: Testimony, settings: CheckSettings) -> Iterator[Finding]:
    """Only the last line may have been cut short, by the end of its writer."""
    for number in testimony.unreadable:
        if number != testimony.last_line:
            text = f"line {number} of the witness log cannot be read"
            yield Finding(invariant="log", rule="readable", text=text)


def attempts_follow(testimony: Testimony, settings: CheckSettings) -> Iterator[Finding]:
    """A claim counts one attempt at most, and one that was given back counts none.

    Each claim raises the epoch. So an attempt's number is its epoch at most, less what was given
    back before it; and from one execution to the next it grows by no more than the epoch.
    """
    for job, group in groupby(testimony.all_executions(), key=lambda each: each.job):
        given_back = testimony.given_back(job)
        before: WitnessedExecution | None = None
        for each in group:
            # A job goes on to other parts, which count anew: what came later is none of this one.
            lost = sum(at < each.began_at and attempt < each.attempt for at, attempt in given_back)
            if not 1 <= each.attempt <= each.epoch - lost:
                text = (
                    f"attempt {each.attempt} under epoch {each.epoch}, with {lost} of the attempts "
                    "before it given back"
                )
                yield _finding("I9", "attempts_follow", text, each)
            if before is not None and (before.run, before.key) == (each.run, each.key):
                yield from _compared(before, each)
            before = each


def _compared(before: WitnessedExecution, after: WitnessedExecution) -> Iterator[Finding]:
    claims = after.epoch - before.epoch
    if claims and after.attempt > before.attempt + claims:
        text = (
            f"attempt {before.attempt} under epoch {before.epoch}, then attempt {after.attempt} "
            f"under epoch {after.epoch}: so many were not claimed in between"
        )
        yield _finding("I9", "attempts_follow", text, after)


def keys_are_stable(testimony: Testimony, settings: CheckSettings) -> Iterator[Finding]:
    """All executions of one part have one idempotency key, and no other part has it."""
    for namespace, run, key, count in testimony.split_keys():
        yield Finding(
            invariant="I2",
            rule="keys_are_stable",
            text=f"its executions were given {count} different idempotency keys",
            namespace=namespace,
            run=run,
            key=key,
        )
    for namespace, idempotency_key, count in testimony.shared_keys():
        text = f"idempotency key {idempotency_key!r} was given to {count} different parts or jobs"
        yield Finding(invariant="I2", rule="keys_are_stable", text=text, namespace=namespace)


def judged(testimony: Testimony, settings: CheckSettings, key: str) -> Judged:
    """How much a limit was judged on, so that one that was not cannot pass for one that held."""
    ran = testimony.running(key, only_committed=not settings.leases_hold)
    starts = testimony.starts(key) if settings.start_slack is None else testimony.beginnings(key)
    return Judged(
        executions=testimony.held_count(key),
        at_once=sum(step > 0 for _, step, _ in ran),
        starts=sum(1 for _ in starts),
    )


def limits_hold(testimony: Testimony, settings: CheckSettings) -> Iterator[Finding]:
    for rule in settings.limits:
        yield from _at_once(testimony, settings, rule)
        yield from _in_windows(testimony, settings, rule)


def _at_once(testimony: Testimony, settings: CheckSettings, rule: LimitRule) -> Iterator[Finding]:
    """Of executions that surely held their claims to their ends: those whose output counted."""
    if rule.live_max is None:
        return
    inside: set[str] = set()
    is_over = False
    for at, step, nonce in testimony.running(rule.key, only_committed=not settings.leases_hold):
        if step < 0:
            inside.discard(nonce)
            continue
        inside.add(nonce)
        if len(inside) > rule.live_max and not is_over:
            is_over = True  # one finding a limit: the rest would say the same
            text = (
                f"{len(inside)} executions at once under limit {rule.key!r}, which allows "
                f"{rule.live_max}, at {at:.6f}: {', '.join(sorted(inside))}"
            )
            yield Finding(invariant="I11", rule="limits_hold", text=text)


def _in_windows(
    testimony: Testimony, settings: CheckSettings, rule: LimitRule
) -> Iterator[Finding]:
    rates = []
    if rule.starts_max is not None and rule.window is not None:
        rates.append((rule.starts_max, rule.window.total_seconds()))
    if rule.spacing is not None:
        rates.append((1, rule.spacing.total_seconds()))
    slack = settings.start_slack
    for most, window in rates:
        found = _crowd(testimony.starts(rule.key), most, window)
        if not found and slack is not None:
            starts = testimony.beginnings(rule.key)
            found = _crowd(starts, most, window - slack.total_seconds())
        if found:
            text = (
                f"{most + 1} starts within {window} s under limit {rule.key!r}, which allows "
                f"{most}: {', '.join(found)}"
            )
            yield Finding(invariant="I11", rule="limits_hold", text=text)


def _crowd(starts: Iterator[tuple[float, str]], most: int, window: float) -> list[str]:
    """The first executions that began too close to each other, if any did."""
    last: deque[tuple[float, str]] = deque(maxlen=most + 1)
    for start in starts:
        last.append(start)
        if len(last) > most and last[-1][0] - last[0][0] < window - 1e-6:
            return [nonce for _, nonce in last]
    return []


def _finding(invariant: str, rule: str, text: str, at: WitnessedExecution) -> Finding:
    return Finding(
        invariant=invariant,
        rule=rule,
        text=text,
        namespace=at.namespace,
        run=at.run,
        key=at.key,
        job=at.job,
    )


RULES = (readable, attempts_follow, keys_are_stable, limits_hold)
