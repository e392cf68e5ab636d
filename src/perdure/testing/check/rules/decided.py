"""I10 and I7: the log is what the rules decide, and what is open is what they asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from perdure.model.duration import nearest_duration
from perdure.model.run import LiveKind, Wait, WaitKind
from perdure.testing.check.finding import Finding
from perdure.testing.check.redeciding import Opened
from perdure.testing.check.view import RunView

ROUNDING = timedelta(milliseconds=2)
IN_ONE_COMMIT = timedelta(seconds=60)
"""How far apart the times of what one commit wrote may be."""


def as_decided(view: RunView) -> Iterator[Finding]:
    """Deciding anew upon what happened gives the events that are there."""
    found = view.redecided
    if found.fault:
        yield view.finding("I10", "as_decided", found.fault, found.number)


def waits_as_opened(view: RunView) -> Iterator[Finding]:
    """An open wait is the one that was asked for: its kind, name, deciders, detail and time."""
    if view.jobs is None or view.redecided.fault:
        return
    for wait in view.waits:
        opened = view.redecided.opened.get(wait.key)
        if opened is None or view.state.live.get(wait.key) in (None, LiveKind.JOB):
            continue  # which is told elsewhere
        for fault in _faults(view, wait, opened):
            yield view.finding("I7", "waits_as_opened", fault, key=wait.key)


def _faults(view: RunView, wait: Wait, opened: Opened) -> Iterator[str]:
    wanted = opened.wait
    pairs = (
        ("kind", wait.kind, wanted.kind),
        ("name", wait.name, wanted.name),
        ("deciders", wait.deciders, wanted.deciders),
    )
    for name, kept, asked in pairs:
        if kept != asked:
            yield f"the {name} of its wait is {kept!r}, it was opened with {asked!r}"
    if not _same_detail(view, wait.detail, wanted.detail):
        yield f"the detail of its wait is {wait.detail[:80]!r}, not what it was opened with"
    if wanted.kind is not WaitKind.CHILD and not _is_due_in_time(wait, opened):
        yield f"its wait is due at {wait.due_at}; {_told(opened)}"


def _same_detail(view: RunView, kept: bytes, asked: bytes) -> bool:
    if not kept or not asked:
        return kept == asked
    try:
        decoded = view.settings.codec.decode(kept)
        return decoded == asked or msgspec.json.decode(decoded) == msgspec.json.decode(asked)
    except Exception:  # of whatever codec it is
        return False


def _is_due_in_time(wait: Wait, opened: Opened) -> bool:
    wanted = opened.wait
    if wanted.kind is WaitKind.OUTSIDE:  # whose deadline is kept with the wait alone
        return wait.due_at is None or wait.due_at >= wait.opened_at
    if wanted.due_at is not None:
        return wait.due_at is not None and abs(wait.due_at - wanted.due_at) <= ROUNDING
    if wanted.delay is None or wait.due_at is None:
        return wanted.delay is None and wait.due_at is None
    delay = nearest_duration(wanted.delay)
    earliest = max(opened.at, opened.at + delay - opened.sooner) - ROUNDING
    return earliest <= wait.due_at <= opened.at + delay + IN_ONE_COMMIT


def _told(opened: Opened) -> str:
    wanted = opened.wait
    if wanted.due_at is not None:
        return f"it was opened for {wanted.due_at}"
    if wanted.delay is None:
        return "it was opened to be due at no time"
    return f"it was opened at {opened.at} for {wanted.delay}"


RULES = (as_decided, waits_as_opened)
