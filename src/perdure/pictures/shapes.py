"""Outlines of boxes, one for each kind of node, and the signs of marks, as paths."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.pictures.layout import Rectangle
from perdure.pictures.palette import PAPER, STYLES
from perdure.pictures.picture import Mark

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
