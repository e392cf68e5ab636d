"""What all SVG pictures have in common: the frame, and text in it."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.pictures.lettering import FONT, TITLE, Lettering, escaped, shortened
from perdure.pictures.palette import FAINT, INK, PAPER
from perdure.pictures.shapes import n

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
