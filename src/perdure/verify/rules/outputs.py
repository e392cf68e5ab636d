"""I2 and I3 with a witness: each committed output is of one execution, whose claim was current.

What can be concluded without comparing clocks: an outcome takes the job of its key away, or on to
another key. So a later claim of the same job for the same key was made before any outcome of that
key was committed, and raised the epoch. If the committed output is of an execution with a lower
epoch than another one of the same job and key, a stale claim was let through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.model import event as events
from perdure.model.event import Event
from perdure.model.key import Key
from perdure.verify.finding import Finding
from perdure.verify.replay import Step, origins
from perdure.verify.testimony import WitnessedExecution
from perdure.verify.view import RunView
from perdure.verify.witness import NONCE_PATTERN

_NONCE = re.compile(NONCE_PATTERN)


def nonces_in(value: bytes) -> set[str]:
    return {found.decode() for found in _NONCE.findall(value)}


def output_key(event: Event) -> str:
    """The key whose own output is the event's value; empty if it has none."""
    match event:
        case events.NodeCompleted(cause="", ref=0):
            return Key(node=event.node, iteration=event.iteration).text
        case events.ItemCompleted():
            return event.key
        case events.IterationCompleted() if Key.parse(event.key).part != "check":
            return event.key
        case _:
            return ""


def outputs_have_executions(view: RunView) -> Iterator[Finding]:
    """Each output stems from exactly one execution of its key, under the highest epoch seen."""
    if not view.testimony.has_executions:
        return
    runs = origins(view.run.id, view.replay.steps)
    for step, run in zip(view.replay.steps, runs, strict=True):
        key = output_key(step.event)
        if key and view.testimony.is_witnessed(step.before.flow, Key.parse(key).node):
            yield from _judged(view, step, run, key)


def _judged(view: RunView, step: Step, run: str, key: str) -> Iterator[Finding]:
    number, node = step.number, Key.parse(key).node
    executions = view.testimony.executions_of(view.run.namespace, run, key)
    if not executions:
        text = "committed, and no witness saw it executed"
        yield view.finding("I2", "outputs_have_executions", text, number, key=key)
        return
    if not view.testimony.is_signed(step.before.flow, node):
        return
    signed = nonces_in(view.value_of(step.stored))
    own = [each for each in executions if each.nonce in signed]
    if len(own) != 1:
        found = f"{len(own)} of its {len(executions)} executions"
        text = f"the committed output is of {found}, instead of one"
        yield view.finding("I2", "outputs_have_executions", text, number, key=key)
        return
    [committed] = own
    other = view.testimony.commit(committed.nonce, f"{run}:{key}")
    if other:
        text = f"the output of execution {committed.nonce} is committed for {other!r} too"
        yield view.finding("I2", "outputs_have_executions", text, number, key=key)
    yield from _stale(view, number, committed, executions)


def _stale(
    view: RunView,
    number: int,
    committed: WitnessedExecution,
    executions: list[WitnessedExecution],
) -> Iterator[Finding]:
    later = [
        each for each in executions if each.job == committed.job and each.epoch > committed.epoch
    ]
    if later:
        text = (
            f"the output of epoch {committed.epoch} ({committed.nonce}, worker "
            f"{committed.worker}) was committed after epoch {later[-1].epoch} of the same job was "
            f"claimed by worker {later[-1].worker}"
        )
        yield view.finding(
            "I3", "no_stale_output", text, number, key=committed.key, job=committed.job
        )


def committed_in_one_event(view: RunView) -> Iterator[Finding]:
    """No execution's output is the own output of two events of a run."""
    first: dict[tuple[str, str], int] = {}
    if not view.testimony.has_executions:
        return
    for step in view.replay.steps:
        key = output_key(step.event)
        if not key or not view.testimony.is_signed(step.before.flow, Key.parse(key).node):
            continue
        for nonce in nonces_in(view.value_of(step.stored)):
            if (key, nonce) in first:
                text = f"execution {nonce} was committed before, by event {first[key, nonce]}"
                numbers = (first[key, nonce], step.number)
                yield view.finding("I2", "committed_in_one_event", text, *numbers, key=key)
            first[key, nonce] = step.number


RULES = (outputs_have_executions, committed_in_one_event)
