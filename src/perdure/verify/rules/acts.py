"""I1 and I12 for acts: what was answered as done is in the log once, what was refused is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perdure.model import event as events
from perdure.verify.finding import Finding
from perdure.verify.rules.outputs import nonces_in
from perdure.verify.testimony import Act
from perdure.verify.view import RunView

UNCLEAR = frozenset({"StoreError", "TimeoutError", "CancelledError", "ConnectionError", "OSError"})
"""After one of these errors nobody knows whether it was done."""
_BROUGHT = (events.SignalReceived, events.NodeReported, events.ApprovalAnswered)


def acts_are_kept(view: RunView) -> Iterator[Finding]:
    """Signals, reports and answers that carry a nonce are found by it."""
    acts = [act for act in view.testimony.acts_on(view.run.namespace, view.run.id) if act.nonce]
    if not acts:
        return
    seen: Counter[str] = Counter()
    places: dict[str, int] = {}
    for step in view.replay.steps:
        if isinstance(step.event, _BROUGHT):
            for nonce in nonces_in(view.value_of(step.stored)):
                seen[nonce] += 1
                places[nonce] = step.number
    ignored = {s.event.key for s in view.replay.steps if isinstance(s.event, events.ReportIgnored)}
    for act in acts:
        yield from _judged(view, act, seen[act.nonce], places.get(act.nonce, 0), ignored)


def _judged(
    view: RunView, act: Act, count: int, number: int, ignored: set[str]
) -> Iterator[Finding]:
    numbers = (number,) if number else ()
    if count > 1:
        text = f"{act.act} {act.nonce} was done once, and is in the log {count} times"
        yield view.finding("I2", "acts_are_kept", text, *numbers, key=act.key)
    elif not act.errors and not count and act.key not in ignored:
        text = f"{act.act} {act.nonce} was answered as done, and is not in the log"
        yield view.finding("I1", "acts_are_kept", text, *numbers, key=act.key)
    elif act.errors and count and UNCLEAR.isdisjoint(act.errors):
        text = f"{act.act} {act.nonce} was refused with {act.errors[0]}, and is in the log"
        yield view.finding("I12", "acts_are_kept", text, *numbers, key=act.key)


def cancels_are_kept(view: RunView) -> Iterator[Finding]:
    """A run whose cancel was answered as done was cancelled, or is being undone for it."""
    acts = view.testimony.acts_on(view.run.namespace, view.run.id)
    if not any(act.act == "cancel" and not act.errors for act in acts):
        return
    for step in view.replay.steps:
        if isinstance(step.event, events.RunCancelled | events.CompensationStarted):
            return
    yield view.finding("I1", "cancels_are_kept", "a cancel was done, and is not in the log")


def decided_by_those_who_did(view: RunView) -> Iterator[Finding]:
    """Whoever was told that their answer counts is in the log with it."""
    acts = view.testimony.acts_on(view.run.namespace, view.run.id)
    answers = {
        (step.event.node, step.event.by)
        for step in view.replay.steps
        if isinstance(step.event, events.ApprovalAnswered)
    }
    for act in acts:
        is_told = act.act == "decide" and act.by and not act.errors
        if is_told and (act.key, act.by) not in answers:
            text = f"{act.by!r} was told that the answer counts, and it is not in the log"
            yield view.finding("I1", "decided_by_those_who_did", text, key=act.key)


def ends_are_kept(view: RunView) -> Iterator[Finding]:
    """Whoever was told how a run ended finds that in its log, also if it was started anew since."""
    ends = {str(step.after.status) for step in view.replay.steps if step.after.is_ended}
    for status in view.testimony.ends_told(view.run.namespace, run=view.run.id):
        if status not in ends:
            text = f"a client was told that it is {status}, and by its log it never was"
            yield view.finding("I8", "ends_are_kept", text)


RULES = (acts_are_kept, cancels_are_kept, decided_by_those_who_did, ends_are_kept)
