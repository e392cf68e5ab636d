"""Unexpected strings, names that could be ids, and templates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


def named(
    build: Callable[[], st.SearchStrategy[T]],
) -> Callable[[], st.SearchStrategy[T]]:
    built = cache(build)

    def drawn(draw: st.DrawFn) -> T:
        return draw(built())

    drawn.__name__ = drawn.__qualname__ = build.__name__
    drawn.__doc__ = build.__doc__
    return st.composite(drawn)


NAME_MAX = 200

ODD_TEXTS = [
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ud800",
    "half \udfff",
    "\u202egnp.exe",
    "\ufeffbom",
    "../../etc/passwd",
    "/",
    "a/b",
    "a:b",
    ":",
    "a#1",
    "#",
    "a[0]",
    "[",
    "]",
    "undo:a",
    "check:a#1",
    "~",
    "*",
    "%",
    "_",
    "'",
    '"',
    "'; DROP TABLE perdure_jobs; --",
    "\\",
    "\n",
    "\r\n\t",
    "\x1b[31mred",
    "\x7f",
    "\x85",
    "\u2028",
    "$1",
    ":1",
    "?",
    "{schema}",
    "{prefix}",
    "{}",
    "{0}",
    "%s",
    "%(name)s",
    "{{ a.b }}",
    "{{",
    "${HOME}",
    "--help",
    "-",
    "[bold]loud[/bold]",
    "[/]",
    "[link=x]",
    "null",
    "0",
    "-1",
    "NaN",
    "True",
    "default",
    "a@b",
    "a.b",
    "İ",
    "ß",
]
"""Strings that are known to break software."""
CONTROLS = [
    "\x1b[1G\x1b[0K",
    "\x1b]52;c;aGVsbG8=\x07",
    "\x1b]8;;http://x\x1b\\",
    "\x9b2J",
    "\x9d0;title\x9c",
    "\x90q\x9c",
    "\x07\x08\x0c",
    "\r",
    "\x7f",
    "\x85",
    "\u202e",
    "\u2066\u2069",
    "\u200f\u061c",
    "\u2028\u2029",
]
"""Characters that control terminals, or reorder or break lines."""
LONG_TEXTS = [("x", NAME_MAX), ("x", NAME_MAX + 1), ("x", 10_000), ("😀", 70), ("e\u0301", 50)]


@named
def names() -> st.SearchStrategy[str]:
    """Strings that may name a task, a queue, a signal, a schedule, a run …"""
    likely = st.sampled_from(["a", "b", "orders", "Größe", "日本", "with space", "x-1.2_3"])
    letters = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=30)
    return likely | letters


@named
def odd_texts() -> st.SearchStrategy[str]:
    """Unlikely strings: empty, very long, with control characters, not encodable."""
    odd = st.sampled_from(ODD_TEXTS)
    long = st.sampled_from(LONG_TEXTS).map(lambda pair: pair[0] * pair[1])
    pieces = st.lists(odd | long, min_size=2, max_size=4).map("".join)
    return odd | odd | pieces | st.text(max_size=40)


@named
def hostile_texts() -> st.SearchStrategy[str]:
    """Strings that forge what a terminal shows, within others."""
    pieces = st.sampled_from([*CONTROLS, "Pay 5 EUR", "[bold]", "\n", "\t", "é"]) | odd_texts()
    around = st.tuples(st.lists(pieces, max_size=2), st.lists(pieces, max_size=2))
    return st.builds(
        lambda control, parts: "".join([*parts[0], control, *parts[1]]),
        st.sampled_from(CONTROLS),
        around,
    )


@named
def any_texts() -> st.SearchStrategy[Any]:
    """A name, an odd string, or not a string."""
    others = st.sampled_from([None, 0, 7, 1.5, True, b"bytes", (), [], {}, ["a"], object()])
    return names() | odd_texts() | others
