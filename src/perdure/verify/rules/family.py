"""I7: parents and children agree on who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.diagnostics import Finding, declare
from perdure.model.event import Parent
from perdure.model.run import ENDED, LiveType, WaitType
from perdure.verify.load import AuditedRun

PARENT_EXISTS = declare("verify.parent_exists", "a child of run {run_id!r}, which does not exist")


def parent_exists(view: AuditedRun) -> Iterator[Finding]:
    """A child is removed with its parent, not after it."""
    if view.run.parent is not None and view.parent is None:
        yield view.finding("I7", PARENT_EXISTS, key=view.run.parent.key, run_id=view.run.parent.run)


CHILD_AWAITED = declare(
    "verify.child_awaited",
    "{status}, but its parent, run {run_id!r} ({parent_status}), has no wait for it",
)


def child_awaited(view: AuditedRun) -> Iterator[Finding]:
    """An unfinished child is awaited, either for its result or for its cancellation."""
    parent = view.run.parent
    if parent is None or view.run.status in ENDED or view.awaited_by_parent:
        return
    if view.parent is not None:
        yield view.finding(
            "I7",
            CHILD_AWAITED,
            key=parent.key,
            status=view.run.status,
            run_id=parent.run,
            parent_status=view.parent.status,
        )


AWAITED_CHILDREN_MISSING = declare(
    "verify.awaited_children.missing", "waits for run {name!r}, which does not exist"
)
AWAITED_CHILDREN_ENDED = declare(
    "verify.awaited_children.ended",
    "waits for run {name!r}, which is {status}, but the wait is not due",
)


def awaited_children(view: AuditedRun) -> Iterator[Finding]:
    """The wait for a child that has ended, or is missing, is due immediately."""
    if view.jobs is None:
        return
    for wait in view.waits:
        if wait.type is not WaitType.CHILD:
            continue
        child = view.children.get(wait.name)
        is_due = wait.due_at is not None and wait.due_at <= view.now
        if child is None and not is_due:
            yield view.finding("I7", AWAITED_CHILDREN_MISSING, key=wait.key, name=wait.name)
        elif child is not None and child.status in ENDED and not is_due:
            yield view.finding(
                "I7", AWAITED_CHILDREN_ENDED, key=wait.key, name=wait.name, status=child.status
            )


CHILD_PARENT = declare("verify.child_parent", "waits for run {id!r}, whose parent is {parent!r}")


def child_parent(view: AuditedRun) -> Iterator[Finding]:
    """A child names the key that waits for it."""
    for key, live_type in view.state.live.items():
        child = view.children.get(view.state.children.get(key, ""))
        if live_type is not LiveType.CHILD or child is None:
            continue
        wanted = Parent(run=view.run.id, key=key)
        if child.parent != wanted:
            yield view.finding("I7", CHILD_PARENT, key=key, id=child.id, parent=child.parent)


RULES = (parent_exists, child_awaited, awaited_children, child_parent)
