"""The timeline of a run: when each node was queued or running and when it waited.

Read from the log alone, which does not record what a worker does between two commits. So work
starts when its job is queued. All items of a map are in the row of their node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.engine.fold import check_contiguous, fold_stored
from perdure.model.event import (
    NOTHING,
    CompensationStarted,
    Effects,
    Event,
    ItemCompleted,
    IterationCompleted,
    NodeCompleted,
    NodeFailed,
    NodePaused,
    NodeReported,
    NodeRetried,
    NodeUndone,
    RunFailed,
    RunPaused,
    RunResumed,
    StoredEvent,
    UndoFailed,
    decode_event,
)
from perdure.model.ids import Key, RunId
from perdure.model.run import LiveType, NodeStatus, RunState
from perdure.render.diagram import mark_of
from perdure.render.timeline import Bar, BarEnd, Doing, Timeline, TimelineRow

_AUXILIARY = ("poll", "cancel", "remind", "notify")
"""Parts of keys that accompany a node and are not its own work."""


def timeline_of(run: RunId, events: Iterable[StoredEvent], now: datetime) -> Timeline:
    """The timeline of a run as of ``now``; it must have an event."""
    record = _Record(run)
    for event in events:
        record.take(event)
    return record.timeline(now)


class _Row:
    def __init__(self) -> None:
        self.bars: list[Bar] = []
        self.open: dict[str, int] = {}
        """By key: the index of the open bar."""
        self.items: int | None = None
        self.items_completed = 0


class _Record:
    """Follows a log, comparing which keys are live before and after each event."""

    def __init__(self, run: RunId) -> None:
        self._run = run
        self._state = RunState()
        self._rows: dict[str, _Row] = {}
        self._attempts: dict[str, int] = {}
        self._started_at: datetime | None = None
        self._last_at: datetime | None = None

    def take(self, stored: StoredEvent) -> None:
        check_contiguous(self._run, self._state.number + 1, stored.number)
        event = decode_event(self._run, stored.number, stored.data)
        self._state = fold_stored(self._run, self._state, event)
        self._started_at = self._started_at or stored.at
        self._last_at = stored.at
        for text in dict.fromkeys(self._touched(event)):
            self._compare(text, event, stored.at)
        self._note(event)

    def timeline(self, now: datetime) -> Timeline:
        assert self._started_at is not None
        assert self._last_at is not None
        state = self._state
        return Timeline(
            run=self._run,
            flow=f"{state.flow}@{state.version}",
            status=state.status,
            started_at=self._started_at,
            until=self._last_at if state.is_ended else max(now, self._last_at),
            rows=tuple(self._row(node, row) for node, row in self._rows.items()),
        )

    def _row(self, node: str, row: _Row) -> TimelineRow:
        return TimelineRow(
            node=node,
            mark=mark_of(self._state, node, [self._state.live[each] for each in row.open]),
            bars=tuple(row.bars),
            items=row.items,
            items_completed=row.items_completed,
        )

    def _touched(self, event: Event) -> Iterator[str]:
        """The keys that an event may have changed."""
        text = key_of(event)
        if text is not None:
            key = Key.parse(text)
            node = self._state.nodes.get(key.node)
            yield text
            # An event of one item does not affect the other items.
            if key.item is None or node is None or node.status is not NodeStatus.LIVE:
                yield from self._row_of(key.node).open
        elif isinstance(event, RunResumed):
            yield from self._state.live
        else:
            for row in self._rows.values():
                yield from row.open
        effects: Effects = getattr(event, "effects", NOTHING)
        yield from (*effects.started, *effects.waiting, *(each for each, _ in effects.children))

    def _compare(self, text: str, event: Event, at: datetime) -> None:
        """Open or close the bar of a key to match the state."""
        key = Key.parse(text)
        if key.part in _AUXILIARY:
            return
        row = self._row_of(key.node)
        doing = None if self._state.is_ended else self._doing(key, text)
        current = row.open.get(text)
        continues = current is not None and row.bars[current].doing is doing
        if continues and not isinstance(event, NodeRetried):
            return
        if current is not None:
            row.bars[current] = _ended(row.bars[current], text, event, at)
            del row.open[text]
        if doing is not None:
            self._attempts[text] = self._attempt(text, event)
            row.open[text] = len(row.bars)
            attempt = self._attempts[text]
            row.bars.append(Bar(doing=doing, started_at=at, key=text, attempt=attempt))

    def _doing(self, key: Key, text: str) -> Doing | None:
        match self._state.live.get(text):
            case LiveType.JOB:
                held = self._state.is_paused
                return None if held else Doing.UNDO if key.part == "undo" else Doing.WORK
            case LiveType.WAIT:
                return Doing.WAIT
            case LiveType.CHILD:
                return Doing.CHILD
            case _:
                return None

    def _attempt(self, text: str, event: Event) -> int:
        if isinstance(event, NodeRetried):
            return event.attempt + 1
        return self._attempts.get(text, 1)

    def _note(self, event: Event) -> None:
        """Record what has no bar: skipped nodes, and the progress of maps."""
        effects: Effects = getattr(event, "effects", NOTHING)
        for node in (*effects.skipped, *effects.blocked):
            self._row_of(node)
        for node, items in effects.mapped:
            self._row_of(node).items = items
        text = key_of(event)
        row = None if text is None else self._rows.get(Key.parse(text).node)
        if row is not None and row.items is not None and text is not None:
            progress = self._state.maps.get(Key.parse(text).node)
            if progress is not None:
                row.items_completed = len(progress.refs)
            elif isinstance(event, NodeCompleted) and event.cause == "items":
                row.items_completed = row.items

    def _row_of(self, node: str) -> _Row:
        return self._rows.setdefault(node, _Row())


def key_of(event: Event) -> str | None:
    """The key that an event is about; None for the run as a whole."""
    if isinstance(event, CompensationStarted | RunFailed):  # the node is the cause only
        return None
    key: str = getattr(event, "key", "") or getattr(event, "node", "")
    return key or None


def _ended(bar: Bar, text: str, event: Event, at: datetime) -> Bar:
    failure: Any = getattr(event, "failure", None)
    error = f"{failure.type}: {failure.message}" if failure is not None else ""
    match event:
        case NodeRetried():
            ending = BarEnd.RETRIED
        case NodeFailed() if event.key == text:
            ending = BarEnd.FAILED
        case UndoFailed():
            ending = BarEnd.FAILED
        case (
            NodeCompleted() | ItemCompleted() | IterationCompleted() | NodeReported() | NodeUndone()
        ):
            ending = BarEnd.COMPLETED
        case RunPaused() | NodePaused():
            ending = BarEnd.PAUSED
        case _:
            ending = BarEnd.CANCELLED
    has_error = ending in (BarEnd.RETRIED, BarEnd.FAILED)
    return replace(bar, ended_at=at, ending=ending, error=error if has_error else "")
