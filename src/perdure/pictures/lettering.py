"""Text in pictures: escaped, shortened, and measured without a font."""

from __future__ import annotations

import re
import unicodedata
from html import escape

from perdure.model.value import Value

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
