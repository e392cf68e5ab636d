"""Flows, reports about flow files, and unserved versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from perdure.cli.renderer import one_line
from perdure.cli.views.console import Column, print_pairs, print_table
from perdure.diagnostics import Fault, Source, as_data
from perdure.errors import fault_text, flow_message, node_of
from perdure.flows.built import BuiltFlow
from perdure.flows.yaml.validate import FileReport
from perdure.model.facts import FlowRuns
from perdure.model.graph import (
    FAIL,
    ApprovalNode,
    Call,
    DelayNode,
    Edge,
    Graph,
    Node,
    SignalNode,
    type_of,
)
from perdure.model.payload import storable_text
from perdure.model.text import visible
from perdure.model.times import ago, ms_text
from perdure.operations.records import UnservedVersion
from perdure.render.diagram import deciders_text, delay_text

if TYPE_CHECKING:
    from perdure.cli.command import CommandOutput


def flow_fields(flow: BuiltFlow) -> dict[str, Any]:
    return {"name": flow.name, "version": flow.version, "definition": flow.graph.definition}


def listed_fields(flow: BuiltFlow) -> dict[str, Any]:
    """A flow in a list, without its definition."""
    return {"name": flow.name, "version": flow.version, "nodes": len(flow.graph.nodes)}


def module_columns(flows: Sequence[BuiltFlow]) -> list[Column]:
    """Columns of flows found in code."""
    nodes = [str(len(each.graph.nodes)) for each in flows]
    return [
        Column(title="FLOW", cells=[each.name for each in flows], room_min=12),
        Column(title="VERSION", cells=[each.version for each in flows]),
        Column(title="NODES", cells=nodes, rank=1, is_number=True),
        Column(title="STARTS", cells=[", ".join(each.flows) for each in flows], rank=2, room_min=8),
    ]


def store_columns(flows: Sequence[FlowRuns], now: datetime, *, is_across: bool) -> list[Column]:
    """Columns of flows with runs; ``is_across`` if they span several namespaces."""
    last = [each.last_submitted_at for each in flows]
    return [
        Column(title="FLOW", cells=[each.flow for each in flows], room_min=12),
        Column(title="VERSION", cells=[each.version for each in flows]),
        Column(
            title="NAMESPACE",
            cells=[each.namespace if is_across else "" for each in flows],
            rank=2,
            room_min=9,
        ),
        Column(title="LIVE", cells=[str(each.live) for each in flows], is_number=True),
        Column(title="ENDED", cells=[str(each.ended) for each in flows], is_number=True),
        Column(
            title="LAST",
            cells=["" if at is None else ago(at, now) for at in last],
            rank=1,
            is_number=True,
        ),
    ]


def print_flow(console: Console, flow: BuiltFlow) -> None:
    pairs = [("flow", flow.name), ("version", flow.version)]
    children = sorted(flow.flows)
    print_pairs(console, [*pairs, *(("starts", text) for text in children)])
    console.print()
    print_table(console, flow_node_columns(flow.graph))
    console.print()
    console.print(flow.mermaid().rstrip(), soft_wrap=True)


def flow_node_columns(graph: Graph) -> list[Column]:
    nodes = list(graph.nodes.values())
    after = [", ".join(map(_source, graph.incoming[node.id])) for node in nodes]
    return [
        Column(title="NODE", cells=[node.id for node in nodes], room_min=12),
        Column(title="TYPE", cells=[type_of(node) for node in nodes]),
        Column(title="DOES", cells=[does(node) for node in nodes], rank=1, room_min=10),
        Column(title="AFTER", cells=after, rank=2, room_min=10),
        Column(title="QUEUE", cells=[_queue(node) for node in nodes], rank=3, room_min=7),
        Column(title="IF IT FAILS", cells=[_if_it_fails(node) for node in nodes], rank=4),
    ]


def does(node: Node) -> str:
    """The task that a node calls, or what it waits for."""
    match node:
        case DelayNode():
            return f"waits {delay_text(node)}"
        case SignalNode():
            limit = "" if node.timeout_ms is None else f", {ms_text(node.timeout_ms)} at most"
            return f"waits for {node.signal}{limit}"
        case ApprovalNode():
            return f"{node.title}, {deciders_text(node)}"
        case _:
            body = _body(node)
            return body.task if isinstance(body, Call) else body.text


def _source(edge: Edge) -> str:
    return f"{edge.source}:{edge.port}" if edge.port else edge.source


def _body(node: Any) -> Any:
    return getattr(node, "call", None) or getattr(node, "body", None)


def _queue(node: Node) -> str:
    body = _body(node)
    return body.queue if isinstance(body, Call) else ""


def _if_it_fails(node: Node) -> str:
    match getattr(node, "on_error", FAIL):
        case "fail":
            return ""
        case "continue":
            return "continues"
        case port:
            return f"port {port}"


def report_fields(report: FileReport) -> dict[str, Any]:
    return {
        "file": storable_text(report.file),  # a name need not be UTF-8
        "ok": not report.faults,
        "flow": report.flow or None,
        "version": report.version,
        "nodes": report.nodes,
        "tasks": report.tasks,
        "unchecked": report.unchecked,
        "secrets": report.secrets,
        "errors": [_fault_fields(fault) for fault in report.faults],
        "warnings": [flow_message(each) for each in report.warnings],
    }


def _fault_fields(fault: Fault) -> dict[str, Any]:
    source = fault.source or Source()
    return {
        "code": fault.code,
        "file": storable_text(source.file) or None,
        "line": source.line or None,
        "column": source.column or None,
        "node": node_of(fault) or None,
        "message": flow_message(fault),
    }


def print_reports(console: Console, reports: Sequence[FileReport]) -> None:
    for report in reports:
        for fault in report.faults:
            _print_line(console, _fault_place(report, fault), "error", "red", _fault_text(fault))
        for warning in report.warnings:
            _print_line(console, report.file, "warning", "yellow", _fault_text(warning))
        if not report.faults:
            _print_line(console, report.file, "ok", "green", _report_summary(report))
            _print_needs(console, report)
    errors = sum(len(report.faults) for report in reports)
    warnings = sum(len(report.warnings) for report in reports)
    parts = [_counted(len(reports), "file"), _counted(errors, "error")]
    parts += [_counted(warnings, "warning")] if warnings else []
    console.print(", ".join(parts), style="bold red" if errors else "bold green")


def _fault_place(report: FileReport, fault: Fault) -> str:
    source = fault.source or Source()
    file = source.file or report.file
    return f"{file}:{source.line}:{source.column}" if source.line else file


def _fault_text(fault: Fault) -> str:
    node = node_of(fault)
    return f"node {node!r}: {flow_message(fault)}" if node else flow_message(fault)


def _report_summary(report: FileReport) -> str:
    version = f"@{report.version}" if report.version else ""
    return f"{report.flow}{version}, {_counted(report.nodes, 'node')}"


def _print_needs(console: Console, report: FileReport) -> None:
    checked = [task for task in report.tasks if task not in report.unchecked]
    for title, names in (
        ("tasks", checked),
        ("not checked", report.unchecked),
        ("secrets", report.secrets),
    ):
        if names:
            console.print(visible(f"  {title}: {', '.join(names)}"), soft_wrap=True)


def _print_line(console: Console, place: str, word: str, style: str, text: str) -> None:
    line = Text(f"{visible(place)} ").append(word, style=style).append(f" {one_line(text)}")
    console.print(line, soft_wrap=True)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


EXAMPLES_MAX = 3
"""How many ids or reasons per version are shown in text output."""


def unserved_fields(
    found: tuple[Sequence[UnservedVersion], int], out: CommandOutput
) -> list[dict[str, Any]]:
    return [
        {
            "namespace": each.namespace,
            "flow": each.flow,
            "version": each.version,
            "count": len(each.runs),
            "nearest": each.nearest,
            "migratable": each.migratable,
            "runs": [
                {
                    "id": run.id,
                    "status": run.status,
                    "differences": [as_data(fault, out.renderer) for fault in run.differences],
                }
                for run in each.runs
            ],
        }
        for each in found[0]
    ]


def print_unserved(found: tuple[Sequence[UnservedVersion], int], out: CommandOutput) -> None:
    """Unserved versions, with the number of all unfinished runs."""
    console, (versions, live) = out.console, found
    if not live:
        console.print("no unfinished runs")
        return
    if not versions:
        runs = "the one unfinished run" if live == 1 else f"all {live} unfinished runs"
        console.print(f"this code can continue {runs}", style="green")
        return
    print_table(console, version_columns(versions, is_across=out.is_across))
    for each in versions:
        _print_reasons(out, each)
    unserved = sum(len(each.runs) for each in versions)
    console.print()
    console.print(
        f"this code cannot continue {unserved} of {live} unfinished runs: keep workers of their "
        "versions, or migrate them (perdure runs migrate ID --to MODULE:FLOW)",
        style="bold red",
    )


def version_columns(found: Sequence[UnservedVersion], *, is_across: bool) -> list[Column]:
    return [
        Column(title="RUNS OF", cells=[f"{each.flow}@{each.version}" for each in found]),
        Column(
            title="NAMESPACE",
            cells=[each.namespace if is_across else "" for each in found],
            rank=2,
            room_min=9,
        ),
        Column(title="COUNT", cells=[str(len(each.runs)) for each in found], is_number=True),
        Column(title="NEAREST", cells=[each.nearest or "none" for each in found]),
        Column(
            title="MIGRATABLE", cells=[_migratable(each) for each in found], rank=1, is_number=True
        ),
        Column(title="RUNS", cells=[_examples(each) for each in found], rank=3, room_min=12),
    ]


def _migratable(version: UnservedVersion) -> str:
    return "" if version.nearest is None else f"{version.migratable}/{len(version.runs)}"


def _examples(version: UnservedVersion) -> str:
    shown = ", ".join(run.id for run in version.runs[:EXAMPLES_MAX])
    return f"{shown}, …" if len(version.runs) > EXAMPLES_MAX else shown


def _print_reasons(out: CommandOutput, version: UnservedVersion) -> None:
    """Why runs of a version cannot be migrated: each reason once, with an example run."""
    console = out.console
    first: dict[str, str] = {}
    for run in version.runs:
        for fault in run.differences:
            first.setdefault(fault_text(fault, out.renderer), run.id)
    if not first:
        return
    console.print()
    console.print(
        visible(f"cannot be migrated from {version.flow}@{version.version}:"), style="bold"
    )
    for reason, id in islice(first.items(), EXAMPLES_MAX):
        console.print(visible(f"  {id}: {reason}"), soft_wrap=True)
    if len(first) > EXAMPLES_MAX:
        console.print(f"  and {len(first) - EXAMPLES_MAX} more: --json has them all", style="dim")
