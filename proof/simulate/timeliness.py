"""Nothing that waits for a time may end before it: timers, timeouts, reminders, polls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from perdure.model import event as events
from perdure.model.event import StoredEvent, Then, decode_event
from perdure.model.graph import ApprovalNode, DelayNode, Graph, SignalNode
from perdure.model.ids import RunId
from perdure.model.report import LAST, ReportStatus

ROUNDING = timedelta(milliseconds=2)


def early_ends(run: RunId, graph: Graph, log: Iterable[StoredEvent]) -> Iterator[str]:
    """What ended before its time."""
    opened: dict[str, datetime] = {}
    polls: dict[str, int] = {}
    for stored, event in _own(run, log):
        for key, wanted in _awaited(graph, event, polls):
            began = opened.get(key)
            if began is not None and stored.at - began < timedelta(milliseconds=wanted) - ROUNDING:
                yield f"{key} ended after {stored.at - began}, and was to wait for {wanted} ms"
        if isinstance(event, events.NodePaused) and event.poll_ms is not None:
            polls[event.key] = event.poll_ms
        then: Then = getattr(event, "then", events.NOTHING)
        for key in then.waiting:
            if not (key.startswith("remind:") and key in opened):  # they count from the first on
                opened[key] = stored.at
        if isinstance(event, events.RunRetried | events.RunForked):
            opened = dict.fromkeys(then.waiting, stored.at)


def _awaited(graph: Graph, event: events.Event, polls: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Which wait ended by its time with this event, and how long it was to be."""
    match event:
        case events.NodeCompleted(cause="timer") | events.NodeCompleted(cause="timeout"):
            node = graph.nodes[event.node]
            if isinstance(node, DelayNode):
                yield event.node, node.delay_ms
            elif isinstance(node, SignalNode | ApprovalNode) and node.timeout_ms is not None:
                yield event.node, node.timeout_ms
        case events.ApprovalReminded():
            node = graph.nodes[event.node]
            if isinstance(node, ApprovalNode) and event.number <= len(node.reminders_ms):
                yield f"remind:{event.node}", node.reminders_ms[event.number - 1]
        case events.NodeAsked() if event.key in polls:
            yield f"poll:{event.key}", polls[event.key]


def _own(run: RunId, log: Iterable[StoredEvent]) -> list[tuple[StoredEvent, events.Event]]:
    """The events of a run's own: of a fork, those from where it parted, which have their times."""
    read = [(stored, decode_event(run, stored.number, stored.data)) for stored in log]
    starts = [n for n, (_, event) in enumerate(read) if isinstance(event, events.RunForked)]
    return read[starts[-1] :] if starts else read


def forgotten_reports(run: RunId, log: Iterable[StoredEvent]) -> Iterator[str]:
    """A body that was reported on before it paused is executed again, and does not wait."""
    early: set[str] = set()
    for stored, event in _own(run, log):
        then: Then = getattr(event, "then", events.NOTHING)
        match event:
            case events.NodeReported() if ReportStatus(event.status) in LAST:
                early.add(event.key)
            case events.NodePaused() if event.key in early and event.key in then.waiting:
                yield f"{event.key} waits since event {stored.number}, and had its report before"
            case events.RunRetried() | events.CompensationStarted():
                early.clear()
            case events.NodeCompleted():
                early.discard(event.node)
            case events.NodeFailed():
                early.discard(event.key)
        early.difference_update(then.started)
