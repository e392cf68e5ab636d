"""A picture as SVG that needs nothing else: no fonts, styles or scripts from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perdure.model.value import Value
from perdure.pictures.elements import TITLE_MAX, frame, text
from perdure.pictures.layout import ARROW, MARGIN, Layout, Link, Rectangle, Size, Stretch, laid_out
from perdure.pictures.lettering import (
    KIND,
    LABEL,
    NAME,
    NOTE,
    TITLE,
    Lettering,
    escaped,
    shortened,
    width_of,
)
from perdure.pictures.palette import FAINT, INK, LINE, PAPER, PLAIN, STYLES, UNTAKEN, Style
from perdure.pictures.picture import Mark, Picture, PictureEdge, PictureNode
from perdure.pictures.shapes import SIGN_RADIUS, SLANT, aside_of, badge, behind, inside, n, outline

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
