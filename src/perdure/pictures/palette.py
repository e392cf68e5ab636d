"""Colours and signs of marks. The colours differ in brightness too, and no mark is colour alone."""

from __future__ import annotations

from perdure.model.value import Value
from perdure.pictures.picture import Mark

PAPER, INK, LINE, UNTAKEN, FAINT = "#ffffff", "#1f2328", "#57606a", "#818b98", "#d0d7de"
"""A picture brings its own background, so that it can be read on any page."""


class Style(Value):
    fill: str
    stroke: str
    text: str = INK
    is_dashed: bool = False


PLAIN = Style(fill="#f6f8fa", stroke=LINE)

STYLES: dict[Mark, Style] = {
    Mark.COMPLETED: Style(fill="#c7ecdd", stroke="#00694c"),
    Mark.LIVE: Style(fill="#ffe29a", stroke="#7a4f00"),
    Mark.WAITING: Style(fill="#cfe6fb", stroke="#0b5d95"),
    Mark.PAUSED: Style(fill="#e6dcf7", stroke="#5b3a9b"),
    Mark.FAILED: Style(fill="#ffd4c7", stroke="#a02c06"),
    Mark.SKIPPED: Style(fill="#f6f8fa", stroke="#6e7781", text=LINE, is_dashed=True),
    Mark.BLOCKED: Style(fill="#f3dfea", stroke="#8f3d6e", is_dashed=True),
    Mark.CANCELLED: Style(fill="#dcdfe3", stroke="#424a53"),
    Mark.NOT_REACHED: Style(fill="#ffffff", stroke="#6e7781", text=LINE, is_dashed=True),
}

SIGNS: dict[Mark, str] = {
    Mark.COMPLETED: "✓",
    Mark.LIVE: "▶",
    Mark.WAITING: "…",
    Mark.PAUSED: "‖",
    Mark.FAILED: "✗",
    Mark.SKIPPED: "–",
    Mark.BLOCKED: "⊘",
    Mark.CANCELLED: "■",
    Mark.NOT_REACHED: "",
}
