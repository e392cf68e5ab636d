"""Approvals in a list, and one in full, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from rich.console import Console

from perdure.cli.views.console import Column, json_line, moment, print_pairs, print_table, shortened
from perdure.cli.views.runs import VALUE_LENGTH_MAX
from perdure.diagnostics import as_data
from perdure.errors import fault_text
from perdure.model.text import visible, visible_lines
from perdure.model.times import ago, ahead
from perdure.operations.records import Answer, ApprovalRecord

if TYPE_CHECKING:
    from perdure.cli.command import CommandOutput
    from perdure.operations.page import Page

INDENT_WIDTH = 2


def approval_table(records: Page[ApprovalRecord], out: CommandOutput) -> None:
    print_table(out.console, approval_columns(records, out.now, is_across=out.is_across))
    for record in records:
        if record.fault is not None:
            text = fault_text(record.fault, out.renderer)
            out.console.print(visible(f"{record.id}: {text}"), style="yellow", soft_wrap=True)


def approval_fields(record: ApprovalRecord, out: CommandOutput) -> dict[str, Any]:
    fault = record.fault and as_data(record.fault, out.renderer)
    return {**asdict(record), "fault": fault}


def approval_columns(
    records: Sequence[ApprovalRecord], now: datetime, *, is_across: bool
) -> list[Column]:
    """Columns of open approvals; ``is_across`` if they span several namespaces."""
    namespaces = [each.namespace if is_across else "" for each in records]
    ages = [ago(each.opened_at, now) for each in records]
    return [
        Column(title="APPROVAL", cells=[each.id for each in records], room_min=12),
        Column(title="NAMESPACE", cells=namespaces, rank=4, room_min=9),
        Column(title="TITLE", cells=[_title(each) for each in records], room_min=12),
        Column(title="FOR", cells=[",".join(each.deciders) for each in records], rank=2),
        Column(title="OPEN", cells=ages, rank=1, is_number=True),
        Column(title="DUE", cells=[_left(each, now) for each in records], rank=3, is_number=True),
        Column(title="ANSWERS", cells=[_answered(each) for each in records], rank=5),
        Column(title="FLOW", cells=[each.flow for each in records], rank=6, room_min=8),
    ]


def print_approval(record: ApprovalRecord, out: CommandOutput) -> None:
    """Print all that is needed to decide, and the answers so far."""
    console, now = out.console, out.now
    console.print(visible(_title(record)), style="bold")
    if record.message:
        _print_indented(console, record.message)
    console.print()
    pairs = [
        ("approval", record.id),
        ("flow", record.flow),
        ("status", record.status.value),
        ("for", ", ".join(record.deciders) or "anyone"),
        ("needs", _needs(record)),
        ("choices", ", ".join(record.choices)),
        ("opened", moment(record.opened_at, now)),
        ("due", moment(record.due_at, now)),
        ("revision", str(record.revision or "")),
        ("decision", record.decision or ""),
        ("decided", moment(record.decided_at, now)),
    ]
    print_pairs(console, [(name, value) for name, value in pairs if value])
    if record.fault is not None:
        console.print()
        console.print(
            visible(fault_text(record.fault, out.renderer)), style="yellow", soft_wrap=True
        )
    now_title = f"now (revision {record.revision})" if record.revision else "data"
    if record.data != record.show:
        _print_values(console, "as opened", record.show)
    _print_values(console, now_title, record.data)
    _print_said(console, record, now)


def answer_text(record: ApprovalRecord) -> str:
    """Print the effect of an answer in one line."""
    if record.is_open:
        count = len(record.answers)
        answers = "1 answer" if count == 1 else f"{count} answers"
        return f"{record.id} is open: {answers}, {_needs(record)}"
    port = f", continues on port {record.port}" if record.port else ""
    return f"{record.id} is {record.status.value}: {record.decision}{port}"


def _needs(record: ApprovalRecord) -> str:
    if record.quorum == 0:
        return "needs all of them"
    return "" if record.quorum == 1 else f"needs {record.quorum} that agree"


def _left(record: ApprovalRecord, now: datetime) -> str:
    if record.due_at is None:
        return ""
    return ahead(record.due_at, now) if record.due_at > now else "over"


def _answered(record: ApprovalRecord) -> str:
    if record.quorum == 1:
        return ""
    return f"{len(record.answers)}/{record.quorum or len(record.deciders)}"


def _print_values(console: Console, name: str, values: Any) -> None:
    """A heading, and one line per key for an object, otherwise one line."""
    if values is None or values == {}:
        return
    console.print()
    console.print(f"{name}:", style="bold")
    if isinstance(values, dict):
        pairs = [(str(key), _shown(value)) for key, value in values.items()]
        print_pairs(console, pairs, indent=INDENT_WIDTH)
    else:
        _print_indented(console, _shown(values))


def _print_indented(console: Console, text: str) -> None:
    """Text of others, which may have lines that look like those of the command."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding.indent(Text(visible_lines(text)), INDENT_WIDTH))


def _title(record: ApprovalRecord) -> str:
    """The title as it was when the approval opened, and whether an answer has edited the data."""
    return f"(edited) {record.title}" if record.revision else record.title


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json_line(value)
    return shortened(text, VALUE_LENGTH_MAX)


def _print_said(console: Console, record: ApprovalRecord, now: datetime) -> None:
    said = [(each.by or "someone", _answer(each, now)) for each in record.answers]
    said += [
        (
            "escalation" if each.is_escalation else "reminder",
            f"{moment(each.at, now)}{_joined(each.deciders)}",
        )
        for each in record.reminders
    ]
    if said:
        console.print()
        console.print("history:", style="bold")
        print_pairs(console, said, indent=INDENT_WIDTH)


def _answer(answer: Answer, now: datetime) -> str:
    note = f': "{answer.note}"' if answer.note else ""
    data = "" if answer.data is None else f" {_shown(answer.data)}"
    return f"{answer.decision}{note}{data}, {moment(answer.at, now)}"


def _joined(deciders: Sequence[str]) -> str:
    return f", from then on also {', '.join(deciders)}" if deciders else ""
