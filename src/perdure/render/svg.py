"""Diagrams as SVG: shapes, text measured without a font, and a palette for light and dark."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from html import escape

from perdure.model.value import Value
from perdure.render.diagram import Mark, Picture, PictureEdge, PictureNode
from perdure.render.layout import ARROW, MARGIN, Layout, Link, Rectangle, Size, Stretch, laid_out

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

_NARROW = frozenset("iljtfrI.,:;'|!()[]{}/ ")
_WIDE = frozenset("mwMW@%&—")

# What XML cannot hold even escaped.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Lettering(Value):
    size: float
    is_bold: bool = False

    @property
    def height(self) -> float:
        return self.size * 1.35


NAME = Lettering(size=13, is_bold=True)
NOTE = Lettering(size=11)
KIND = Lettering(size=9.5)
LABEL = Lettering(size=10.5)
TITLE = Lettering(size=15, is_bold=True)


def escaped(text: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", text))


def shortened(text: str, length: int) -> str:
    """One line of at most so many characters. What ids differ in is often their end: it stays."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    tail = length // 3
    return f"{line[: length - tail - 1]}…{line[-tail:]}"


def width_of(text: str, lettering: Lettering) -> float:
    """About how wide a text is; rather more than less, in whatever font there is."""
    em = sum(map(_em, text))
    return em * lettering.size * (1.08 if lettering.is_bold else 1.0)


def _em(character: str) -> float:
    if character in _NARROW:
        return 0.4
    if character in _WIDE:
        return 0.98
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if unicodedata.combining(character):
        return 0.0
    return 0.72 if character.isupper() or not character.isascii() else 0.63


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


SLANT = 12.0
STACK = 4.0
LOOP_ASIDE = 22.0
SIGN_RADIUS = 8.0


def outline(shape: str, box: Rectangle) -> str:
    """The path that goes round a box."""
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
    """What is drawn before the box: a map is a stack of boxes."""
    if shape != "map":
        return []
    shifts = (2 * STACK, STACK)
    return [
        _rounded(Rectangle(x=box.x + by, y=box.y + by, width=box.width, height=box.height), 4)
        for by in shifts
    ]


def inside(shape: str, box: Rectangle) -> list[str]:
    """What is drawn upon the box: the bars of a child, the way back of a loop."""
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
    """What a shape needs to the right of its box."""
    return {"loop": LOOP_ASIDE, "map": 2 * STACK}.get(shape, 0.0)


def badge(mark: Mark, x: float, y: float) -> Iterator[str]:
    """A mark as a sign in a circle; drawn, because fonts may lack it."""
    style = STYLES[mark]
    drawn = _sign(mark, x, y)
    if drawn or mark is Mark.NOT_REACHED:
        yield (
            f'<circle cx="{n(x)}" cy="{n(y)}" r="{n(SIGN_RADIUS)}" fill="{PAPER}" '
            f'stroke="{style.stroke}" stroke-width="1.5"/>'
        )
    if drawn:
        fill = style.stroke if mark in (Mark.LIVE, Mark.CANCELLED) else "none"
        yield (
            f'<g fill="{fill}" stroke="{style.stroke}" stroke-width="2" stroke-linecap="round" '
            f'stroke-linejoin="round">{drawn}</g>'
        )


def _sign(mark: Mark, x: float, y: float) -> str:
    moves = {
        Mark.COMPLETED: "M-3.6 0.2L-1 3L4 -3",
        Mark.FAILED: "M-3 -3L3 3M-3 3L3 -3",
        Mark.LIVE: "M-2 -3.6L4 0L-2 3.6Z",
        Mark.WAITING: "M-3.6 0h0.1M0 0h0.1M3.6 0h0.1",
        Mark.PAUSED: "M-1.8 -3.2V3.2M1.8 -3.2V3.2",
        Mark.SKIPPED: "M-3.6 0H3.6",
        Mark.BLOCKED: "M-3.2 3.2L3.2 -3.2M0 -4.4A4.4 4.4 0 1 1 0 4.4A4.4 4.4 0 1 1 0 -4.4",
        Mark.CANCELLED: "M-2.6 -2.6H2.6V2.6H-2.6Z",
        Mark.NOT_REACHED: "",
    }
    return f'<path transform="translate({n(x)} {n(y)})" d="{moves[mark]}"/>' if moves[mark] else ""


def n(number: float) -> str:
    """A number as short as a picture needs it."""
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
    """The opening of a picture that can be read on any page, and be read aloud."""
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
    x: float, y: float, shown: str, lettering: Lettering, colour: str, anchor: str = "start"
) -> str:
    weight = ' font-weight="600"' if lettering.is_bold else ""
    return (
        f'<text x="{n(x)}" y="{n(y)}" font-size="{n(lettering.size)}"{weight} fill="{colour}" '
        f'text-anchor="{anchor}">{escaped(shown)}</text>'
    )


NAME_MAX, NOTE_MAX, LABEL_MAX = 28, 34, 22
"""Characters that are shown; the whole text comes up when one points at it."""
TITLE_HEIGHT, LEGEND_HEIGHT = 28.0, 26.0
LEGEND_GAP = 14.0
_PADDING_X, _PADDING_Y = 14.0, 9.0
_BOX_WIDTH_MIN = 84.0


class _Text(Value):
    text: str
    lettering: Lettering
    is_faint: bool = False


def svg(picture: Picture) -> str:
    """The same for equal pictures. Accessible: what it shows is said in its description too."""
    edges = _merged(picture.edges)
    numbers = {node.id: number for number, node in enumerate(picture.nodes)}
    layout = laid_out(
        [_size(node) for node in picture.nodes],
        [_link(edge, numbers) for edge in edges],
    )
    legend = _legend(picture)
    title_width = width_of(shortened(_title(picture), TITLE_MAX), TITLE)
    width = max(layout.width, title_width + 2 * MARGIN, legend[1] + 2 * MARGIN)
    height = TITLE_HEIGHT + layout.height + (LEGEND_HEIGHT if legend[0] else 0)
    shift = (width - layout.width) / 2
    parts = [
        *frame(_title(picture), described(picture), width, height),
        f'<g transform="translate({n(shift)} {n(TITLE_HEIGHT)})">',
        *_drawn_edges(edges, layout),
        *(
            part
            for node, box in zip(picture.nodes, layout.boxes, strict=True)
            for part in _drawn_node(node, box)
        ),
        *_drawn_labels(edges, layout),
        "</g>",
        *_placed_legend(legend[0], TITLE_HEIGHT + layout.height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def described(picture: Picture) -> str:
    """The picture in a sentence."""
    nodes, edges = len(picture.nodes), len(picture.edges)
    counts = Counter(node.mark for node in picture.nodes if node.mark is not None)
    marks = ", ".join(f"{counts[mark]} {mark}" for mark in Mark if counts[mark])
    status = f"The run is {picture.status}. " if picture.status else ""
    told = f"{status}{_counted(nodes, 'node')}, {_counted(edges, 'edge')}"
    return f"{told}: {marks}." if marks else f"{told}."


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


# The frame


def _title(picture: Picture) -> str:
    return f"{picture.title} ({picture.status})" if picture.status else picture.title


def _legend(picture: Picture) -> tuple[list[tuple[Mark, float]], float]:
    """The marks that are there and where each is told of, and how wide they all are."""
    marks = [mark for mark in Mark if any(node.mark is mark for node in picture.nodes)]
    placed, at = [], 0.0
    for mark in marks:
        placed.append((mark, at))
        at += 2 * SIGN_RADIUS + 5 + width_of(mark, NOTE) + LEGEND_GAP
    return placed, at


def _placed_legend(marks: list[tuple[Mark, float]], top: float) -> Iterator[str]:
    for mark, at in marks:
        x, y = MARGIN + at + SIGN_RADIUS, top + 8
        yield from badge(mark, x, y)
        yield text(x + SIGN_RADIUS + 5, y + 4, mark, NOTE, INK)


# Nodes


def _lines(node: PictureNode) -> list[_Text]:
    lines = []
    if node.shape != "task":
        lines.append(_Text(text=node.shape, lettering=KIND, is_faint=True))
    lines.append(_Text(text=shortened(node.id, NAME_MAX), lettering=NAME))
    lines += [_Text(text=shortened(note, NOTE_MAX), lettering=NOTE) for note in node.notes]
    if node.mark is not None:
        status = f"{node.mark}, {node.progress}" if node.progress else node.mark.value
        lines.append(_Text(text=status, lettering=NOTE, is_faint=True))
    return lines


def _size(node: PictureNode) -> Size:
    lines = _lines(node)
    width = max(width_of(line.text, line.lettering) for line in lines) + 2 * _PADDING_X
    if node.shape in ("route", "signal", "approval"):
        width += 2 * SLANT
    return Size(
        width=max(_BOX_WIDTH_MIN, width),
        height=sum(line.lettering.height for line in lines) + 2 * _PADDING_Y,
        aside=aside_of(node.shape),
    )


def _drawn_node(node: PictureNode, box: Rectangle) -> Iterator[str]:
    style = PLAIN if node.mark is None else STYLES[node.mark]
    yield f"<g>{_tooltip(node)}"
    paint = f'fill="{style.fill}" stroke="{style.stroke}" stroke-width="1.5"{_dashed(style)}'
    for path in [*behind(node.shape, box), outline(node.shape, box)]:
        yield f'<path d="{path}" {paint}/>'
    for path in inside(node.shape, box):
        yield f'<path d="{path}" fill="none" stroke="{style.stroke}" stroke-width="1.5"/>'
    y = box.y + _PADDING_Y
    for line in _lines(node):
        y += line.lettering.height
        colour = LINE if line.is_faint else style.text
        middle = box.x + box.width / 2
        yield text(
            middle, y - line.lettering.size * 0.32, line.text, line.lettering, colour, "middle"
        )
    if node.mark is not None:
        yield from badge(node.mark, box.x + box.width - 3, box.y + 2)
    yield "</g>"


def _tooltip(node: PictureNode) -> str:
    status = f"{node.mark} {node.progress}".strip() if node.mark is not None else ""
    lines = [f"{node.id} ({node.kind})", *node.notes, status]
    return f"<title>{escaped(chr(10).join(filter(None, lines)))}</title>"


def _dashed(style: Style) -> str:
    return ' stroke-dasharray="5 3"' if style.is_dashed else ""


# Edges


def _merged(edges: tuple[PictureEdge, ...]) -> list[PictureEdge]:
    """Edges between the same two nodes as one, with all their ports."""
    between: dict[tuple[str, str], list[PictureEdge]] = {}
    for edge in edges:
        between.setdefault((edge.source, edge.target), []).append(edge)
    return [_merged_edge(several) for several in between.values()]


def _merged_edge(edges: list[PictureEdge]) -> PictureEdge:
    first, *more = edges
    if not more:
        return first
    taken = [edge.is_taken for edge in edges]
    return PictureEdge(
        source=first.source,
        target=first.target,
        label=" | ".join(edge.label or "ordinary" for edge in edges),
        is_unusual=all(edge.is_unusual for edge in edges),
        is_taken=True if True in taken else None if None in taken else False,
    )


def _link(edge: PictureEdge, numbers: dict[str, int]) -> Link:
    label = None
    if edge.label:
        width = width_of(shortened(edge.label, LABEL_MAX), LABEL) + 10
        label = Size(width=width, height=LABEL.height + 2)
    return Link(source=numbers[edge.source], target=numbers[edge.target], label=label)


class _Stroke(Value):
    """How a line looks; of several that run together, as the one that says most."""

    is_taken: bool | None
    is_unusual: bool

    @property
    def strength(self) -> int:
        return 2 if self.is_taken else 1 if self.is_taken is None else 0


def _drawn_edges(edges: list[PictureEdge], layout: Layout) -> Iterator[str]:
    """Those that were taken last, so that they lie on top."""
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
    colour = (UNTAKEN, LINE, INK)[stroke.strength]
    width = 2.2 if stroke.is_taken else 1.4
    dashes = ' stroke-dasharray="6 4"' if stroke.is_unusual else ""
    if stroke.is_taken is False:
        dashes = ' stroke-dasharray="1.5 4"'
    segment = stretch.segment
    end = segment.y2 - (ARROW - 1 if leads_to_box else 0)
    middle = n((segment.turn_y + end) / 2)
    path = f"M{n(segment.x1)} {n(segment.y1)}V{n(segment.turn_y)}"
    path += f"C{n(segment.x1)} {middle} {n(segment.x2)} {middle} {n(segment.x2)} {n(end)}"
    line = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'
    if not leads_to_box:
        return line
    tip = f"M{n(segment.x2)} {n(segment.y2)}l-4.5 -{n(ARROW)}h9Z"
    return f'{line}<path d="{tip}" fill="{colour}"/>'


def _drawn_labels(edges: list[PictureEdge], layout: Layout) -> Iterator[str]:
    for edge, box in zip(edges, layout.labels, strict=True):
        if box is not None:
            shown = shortened(edge.label, LABEL_MAX)
            middle = box.x + box.width / 2
            yield (
                f"<g><title>{escaped(edge.label)}</title>"
                f'<rect x="{n(box.x)}" y="{n(box.y)}" width="{n(box.width)}" '
                f'height="{n(box.height)}" rx="4" fill="{PAPER}" stroke="{FAINT}"/>'
                f"{text(middle, box.y + 12, shown, LABEL, INK, 'middle')}</g>"
            )
