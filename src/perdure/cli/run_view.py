"""Runs in a list, and one run in full, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import asdict
from rich.console import Console

from perdure.cli.job_view import print_traceback
from perdure.cli.present import NOT_REACHED, Column, ago, as_json_line, moment, shortened, took
from perdure.cli.terminal import print_pairs, print_table
from perdure.client.run_nodes import NodeRecord
from perdure.client.run_records import ChildRun, EventRecord, RunRecord
from perdure.model.failure import Failure
from perdure.model.run import NodeStatus, RunStatus

VALUE_LENGTH_MAX = 200
"""How much of a value is shown where a line has no end."""
LINES_MAX = 100
"""How many nodes, or children, are shown to people."""


class RunInFull(NamedTuple):
    """What there is to tell about one run."""

    record: RunRecord
    events: Sequence[EventRecord]
    nodes: Sequence[NodeRecord]
    children: Sequence[ChildRun]

    @property
    def input(self) -> Any:
        return self.events[0].value

    @property
    def result(self) -> Any:
        """Of a completed run: its last event says it."""
        return self.events[-1].value if self.record.status is RunStatus.COMPLETED else None


def run_fields(record: RunRecord) -> dict[str, Any]:
    """A run as JSON shows it in a list."""
    fields = {name: value for name, value in asdict(record).items() if name != "summary"}
    why = {"reason": record.reason, "by": record.by}
    return {**fields, **why, "failed_node": record.failed_node, "failure": record.failure}


def full_fields(run: RunInFull) -> dict[str, Any]:
    return {
        **run_fields(run.record),
        "input": run.input,
        "result": run.result,
        "nodes": run.nodes,
        "children": run.children,
    }


def run_columns(runs: Sequence[RunRecord], now: datetime, *, is_across: bool) -> list[Column]:
    """A list of runs; ``is_across`` when they are of several namespaces."""
    namespaces = [run.namespace if is_across else "" for run in runs]
    parents = [run.parent.run if run.parent else "" for run in runs]
    return [
        Column(title="RUN", cells=[run.id for run in runs], room_min=12),
        Column(title="NAMESPACE", cells=namespaces, rank=3, room_min=9),
        Column(title="STATUS", cells=[run.status.value for run in runs]),
        Column(title="FLOW", cells=[run.flow for run in runs], rank=1, room_min=8),
        Column(title="VERSION", cells=[run.version for run in runs], rank=6, room_min=8),
        Column(title="EVENTS", cells=[str(run.number) for run in runs], rank=5, is_number=True),
        Column(
            title="AGE", cells=[ago(run.created_at, now) for run in runs], rank=2, is_number=True
        ),
        Column(title="PARENT", cells=parents, rank=7, room_min=8),
        Column(title="WHY", cells=[why(run) for run in runs], rank=4, room_min=24),
    ]


def why(run: RunRecord) -> str:
    """Why it failed, or was paused or cancelled, in a few words."""
    said = said_by(run)
    if run.failure is not None:
        place = f"{run.failed_node}: " if run.failed_node else ""
        said = f"{place}{in_words(run.failure)}"
    return shortened(said, VALUE_LENGTH_MAX)


def said_by(run: RunRecord) -> str:
    return " ".join(filter(None, [run.reason, f"(by {run.by})" if run.by else None]))


def in_words(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}" if failure.message else failure.type


def print_run(console: Console, run: RunInFull, now: datetime) -> None:
    record = run.record
    pairs = [*_identity(record), *_state(record), *_times(record, now), *_values(run)]
    print_pairs(console, [(name, value) for name, value in pairs if value])
    _print_some(console, node_columns(run.nodes[:LINES_MAX]), len(run.nodes), "nodes")
    if run.children:
        columns = child_columns(run.children[:LINES_MAX])
        _print_some(console, columns, len(run.children), "child runs")
    if record.failure is not None:
        console.print()
        _print_failure(console, record, record.failure)


def node_columns(nodes: Sequence[NodeRecord]) -> list[Column]:
    statuses = [node.status.value if node.status else NOT_REACHED for node in nodes]
    return [
        Column(title="NODE", cells=[node.id for node in nodes], room_min=12),
        Column(title="KIND", cells=[node.kind for node in nodes], rank=3),
        Column(title="STATUS", cells=statuses),
        Column(title="AT", cells=[_place(node) for node in nodes], rank=2),
        Column(title="OUTPUT", cells=[_output(node) for node in nodes], rank=1, room_min=10),
    ]


def child_columns(children: Sequence[ChildRun]) -> list[Column]:
    statuses = [child.status.value if child.status else "not kept" for child in children]
    failures = [shortened(in_words(each.failure), 80) if each.failure else "" for each in children]
    return [
        Column(title="CHILD OF", cells=[child.key for child in children], room_min=8),
        Column(title="RUN", cells=[child.id for child in children], room_min=16),
        Column(title="STATUS", cells=statuses),
        Column(title="WHY", cells=failures, rank=1, room_min=10),
    ]


def _print_some(console: Console, columns: Sequence[Column], count: int, what: str) -> None:
    console.print()
    print_table(console, columns)
    if count > LINES_MAX:
        console.print(f"and {count - LINES_MAX} more {what}: --json has them all", style="dim")


def _identity(record: RunRecord) -> list[tuple[str, str]]:
    parent = f"{record.parent.run}, node {record.parent.key}" if record.parent else ""
    return [
        ("run", record.id),
        ("flow", f"{record.flow}@{record.version}"),
        ("namespace", record.namespace),
        ("parent", parent),
    ]


def _state(record: RunRecord) -> list[tuple[str, str]]:
    return [
        ("status", record.status.value),
        ("reason", record.reason or ""),
        ("by", record.by or ""),
        ("events", str(record.number)),
    ]


def _times(record: RunRecord, now: datetime) -> list[tuple[str, str]]:
    ended = moment(record.finished_at, now)
    if record.finished_at is not None:
        ended += f", after {took(record.finished_at - record.created_at)}"
    return [("created", moment(record.created_at, now)), ("ended", ended)]


def _values(run: RunInFull) -> list[tuple[str, str]]:
    is_completed = run.record.status is RunStatus.COMPLETED
    result = shortened(as_json_line(run.result), VALUE_LENGTH_MAX) if is_completed else ""
    return [
        ("input", shortened(as_json_line(run.input), VALUE_LENGTH_MAX)),
        ("result", result),
    ]


def _place(node: NodeRecord) -> str:
    """Which item, iteration or port it is at, or ended with."""
    if node.items is not None:
        return f"{node.items_completed}/{node.items} items"
    if node.iteration:
        return f"iteration {node.iteration}"
    return f"port {node.port}" if node.port else ""


def _output(node: NodeRecord) -> str:
    if node.status is not NodeStatus.COMPLETED:
        return ""
    shown = shortened(as_json_line(node.output), VALUE_LENGTH_MAX)
    return f"{shown} (after it failed)" if node.has_failed else shown


def _print_failure(console: Console, record: RunRecord, failure: Failure) -> None:
    place = f"node {record.failed_node} failed" if record.failed_node else "it failed"
    console.print(place, style="bold red")
    causes = [("caused by", f"{cause.type}: {cause.message}") for cause in failure.causes]
    print_pairs(console, [("error", in_words(failure)), *causes])
    print_traceback(console, failure)
