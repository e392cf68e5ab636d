"""I7: parents and children agree on who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.model.event import Parent
from perdure.model.run import ENDED, LiveKind, WaitKind
from perdure.verify.finding import Finding
from perdure.verify.load import RunView


def has_parent(view: RunView) -> Iterator[Finding]:
    """A child is removed with its parent, not after it."""
    if view.run.parent is not None and view.parent is None:
        text = f"a child of run {view.run.parent.run!r}, which is not there"
        yield view.finding("I7", "has_parent", text, key=view.run.parent.key)


def is_awaited(view: RunView) -> Iterator[Finding]:
    """A child that goes on is waited for: to go on with, or to be cancelled."""
    parent = view.run.parent
    if parent is None or view.run.status in ENDED or view.awaited_by_parent:
        return
    if view.parent is not None:
        text = (
            f"{view.run.status}, and its parent, run {parent.run!r} ({view.parent.status}), has no "
            "wait for it: nobody will hear of its end, and nobody cancels it"
        )
        yield view.finding("I7", "is_awaited", text, key=parent.key)


def children_are_there(view: RunView) -> Iterator[Finding]:
    """Whoever waits for a child that is over, or gone, is to hear of it at once."""
    if view.jobs is None:
        return
    for wait in view.waits:
        if wait.kind is not WaitKind.CHILD:
            continue
        child = view.children.get(wait.name)
        is_due = wait.due_at is not None and wait.due_at <= view.now
        if child is None and not is_due:
            text = f"waits for run {wait.name!r}, which is not there"
            yield view.finding("I7", "children_are_there", text, key=wait.key)
        elif child is not None and child.status in ENDED and not is_due:
            text = f"waits for run {wait.name!r}, which is {child.status}: the wait is not due"
            yield view.finding("I7", "children_are_there", text, key=wait.key)


def children_know(view: RunView) -> Iterator[Finding]:
    """A child says that it belongs to the key that waits for it."""
    for key, kind in view.state.live.items():
        child = view.children.get(view.state.children.get(key, ""))
        if kind is not LiveKind.CHILD or child is None:
            continue
        wanted = Parent(run=view.run.id, key=key)
        if child.parent != wanted:
            text = f"waits for run {child.id!r}, whose parent is {child.parent!r}"
            yield view.finding("I7", "children_know", text, key=key)


RULES = (has_parent, is_awaited, children_are_there, children_know)
