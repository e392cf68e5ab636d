"""Samples, and the table of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Figure:
    """One row of the table: our samples, the raw ones measured alongside, and the target."""

    name: str
    unit: str
    ours: Sequence[float]
    raw: Sequence[float] = ()
    target: str = ""
    is_met: Callable[[float, float], bool] | None = None
    """Takes our median, and the ratio to raw (0 without raw)."""

    @property
    def value(self) -> float:
        return median(self.ours)

    @property
    def ratio(self) -> float:
        """The median of the pairwise ratios, which is least sensitive to noise."""
        return median(o / r for o, r in zip(self.ours, self.raw, strict=True)) if self.raw else 0.0

    @property
    def spread(self) -> str:
        return f"{_short(min(self.ours))} - {_short(max(self.ours))}"

    @property
    def verdict(self) -> str:
        if self.is_met is None:
            return ""
        return "met" if self.is_met(self.value, self.ratio) else "MISSED"


def print_table(figures: Sequence[Figure]) -> None:
    header = ("measurement", "median", "spread", "raw", "ratio", "target", "")
    rows = [header] + [_row(figure) for figure in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for number, row in enumerate(rows):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
        if number == 0:
            print("  ".join("-" * width for width in widths))


def _row(figure: Figure) -> tuple[str, ...]:
    raw = _short(median(figure.raw)) if figure.raw else ""
    ratio = f"{figure.ratio:.2f}" if figure.raw else ""
    value = f"{_short(figure.value)} {figure.unit}"
    return (figure.name, value, figure.spread, raw, ratio, figure.target, figure.verdict)


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
