"""The history of an approval, from the log of its run: answers, reminders, outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.model.event import (
    NOTHING,
    ApprovalAnswered,
    ApprovalEscalated,
    ApprovalReminded,
    CompensationStarted,
    Event,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    RunCancelled,
    RunFailed,
    StoredEvent,
    decode_event,
)
from perdure.model.ids import RunId
from perdure.model.payload import Codec
from perdure.model.value import Value
from perdure.operations.records import Answer, ApprovalStatus, Reminder, decoded
from perdure.operations.run_log import LOG_PAGE, ReadEvent
from perdure.store.contract import EventsBefore, Store

_TIMEOUT = "timeout"
_ANSWER = "approval"


class ApprovalHistory(Value):
    """Since it last opened: a retried run opens it again."""

    status: ApprovalStatus | None = None
    """None if it never opened."""
    opened_at: datetime | None = None
    answers: tuple[Answer, ...] = ()
    reminders: tuple[Reminder, ...] = ()
    decision: str | None = None
    port: str | None = None
    ended_at: datetime | None = None


class ApprovalPlace(Value):
    """The location of an approval."""

    namespace: str
    run: RunId
    node: str


async def read_histories(
    store: Store,
    places: Sequence[ApprovalPlace],
    codec: Codec,
    known: Sequence[StoredEvent] = (),
) -> dict[ApprovalPlace, ApprovalHistory]:
    """Return their histories, reading each log only back to where the approval opened.

    ``known`` has the last events of each log, latest first.
    """
    tails: dict[ApprovalPlace, list[ReadEvent]] = {place: [] for place in places}
    unopened = [
        place
        for place, tail in tails.items()
        if not _reach_opening(place.run, place.node, known, tail)
    ]
    while unopened:
        pages = await store.runs.latest_events(
            [_before(each, tails[each]) for each in unopened], LOG_PAGE
        )
        unopened = [
            place
            for place, page in zip(unopened, pages, strict=True)
            if page and not _reach_opening(place.run, place.node, page, tails[place])
        ]
    return {place: await _history(store, place, tail, codec) for place, tail in tails.items()}


def _before(place: ApprovalPlace, tail: Sequence[ReadEvent]) -> EventsBefore:
    number = tail[-1][0].number if tail else None
    return EventsBefore(namespace=place.namespace, id=place.run, number=number)


def _reach_opening(
    run: RunId, node: str, page: Iterable[StoredEvent], tail: list[ReadEvent]
) -> bool:
    """Continue reading ``tail``, latest first, back to the event that opened the approval."""
    for stored in page:
        event = decode_event(run, stored.number, stored.data)
        tail.append((stored, event))
        if _opens(event, node):
            return True
    return False


async def _history(
    store: Store, place: ApprovalPlace, tail: Sequence[ReadEvent], codec: Codec
) -> ApprovalHistory:
    if not tail or not _opens(tail[-1][1], place.node):
        return ApprovalHistory()
    [(opening, _), *since] = reversed(tail)
    numbers = [stored.number for stored, event in since if _has_value(event, place.node)]
    values = await store.runs.event_values(place.namespace, place.run, numbers) if numbers else {}
    history = ApprovalHistory(status=ApprovalStatus.OPEN, opened_at=opening.at)
    for stored, event in since:
        whole = replace(stored, value=values.get(stored.number))
        history = after_event(history, place.node, event, whole, codec)
    return history


def _opens(event: Event, node: str) -> bool:
    return node in getattr(event, "effects", NOTHING).waiting and not _is_of(event, node)


def _has_value(event: Event, node: str) -> bool:
    """Whether the history includes the event's value."""
    return isinstance(event, ApprovalAnswered | NodeCompleted) and event.node == node


def after_event(
    history: ApprovalHistory, node: str, event: Event, stored: StoredEvent, codec: Codec
) -> ApprovalHistory:
    """The history after the next event of the run; one that has ended does not change."""
    if history.status is not ApprovalStatus.OPEN:
        return history
    match event:
        case ApprovalAnswered(node=of) if of == node:
            answer = _answer(event, stored, codec)
            return replace(history, answers=(*history.answers, answer))
        case ApprovalReminded(node=of) | ApprovalEscalated(node=of) if of == node:
            reminder = Reminder(
                number=event.number,
                at=stored.at,
                deciders=event.deciders,
                is_escalation=bool(event.deciders),
            )
            return replace(history, reminders=(*history.reminders, reminder))
        case NodeCompleted(node=of) if of == node:
            return _ended(history, event, stored, codec)
        case NodeFailed(key=of) if of == node:
            return _failed(history, event, stored.at)
        case NodeSkipped(node=of) if of == node:
            return ApprovalHistory()
        case RunCancelled() | RunFailed() | CompensationStarted():
            return replace(history, status=ApprovalStatus.CANCELLED, ended_at=stored.at)
        case _:
            return history


def _answer(event: ApprovalAnswered, stored: StoredEvent, codec: Codec) -> Answer:
    return Answer(
        decision=event.decision,
        by=event.by,
        at=stored.at,
        note=event.note,
        data=None if stored.value is None else decoded(stored.value, codec),
        stands_for=event.stands_for,
    )


def _ended(
    history: ApprovalHistory, event: NodeCompleted, stored: StoredEvent, codec: Codec
) -> ApprovalHistory:
    is_late = event.cause == _TIMEOUT
    output: Any = None if stored.value is None else decoded(stored.value, codec)
    return replace(
        history,
        status=ApprovalStatus.TIMED_OUT if is_late else ApprovalStatus.DECIDED,
        decision=output.get("decision") if isinstance(output, dict) else None,
        port=event.port,
        ended_at=stored.at,
    )


def _failed(history: ApprovalHistory, event: NodeFailed, at: datetime) -> ApprovalHistory:
    """Whether it ended by an answer or a timeout; any other end is not a decision."""
    if event.cause == _TIMEOUT:
        return replace(history, status=ApprovalStatus.TIMED_OUT, ended_at=at)
    if event.cause == _ANSWER and history.answers:
        decision = history.answers[-1].decision
        return replace(history, status=ApprovalStatus.DECIDED, decision=decision, ended_at=at)
    return ApprovalHistory()


def _is_of(event: Event, node: str) -> bool:
    """Whether the event is about this node, and the node keeps waiting."""
    return isinstance(event, ApprovalReminded | ApprovalEscalated) and event.node == node
