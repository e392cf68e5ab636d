"""Diagrams as SVG: shapes, text measured without a font, and a palette for light and dark."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from html import escape

from perdure.model.text import visible, visible_lines
from perdure.model.value import Value
from perdure.render.diagram import Diagram, DiagramEdge, DiagramNode, NodeMark
from perdure.render.layout import ARROW, MARGIN, Layout, Link, Rectangle, Size, Stretch, laid_out

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

_NARROW = frozenset("iljtfrI.,:;'|!()[]{}/ ")
_WIDE = frozenset("mwMW@%&—")

# Characters that XML does not allow, even escaped.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Lettering(Value):
    size: float
    is_bold: bool = False

    @property
    def height(self) -> float:
        return self.size * 1.35


NAME = Lettering(size=13, is_bold=True)
NOTE = Lettering(size=11)
TYPE = Lettering(size=9.5)
LABEL = Lettering(size=10.5)
TITLE = Lettering(size=15, is_bold=True)


def escaped(text: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", visible_lines(text)))


def shortened(text: str, length: int) -> str:
    """Truncate to one line of ``length`` characters, keeping the end, where ids often differ."""
    line = visible(" ".join(text.split()))
    if len(line) <= length:
        return line
    tail = length // 3
    return f"{line[: length - tail - 1]}…{line[-tail:]}"


def width_of(text: str, lettering: Lettering) -> float:
    """The approximate width of a string; an overestimate in most fonts."""
    em = 0.0
    for character in text:
        if character in _NARROW:
            em += 0.4
        elif character in _WIDE:
            em += 0.98
        elif unicodedata.east_asian_width(character) in "WF":
            em += 1.05
        elif not unicodedata.combining(character):
            em += 0.72 if character.isupper() or not character.isascii() else 0.63
    return em * lettering.size * (1.08 if lettering.is_bold else 1.0)


PAPER, INK, LINE, UNTAKEN, FAINT = "#ffffff", "#1f2328", "#57606a", "#818b98", "#d0d7de"
"""A diagram has its own background, so that it is readable on any page."""


class Style(Value):
    fill: str
    stroke: str
    text: str = INK
    is_dashed: bool = False


PLAIN = Style(fill="#f6f8fa", stroke=LINE)

STYLES: dict[NodeMark, Style] = {
    NodeMark.COMPLETED: Style(fill="#c7ecdd", stroke="#00694c"),
    NodeMark.LIVE: Style(fill="#ffe29a", stroke="#7a4f00"),
    NodeMark.WAITING: Style(fill="#cfe6fb", stroke="#0b5d95"),
    NodeMark.PAUSED: Style(fill="#e6dcf7", stroke="#5b3a9b"),
    NodeMark.FAILED: Style(fill="#ffd4c7", stroke="#a02c06"),
    NodeMark.SKIPPED: Style(fill="#f6f8fa", stroke="#6e7781", text=LINE, is_dashed=True),
    NodeMark.BLOCKED: Style(fill="#f3dfea", stroke="#8f3d6e", is_dashed=True),
    NodeMark.CANCELLED: Style(fill="#dcdfe3", stroke="#424a53"),
    NodeMark.NOT_REACHED: Style(fill="#ffffff", stroke="#6e7781", text=LINE, is_dashed=True),
}

SIGNS: dict[NodeMark, str] = {
    NodeMark.COMPLETED: "✓",
    NodeMark.LIVE: "▶",
    NodeMark.WAITING: "…",
    NodeMark.PAUSED: "‖",
    NodeMark.FAILED: "✗",
    NodeMark.SKIPPED: "–",
    NodeMark.BLOCKED: "⊘",
    NodeMark.CANCELLED: "■",
    NodeMark.NOT_REACHED: "",
}


_SIGN_PATHS = {
    NodeMark.COMPLETED: "M-3.6 0.2L-1 3L4 -3",
    NodeMark.FAILED: "M-3 -3L3 3M-3 3L3 -3",
    NodeMark.LIVE: "M-2 -3.6L4 0L-2 3.6Z",
    NodeMark.WAITING: "M-3.6 0h0.1M0 0h0.1M3.6 0h0.1",
    NodeMark.PAUSED: "M-1.8 -3.2V3.2M1.8 -3.2V3.2",
    NodeMark.SKIPPED: "M-3.6 0H3.6",
    NodeMark.BLOCKED: "M-3.2 3.2L3.2 -3.2M0 -4.4A4.4 4.4 0 1 1 0 4.4A4.4 4.4 0 1 1 0 -4.4",
    NodeMark.CANCELLED: "M-2.6 -2.6H2.6V2.6H-2.6Z",
}
"""The symbols as paths around the origin, because fonts may lack them."""

SLANT = 12.0
STACK = 4.0
LOOP_ASIDE = 22.0
SIGN_RADIUS = 8.0


def outline(shape: str, box: Rectangle) -> str:
    """The outline of a box as a path."""
    left, top, right, bottom = box.x, box.y, box.x + box.width, box.y + box.height
    middle = (top + bottom) / 2
    match shape:
        case "route":
            return _closed(
                (left + SLANT, top), (right - SLANT, top), (right, middle),
                (right - SLANT, bottom), (left + SLANT, bottom), (left, middle),
            )  # fmt: skip
        case "signal":
            return _closed(
                (left + SLANT, top), (right, top), (right - SLANT, bottom), (left, bottom)
            )
        case "approval":
            return _closed(
                (left + SLANT, top), (right - SLANT, top), (right, bottom), (left, bottom)
            )
        case "delay":
            return _rounded(box, box.height / 2)
        case "loop":
            return _rounded(box, 14)
        case _:
            return _rounded(box, 4)


def behind(shape: str, box: Rectangle) -> list[str]:
    """Elements behind the box: a map is a stack of boxes."""
    if shape != "map":
        return []
    shifts = (2 * STACK, STACK)
    return [
        _rounded(Rectangle(x=box.x + by, y=box.y + by, width=box.width, height=box.height), 4)
        for by in shifts
    ]


def inside(shape: str, box: Rectangle) -> list[str]:
    """Elements on top of the box: the bars of a child, the arrow of a loop."""
    right, bottom = box.x + box.width, box.y + box.height
    if shape == "child":
        return [f"M{n(x)} {n(box.y)}V{n(bottom)}" for x in (box.x + 6, right - 6)]
    if shape == "loop":
        low, high, far = bottom - box.height / 4, box.y + box.height / 4, right + 18
        back = f"M{n(right)} {n(low)}C{n(far)} {n(low)} {n(far)} {n(high)} {n(right + 2)} {n(high)}"
        head = (
            f"M{n(right + 7)} {n(high - 4)}L{n(right + 1)} {n(high)}L{n(right + 7)} {n(high + 4)}"
        )
        return [back + head]
    return []


def aside_of(shape: str) -> float:
    """The space that a shape needs to the right of its box."""
    return {"loop": LOOP_ASIDE, "map": 2 * STACK}.get(shape, 0.0)


def badge(mark: NodeMark, x: float, y: float) -> Iterator[str]:
    """A mark as a symbol in a circle."""
    style = STYLES[mark]
    yield (
        f'<circle cx="{n(x)}" cy="{n(y)}" r="{n(SIGN_RADIUS)}" fill="{PAPER}" '
        f'stroke="{style.stroke}" stroke-width="1.5"/>'
    )
    if path := _SIGN_PATHS.get(mark):
        drawn = f'<path transform="translate({n(x)} {n(y)})" d="{path}"/>'
        fill = style.stroke if mark in (NodeMark.LIVE, NodeMark.CANCELLED) else "none"
        yield (
            f'<g fill="{fill}" stroke="{style.stroke}" stroke-width="2" stroke-linecap="round" '
            f'stroke-linejoin="round">{drawn}</g>'
        )


def n(number: float) -> str:
    """A number, rounded for a diagram."""
    return f"{number:.1f}".removesuffix(".0")


def _closed(*points: tuple[float, float]) -> str:
    return "M" + "L".join(f"{n(x)} {n(y)}" for x, y in points) + "Z"


def _rounded(box: Rectangle, radius: float) -> str:
    width, height = box.width - 2 * radius, box.height - 2 * radius
    corner = f"a{n(radius)} {n(radius)} 0 0 1 "
    r = n(radius)
    return (
        f"M{n(box.x + radius)} {n(box.y)}h{n(width)}{corner}{r} {r}v{n(height)}{corner}-{r} {r}"
        f"h{n(-width)}{corner}-{r} -{r}v{n(-height)}{corner}{r} -{r}Z"
    )


TITLE_MAX = 80


def frame(title: str, description: str, width: float, height: float) -> Iterator[str]:
    """The opening of a self-contained, accessible diagram."""
    size = f'width="{n(width)}" height="{n(height)}" viewBox="0 0 {n(width)} {n(height)}"'
    label = escaped(title)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}" '
        f'font-family="{FONT}">'
    )
    yield f"<title>{label}</title>"
    yield f"<desc>{escaped(description)}</desc>"
    yield (
        f'<rect x="0.5" y="0.5" width="{n(width - 1)}" height="{n(height - 1)}" rx="8" '
        f'fill="{PAPER}" stroke="{FAINT}"/>'
    )
    yield text(16, 21, shortened(title, TITLE_MAX), TITLE, INK)


def text(
    x: float, y: float, shown: str, lettering: Lettering, color: str, anchor: str = "start"
) -> str:
    weight = ' font-weight="600"' if lettering.is_bold else ""
    return (
        f'<text x="{n(x)}" y="{n(y)}" font-size="{n(lettering.size)}"{weight} fill="{color}" '
        f'text-anchor="{anchor}">{escaped(shown)}</text>'
    )


NAME_MAX, NOTE_MAX, LABEL_MAX = 28, 34, 22
"""Maximum characters; a tooltip has the full string."""
TITLE_HEIGHT, LEGEND_HEIGHT = 28.0, 26.0
LEGEND_GAP = 14.0
_PADDING_X, _PADDING_Y = 14.0, 9.0
_BOX_WIDTH_MIN = 84.0


class _Text(Value):
    text: str
    lettering: Lettering
    is_faint: bool = False


def svg(diagram: Diagram) -> str:
    """A diagram as SVG, deterministic and accessible: its description has the same content."""
    edges = _merged(diagram.edges)
    numbers = {node.id: number for number, node in enumerate(diagram.nodes)}
    links = []
    for edge in edges:
        label = None
        if edge.label:
            width = width_of(shortened(edge.label, LABEL_MAX), LABEL) + 10
            label = Size(width=width, height=LABEL.height + 2)
        links.append(Link(source=numbers[edge.source], target=numbers[edge.target], label=label))
    layout = laid_out([_size(node) for node in diagram.nodes], links)

    legend: list[tuple[NodeMark, float]] = []
    legend_width = 0.0
    for mark in NodeMark:
        if any(node.mark is mark for node in diagram.nodes):
            legend.append((mark, legend_width))
            legend_width += 2 * SIGN_RADIUS + 5 + width_of(mark, NOTE) + LEGEND_GAP
    title = f"{diagram.title} ({diagram.status})" if diagram.status else diagram.title
    title_width = width_of(shortened(title, TITLE_MAX), TITLE)
    width = max(layout.width, title_width + 2 * MARGIN, legend_width + 2 * MARGIN)
    height = TITLE_HEIGHT + layout.height + (LEGEND_HEIGHT if legend else 0)
    shift = (width - layout.width) / 2

    parts = [
        *frame(title, described(diagram), width, height),
        f'<g transform="translate({n(shift)} {n(TITLE_HEIGHT)})">',
        *_drawn_edges(edges, layout),
    ]
    for node, box in zip(diagram.nodes, layout.boxes, strict=True):
        parts += _drawn_node(node, box)
    for edge, label_box in zip(edges, layout.labels, strict=True):
        if label_box is not None:
            parts.append(_drawn_label(edge.label, label_box))
    parts.append("</g>")
    for mark, at in legend:
        x, y = MARGIN + at + SIGN_RADIUS, TITLE_HEIGHT + layout.height + 8
        parts += badge(mark, x, y)
        parts.append(text(x + SIGN_RADIUS + 5, y + 4, mark, NOTE, INK))
    return "\n".join([*parts, "</svg>"]) + "\n"


def described(diagram: Diagram) -> str:
    """The diagram in a sentence."""
    nodes, edges = len(diagram.nodes), len(diagram.edges)
    counts = Counter(node.mark for node in diagram.nodes if node.mark is not None)
    marks = ", ".join(f"{counts[mark]} {mark}" for mark in NodeMark if counts[mark])
    status = f"The run is {diagram.status}. " if diagram.status else ""
    size = f"{status}{nodes} node{'s' * (nodes != 1)}, {edges} edge{'s' * (edges != 1)}"
    return f"{size}: {marks}." if marks else f"{size}."


def _lines(node: DiagramNode) -> list[_Text]:
    lines = []
    if node.shape != "task":
        lines.append(_Text(text=node.shape, lettering=TYPE, is_faint=True))
    lines.append(_Text(text=shortened(node.id, NAME_MAX), lettering=NAME))
    lines += [_Text(text=shortened(note, NOTE_MAX), lettering=NOTE) for note in node.notes]
    if node.mark is not None:
        status = f"{node.mark}, {node.progress}" if node.progress else node.mark.value
        lines.append(_Text(text=status, lettering=NOTE, is_faint=True))
    return lines


def _size(node: DiagramNode) -> Size:
    lines = _lines(node)
    width = max(width_of(line.text, line.lettering) for line in lines) + 2 * _PADDING_X
    if node.shape in ("route", "signal", "approval"):
        width += 2 * SLANT
    return Size(
        width=max(_BOX_WIDTH_MIN, width),
        height=sum(line.lettering.height for line in lines) + 2 * _PADDING_Y,
        aside=aside_of(node.shape),
    )


def _drawn_node(node: DiagramNode, box: Rectangle) -> Iterator[str]:
    style = PLAIN if node.mark is None else STYLES[node.mark]
    status = f"{node.mark} {node.progress}".strip() if node.mark is not None else ""
    tooltip = "\n".join(filter(None, [f"{node.id} ({node.type})", *node.notes, status]))
    yield f"<g><title>{escaped(tooltip)}</title>"
    dashes = ' stroke-dasharray="5 3"' if style.is_dashed else ""
    paint = f'fill="{style.fill}" stroke="{style.stroke}" stroke-width="1.5"{dashes}'
    for path in [*behind(node.shape, box), outline(node.shape, box)]:
        yield f'<path d="{path}" {paint}/>'
    for path in inside(node.shape, box):
        yield f'<path d="{path}" fill="none" stroke="{style.stroke}" stroke-width="1.5"/>'
    y = box.y + _PADDING_Y
    for line in _lines(node):
        y += line.lettering.height
        color = LINE if line.is_faint else style.text
        middle = box.x + box.width / 2
        yield text(
            middle, y - line.lettering.size * 0.32, line.text, line.lettering, color, "middle"
        )
    if node.mark is not None:
        yield from badge(node.mark, box.x + box.width - 3, box.y + 2)
    yield "</g>"


def _merged(edges: tuple[DiagramEdge, ...]) -> list[DiagramEdge]:
    """Merge edges between the same two nodes into one, with all their ports."""
    between: dict[tuple[str, str], list[DiagramEdge]] = {}
    for edge in edges:
        between.setdefault((edge.source, edge.target), []).append(edge)
    merged = []
    for (source, target), several in between.items():
        if len(several) == 1:
            merged += several
            continue
        taken = [edge.is_taken for edge in several]
        merged.append(
            DiagramEdge(
                source=source,
                target=target,
                label=" | ".join(edge.label or "ordinary" for edge in several),
                is_unusual=all(edge.is_unusual for edge in several),
                is_taken=True if True in taken else None if None in taken else False,
            )
        )
    return merged


class _Stroke(Value):
    """The style of a line; lines that run together take the most informative one."""

    is_taken: bool | None
    is_unusual: bool

    @property
    def strength(self) -> int:
        return 2 if self.is_taken else 1 if self.is_taken is None else 0


def _drawn_edges(edges: list[DiagramEdge], layout: Layout) -> Iterator[str]:
    """The edges, taken ones last, so that they are on top."""
    drawn: list[tuple[_Stroke, Stretch]] = []
    joined: dict[int, _Stroke] = {}
    for edge, line in zip(edges, layout.lines, strict=True):
        stroke = _Stroke(is_taken=edge.is_taken, is_unusual=edge.is_unusual)
        drawn.append((stroke, line))
        joined[line.end] = _together(joined.get(line.end, stroke), stroke)
    for trunk in layout.trunks:
        stroke = joined[trunk.start]
        drawn.append((stroke, trunk))
        joined[trunk.end] = _together(joined.get(trunk.end, stroke), stroke)
    for stroke, stretch in sorted(drawn, key=lambda each: each[0].strength):
        yield _drawn_stretch(stroke, stretch, leads_to_box=stretch.end < len(layout.boxes))


def _together(one: _Stroke, other: _Stroke) -> _Stroke:
    stronger = one if one.strength >= other.strength else other
    return _Stroke(is_taken=stronger.is_taken, is_unusual=one.is_unusual and other.is_unusual)


def _drawn_stretch(stroke: _Stroke, stretch: Stretch, *, leads_to_box: bool) -> str:
    color = (UNTAKEN, LINE, INK)[stroke.strength]
    width = 2.2 if stroke.is_taken else 1.4
    dashes = ' stroke-dasharray="6 4"' if stroke.is_unusual else ""
    if stroke.is_taken is False:
        dashes = ' stroke-dasharray="1.5 4"'
    segment = stretch.segment
    end = segment.y2 - (ARROW - 1 if leads_to_box else 0)
    middle = n((segment.turn_y + end) / 2)
    path = f"M{n(segment.x1)} {n(segment.y1)}V{n(segment.turn_y)}"
    path += f"C{n(segment.x1)} {middle} {n(segment.x2)} {middle} {n(segment.x2)} {n(end)}"
    line = f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{width}"{dashes}/>'
    if not leads_to_box:
        return line
    tip = f"M{n(segment.x2)} {n(segment.y2)}l-4.5 -{n(ARROW)}h9Z"
    return f'{line}<path d="{tip}" fill="{color}"/>'


def _drawn_label(label: str, box: Rectangle) -> str:
    shown = shortened(label, LABEL_MAX)
    middle = box.x + box.width / 2
    return (
        f"<g><title>{escaped(label)}</title>"
        f'<rect x="{n(box.x)}" y="{n(box.y)}" width="{n(box.width)}" '
        f'height="{n(box.height)}" rx="4" fill="{PAPER}" stroke="{FAINT}"/>'
        f"{text(middle, box.y + 12, shown, LABEL, INK, 'middle')}</g>"
    )
