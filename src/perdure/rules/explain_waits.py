"""What a run waits for, in words: times, signals, children, people and outside parties."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.model.approval import approval_id
from perdure.model.explanation import Finding, FindingKind, Surroundings
from perdure.model.graph import APPROVE
from perdure.model.ids import RunId
from perdure.model.key import Key
from perdure.model.run import RunState, Wait, WaitKind
from perdure.model.showing import shown
from perdure.rules.serving import is_live


def findings_of_waits(
    run: RunId, state: RunState, around: Surroundings, now: datetime
) -> Iterator[Finding]:
    timers = {wait.key: wait for wait in around.waits if wait.kind is WaitKind.TIMER}
    for wait in around.waits:
        match wait.kind:
            case WaitKind.TIMER:
                if not Key.parse(wait.key).part:  # else it stands beside another wait
                    yield _timer(wait, around, now)
            case WaitKind.SIGNAL:
                yield _signal(run, wait, around.details.get(wait.key), now)
            case WaitKind.CHILD:
                yield _child(wait, around)
            case WaitKind.OUTSIDE:
                yield _outside(run, wait, timers.get(f"poll:{wait.key}"), now)
            case WaitKind.APPROVAL:
                yield _approval(run, state, wait, around.details.get(wait.key), now)


def findings_beside(
    run: RunId, state: RunState, around: Surroundings, now: datetime
) -> Iterator[Finding]:
    """What stands beside a node and is not told of with its wait or its job."""
    waits = {wait.key: wait for wait in around.waits}
    jobs = {job.node.key for job in around.jobs if job.node is not None}
    for text in sorted({*state.live, *waits} - jobs):
        key = Key.parse(text)
        if key.part not in ("poll", "remind", "notify"):
            continue
        of = replace(key, part="").text if key.part == "poll" else key.node
        if of in waits or of in jobs:
            continue
        yield _beside(run, text, key.part, of, waits.get(text), now)


def _beside(run: RunId, key: str, part: str, of: str, wait: Wait | None, now: datetime) -> Finding:
    at = "now" if wait is None else f"at {_due(wait, now)}"
    if part == "poll":
        return Finding(
            kind=FindingKind.OUTSIDE,
            key=key,
            text=f"the outside party of node {of!r} is asked after its work {at}",
            help=f"client.report({run!r}, {of!r}, status='completed', result=...)",
        )
    told = "told of" if part == "notify" else "reminded of"
    return Finding(
        kind=FindingKind.APPROVAL,
        key=key,
        text=f"people are {told} approval {of!r} {at}",
        help=f"client.approval({approval_id(run, of)!r})",
    )


def moment(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="seconds")


def _timer(wait: Wait, around: Surroundings, now: datetime) -> Finding:
    """It needs nobody to act, as long as there is somebody to work."""
    text = f"it waits{_since(wait)}, until {_due(wait, now)}"
    if wait.due_at is not None and wait.due_at > now:
        is_served = any(is_live(each, now) for each in around.workers)
        text += f"; then it goes on {'by itself' if is_served else 'once a worker is live'}"
    return Finding(kind=FindingKind.TIMER, key=wait.key, text=text)


def _signal(run: RunId, wait: Wait, detail: Any, now: datetime) -> Finding:
    where = detail.get("where") if isinstance(detail, dict) else None
    filter = "" if where is None else f" whose payload fits {shown(where)}"
    until = "" if wait.due_at is None else f", until {_due(wait, now)}"
    return Finding(
        kind=FindingKind.SIGNAL,
        key=wait.key,
        text=f"it waits for signal {wait.name!r}{filter}{_since(wait)}{until}",
        help=f"client.signal({run!r}, {wait.name!r}, ...)",
    )


def _child(wait: Wait, around: Surroundings) -> Finding:
    child = RunId(wait.name)
    status = around.children.get(child)
    return Finding(
        kind=FindingKind.CHILD,
        key=wait.key,
        text=f"it waits for child run {child!r} ({status or 'not found'}){_since(wait)}",
        help=f"client.explain({child!r})",
    )


def _outside(run: RunId, wait: Wait, poll: Wait | None, now: datetime) -> Finding:
    pause = f" at {wait.name!r}" if wait.name else ""
    until = "" if wait.due_at is None else f", until {_due(wait, now)}"
    asked = "" if poll is None or poll.due_at is None else f"; it is asked for at {_due(poll, now)}"
    return Finding(
        kind=FindingKind.OUTSIDE,
        key=wait.key,
        text=f"it waits for a report{pause}{_since(wait)}{until}{asked}",
        help=f"client.report({run!r}, {wait.key!r}, status='completed', result=...)",
    )


def _approval(run: RunId, state: RunState, wait: Wait, detail: Any, now: datetime) -> Finding:
    id = approval_id(run, wait.key)
    by = " or ".join(map(repr, wait.deciders)) or "whoever comes"
    until = "" if wait.due_at is None else f", until {_due(wait, now)}"
    text = f"it waits for {by} to decide on {wait.name!r}{_since(wait)}{until}"
    answers = state.approvals[wait.key].answers if wait.key in state.approvals else ()
    if answers:
        told = ", ".join(f"{each.by or 'somebody'}: {each.decision}" for each in answers)
        text += f"; answers so far: {told}"
    choices = detail.get("answers") if isinstance(detail, dict) else None
    choice = APPROVE if not choices or APPROVE in choices else choices[0]
    roles = f", roles=[{wait.deciders[0]!r}]" if wait.deciders else ""
    return Finding(
        kind=FindingKind.APPROVAL,
        key=wait.key,
        text=text,
        help=f"client.decide({id!r}, {choice!r}, by=...{roles})",
    )


def _since(wait: Wait) -> str:
    return f" since {moment(wait.opened_at)}"


def _due(wait: Wait, now: datetime) -> str:
    if wait.due_at is None:
        return "told otherwise"
    if wait.due_at <= now:
        return f"{moment(wait.due_at)}, which has passed: the next live worker sees to it"
    return moment(wait.due_at)
