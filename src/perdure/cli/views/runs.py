"""Runs in a list, one run in full, its events and its lineage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from perdure.cli.views.console import (
    NOT_REACHED,
    STYLES,
    Column,
    json_line,
    moment,
    print_pairs,
    print_table,
    shortened,
)
from perdure.cli.views.jobs import print_traceback
from perdure.model.failure import Failure
from perdure.model.job import PRIORITY_DEFAULT
from perdure.model.run import NodeStatus, RunStatus
from perdure.model.settings import RunSettings
from perdure.model.text import visible
from perdure.model.times import ago, ahead, brief, ms_text
from perdure.operations.insight.lineage import Lineage, NodeLineage, Use, UseOrigin
from perdure.operations.records import (
    ChildRun,
    EventRecord,
    NodeRecord,
    RunDetail,
    RunRecord,
    WaitRecord,
)

if TYPE_CHECKING:
    from perdure.cli.command import CommandOutput
    from perdure.operations.page import Page


VALUE_LENGTH_MAX = 200
"""Characters of a value when lines are not limited by a terminal."""
LINES_MAX = 100
"""Maximum nodes or child runs in text output."""


def run_fields(record: RunRecord, out: CommandOutput) -> dict[str, Any]:
    """A run as JSON, with the reason for its status."""
    fields = {name: value for name, value in asdict(record).items() if name != "summary"}
    why = {"reason": record.reason, "by": record.by}
    return {**fields, **why, "failed_node": record.failed_node, "failure": record.failure}


def detail_fields(run: RunDetail, out: CommandOutput) -> dict[str, Any]:
    """A run as JSON without its events, which have their own command."""
    fields = {**run_fields(run, out), "input": run.events[0].value}
    del fields["events"]
    return fields


def run_table(runs: Page[RunRecord], out: CommandOutput) -> None:
    print_table(out.console, run_columns(runs, out.now, is_across=out.is_across))


def run_columns(runs: Sequence[RunRecord], now: datetime, *, is_across: bool) -> list[Column]:
    """Columns of runs; ``is_across`` if they span several namespaces."""
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
    """A short reason for its failure, pause or cancellation."""
    said = said_by(run)
    if run.failure is not None:
        place = f"{run.failed_node}: " if run.failed_node else ""
        said = f"{place}{failure_line(run.failure)}"
    return shortened(said, VALUE_LENGTH_MAX)


def said_by(run: RunRecord) -> str:
    return " ".join(filter(None, [run.reason, f"(by {run.by})" if run.by else None]))


def failure_line(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}" if failure.message else failure.type


def print_run(run: RunDetail, out: CommandOutput) -> None:
    console = out.console
    pairs = [*_identity(run), *_state(run), *_times(run, out.now)]
    pairs += [*_settings(run.settings, out.now), *_values(run)]
    print_pairs(console, [(name, value) for name, value in pairs if value])
    _print_some(console, node_columns(run.nodes[:LINES_MAX]), len(run.nodes), "nodes")
    if run.children:
        columns = child_columns(run.children[:LINES_MAX])
        _print_some(console, columns, len(run.children), "child runs")
    if run.failure is not None:
        console.print()
        _print_failure(console, run, run.failure)


def node_columns(nodes: Sequence[NodeRecord]) -> list[Column]:
    statuses = [node.status.value if node.status else NOT_REACHED for node in nodes]
    return [
        Column(title="NODE", cells=[node.id for node in nodes], room_min=12),
        Column(title="TYPE", cells=[node.type for node in nodes], rank=3),
        Column(title="STATUS", cells=statuses),
        Column(title="AT", cells=[_place(node) for node in nodes], rank=2),
        Column(title="OUTPUT", cells=[_output(node) for node in nodes], rank=1, room_min=10),
    ]


def child_columns(children: Sequence[ChildRun]) -> list[Column]:
    statuses = [child.status.value if child.status else "pruned" for child in children]
    failures = [
        shortened(failure_line(each.failure), 80) if each.failure else "" for each in children
    ]
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
        ("priority", "" if record.priority == PRIORITY_DEFAULT else str(record.priority)),
        ("events", str(record.number)),
    ]


def _times(record: RunRecord, now: datetime) -> list[tuple[str, str]]:
    ended = moment(record.finished_at, now)
    if record.finished_at is not None:
        ended += f", after {brief(record.finished_at - record.created_at)}"
    starts = moment(record.start_at, now) if record.started_at is None else ""
    created = moment(record.created_at, now)
    return [("created", created), ("starts", starts), ("ended", ended)]


def _settings(settings: RunSettings, now: datetime) -> list[tuple[str, str]]:
    timeout = "" if settings.timeout_ms is None else ms_text(settings.timeout_ms)
    if timeout and not settings.timeout_counts_waiting:
        timeout += ", not counting waiting"
    places = "" if settings.max_running is None else str(settings.max_running)
    if settings.running_key:
        places += f" per key {settings.running_key!r}"
    return [
        ("queue", settings.queue or ""),
        ("tags", ", ".join(settings.tags)),
        ("timeout", timeout),
        ("deadline", moment(settings.deadline, now)),
        ("max attempts", str(settings.max_attempts or "")),
        ("max running", places),
        ("sticky", "" if settings.sticky_ms is None else ms_text(settings.sticky_ms)),
    ]


def _values(run: RunDetail) -> list[tuple[str, str]]:
    is_completed = run.status is RunStatus.COMPLETED
    result = shortened(json_line(run.result), VALUE_LENGTH_MAX) if is_completed else ""
    return [
        ("input", shortened(json_line(run.events[0].value), VALUE_LENGTH_MAX)),
        ("result", result),
    ]


def _place(node: NodeRecord) -> str:
    """The current or last item, iteration or port."""
    if node.items is not None:
        return f"{node.items_completed}/{node.items} items"
    if node.iteration:
        return f"iteration {node.iteration}"
    return f"port {node.port}" if node.port else ""


def _output(node: NodeRecord) -> str:
    if node.status is not NodeStatus.COMPLETED:
        return ""
    shown = shortened(json_line(node.output), VALUE_LENGTH_MAX)
    return f"{shown} (after it failed)" if node.has_failed else shown


def _print_failure(console: Console, record: RunRecord, failure: Failure) -> None:
    place = f"node {record.failed_node} failed" if record.failed_node else "it failed"
    console.print(visible(place), style="bold red")
    causes = [("caused by", f"{cause.type}: {cause.message}") for cause in failure.causes]
    print_pairs(console, [("error", failure_line(failure)), *causes])
    print_traceback(console, failure)


_INNER = frozenset({"aging_ms", "effects", "has_progress", "poll_ms", "ref", "token"})
"""Event fields for the engine, which are not shown."""
_HAS_VALUE = frozenset(
    {
        "run_submitted",
        "node_completed",
        "item_completed",
        "iteration_completed",
        "node_paused",
        "node_reported",
        "approval_answered",
        "signal_received",
        "run_completed",
        "output_changed",
    }
)
_EVENT_STYLES = {
    "run_completed": "green",
    "run_failed": "red",
    "node_failed": "red",
    "undo_failed": "red",
    "node_retried": "yellow",
    "report_ignored": "yellow",
    "approval_reminded": "yellow",
    "approval_escalated": "yellow",
    "node_skipped": "dim",
    "compensation_started": "yellow",
    "run_paused": "magenta",
    "run_cancelled": "dim",
    "run_skipped": "dim",
}


NARROW = 100
"""Below this width, dates are omitted."""


class EventLines:
    """Prints one line per event, aligned to what has been printed so far."""

    def __init__(self, console: Console, known: Sequence[EventRecord] = ()) -> None:
        self._console = console
        self._time = "%H:%M:%S" if console.width < NARROW else "%Y-%m-%d %H:%M:%S"
        self._number_width = max((len(str(event.number)) for event in known), default=4)
        self._type_width = max(
            (len(event.type) for event in known), default=len("approval_answered")
        )
        self._key_width = min(40, max((len(event.key or "") for event in known), default=16))

    def print(self, event: EventRecord) -> None:
        line = Text(f"{event.number:>{self._number_width}}  ")
        line.append(f"{event.at.astimezone().strftime(self._time)}  ", style="dim")
        style = _EVENT_STYLES.get(event.type, "")
        line.append(f"{event.type:{self._type_width}}  ", style=style)
        line.append(f"{visible(event.key or ''):{self._key_width}}  ")
        room = min(VALUE_LENGTH_MAX, max(20, self._console.width - len(line)))
        line.append(shortened(about(event), room))
        line.rstrip()
        self._console.print(line, soft_wrap=not self._console.is_terminal, no_wrap=True)


def about(event: EventRecord) -> str:
    """The details of an event: ``port=pay by=ann {"ok":true}``."""
    parts = [f"{name}={_detail_text(value)}" for name, value in _details(event) if value]
    if event.failure is not None:
        parts.append(failure_line(event.failure))
    if event.type in _HAS_VALUE:
        parts.append(json_line(event.value))
    return " ".join(parts)


def _details(event: EventRecord) -> Iterable[tuple[str, Any]]:
    return ((name, value) for name, value in event.details.items() if name not in _INNER)


def _detail_text(value: Any) -> str:
    match value:
        case {"run": run, "key": key}:
            return f"{run}:{key}"
        case {"run": run, "number": number}:
            return f"{run}:{number}"
        case list() | tuple():
            return ",".join(map(str, value))
        case str() if " " in value:
            return json_line(value)
        case _:
            return str(value)


LINEAGE_PARTS_MAX = 20
"""Maximum items or iterations per node in text output."""


def print_lineage(lineage: Lineage, out: CommandOutput) -> None:
    console = out.console
    for node in lineage.nodes:
        console.print(_lineage_head(node), soft_wrap=True)
        for line in _lineage_lines(node):
            room = min(VALUE_LENGTH_MAX, console.width)
            console.print(Text(shortened_line(line, room)), soft_wrap=True)


def shortened_line(line: str, room: int) -> str:
    """Truncate, keeping leading spaces."""
    indent = len(line) - len(line.lstrip())
    return f"{' ' * indent}{shortened(line, max(20, room - indent))}"


def _lineage_head(node: NodeLineage) -> Text:
    line = Text(visible(node.id), style="bold")
    line.append(f"  {node.type}, ", style="not bold")
    line.append(node.status.value, style=f"not bold {STYLES.get(node.status, '')}")
    if node.output:
        line.append(f", output in event {node.output}", style="not bold")
    if node.child is not None:
        line.append(f", run {visible(node.child)}", style="not bold")
    return line


def _lineage_lines(node: NodeLineage) -> Iterator[str]:
    yield from _uses(node.uses, "  ")
    for part in node.parts[:LINEAGE_PARTS_MAX]:
        output = f", output in event {part.output}" if part.output else ""
        yield f"  {part.key}{output}"
        yield from _uses(part.uses, "    ")
    if len(node.parts) > LINEAGE_PARTS_MAX:
        yield f"  and {len(node.parts) - LINEAGE_PARTS_MAX} more: --json has them all"


def _uses(uses: Sequence[Use], indent: str) -> Iterator[str]:
    for use in uses:
        name = f"{use.name} " if use.name else ""
        if use.origin is UseOrigin.SECRET:
            yield f"{indent}{name}← {use.text}"
            continue
        place = f" (event {use.number})" if use.number else ""
        default = " (the default)" if use.is_default else ""
        yield f"{indent}{name}← {use.text}{place}{default} = {json_line(use.value)}"


_DETAIL_LENGTH_MAX = 200


def wait_table(waits: Page[WaitRecord], out: CommandOutput) -> None:
    print_table(out.console, wait_columns(waits, out.now, is_across=out.is_across))


def wait_columns(found: Sequence[WaitRecord], now: datetime, *, is_across: bool) -> list[Column]:
    """Columns of waits; ``is_across`` if they span several namespaces."""
    namespaces = [each.namespace if is_across else "" for each in found]
    details = ["" if each.detail is None else json_line(each.detail) for each in found]
    shown = [shortened(each, _DETAIL_LENGTH_MAX) for each in details]
    return [
        Column(title="RUN", cells=[each.run for each in found], room_min=12),
        Column(title="NAMESPACE", cells=namespaces, rank=5, room_min=9),
        Column(title="NODE", cells=[each.key for each in found], room_min=8),
        Column(title="FOR", cells=[each.type.value for each in found]),
        Column(title="NAME", cells=[each.name for each in found], rank=2, room_min=8),
        Column(
            title="SINCE",
            cells=[ago(each.opened_at, now) for each in found],
            rank=1,
            is_number=True,
        ),
        Column(
            title="DUE", cells=[_wait_left(each, now) for each in found], rank=3, is_number=True
        ),
        Column(title="DETAIL", cells=shown, rank=4, room_min=16),
    ]


def _wait_left(wait: WaitRecord, now: datetime) -> str:
    if wait.due_at is None:
        return ""
    return ahead(wait.due_at, now) if wait.due_at > now else "over"
