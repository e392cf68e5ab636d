"""What was found in flows in files, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from perdure.flows.yaml.parse import FlowFault
from perdure.flows.yaml.validate import FileReport


def report_fields(report: FileReport) -> dict[str, Any]:
    return {
        "file": report.file,
        "ok": not report.errors,
        "flow": report.flow or None,
        "version": report.version,
        "nodes": report.nodes,
        "tasks": report.tasks,
        "unchecked": report.unchecked,
        "secrets": report.secrets,
        "errors": [_fault_fields(fault) for fault in report.errors],
        "warnings": report.warnings,
    }


def _fault_fields(fault: FlowFault) -> dict[str, Any]:
    return {
        "code": fault.fault.code,
        "file": fault.file or None,
        "line": fault.line or None,
        "column": fault.column or None,
        "node": fault.node or None,
        "message": fault.message,
    }


def print_reports(console: Console, reports: Sequence[FileReport]) -> None:
    for report in reports:
        for fault in report.errors:
            _print_line(console, _place(report, fault), "error", "red", _text(fault))
        for warning in report.warnings:
            _print_line(console, report.file, "warning", "yellow", warning)
        if not report.errors:
            _print_line(console, report.file, "ok", "green", _summary(report))
            _print_needs(console, report)
    errors = sum(len(report.errors) for report in reports)
    warnings = sum(len(report.warnings) for report in reports)
    told = [_counted(len(reports), "file"), _counted(errors, "error")]
    told += [_counted(warnings, "warning")] if warnings else []
    console.print(", ".join(told), style="bold red" if errors else "bold green")


def _place(report: FileReport, fault: FlowFault) -> str:
    file = fault.file or report.file
    return f"{file}:{fault.line}:{fault.column}" if fault.line else file


def _text(fault: FlowFault) -> str:
    return f"node {fault.node!r}: {fault.message}" if fault.node else fault.message


def _summary(report: FileReport) -> str:
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
            console.print(f"  {title}: {', '.join(names)}", soft_wrap=True)


def _print_line(console: Console, place: str, word: str, style: str, text: str) -> None:
    line = Text(f"{place} ").append(word, style=style).append(f" {' '.join(text.split())}")
    console.print(line, soft_wrap=True)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
