"""Damaged, forged and oversized exports."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from perdure import AsyncClient
from perdure.store.opening import store_at
from perdure.transfer import export_store
from proof.fuzz import rows, work
from proof.fuzz.scene import run_work

MEMORY_MAX_BYTES = 200 * 1024 * 1024
"""What an import may take besides, however large a line claims to be."""
_HUGE_BYTES = 400 * 1024 * 1024
_CHUNK = 1024 * 1024

JUNK: list[Any] = [
    None, True, -1, 0, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**70, 1e308, 0.5, "", "a", "\x00",
    "\ud800", "\u202e", "AAAA", "!", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00",
    "x" * 5_000, "1970-01-01T00:00:00Z", [], [[]], ["a\x00"], {}, {"row": "job"}, "victim-chain",
    "default",
]  # fmt: skip
_WHERE = st.floats(0, 1, exclude_max=True)
CHANGES = st.tuples(
    st.lists(
        st.tuples(st.just("cut"), _WHERE, _WHERE)
        | st.tuples(st.just("flip"), _WHERE, st.integers(1, 255))
        | st.tuples(st.sampled_from(["drop", "twice", "swap", "nest"]), _WHERE, _WHERE)
        | st.tuples(st.just("set"), _WHERE, st.tuples(_WHERE, st.sampled_from(JUNK))),
        max_size=2,
    ),
    st.sampled_from([True, True, False]),
    st.sampled_from([".jsonl", ".jsonl.gz"]),
) | st.sampled_from([([("huge", fill, 0)], False, ".gz") for fill in (b"[", b'{"row":"', b"\n")])
"""What is changed and where, whether the checksum fits again, and the suffix of the file."""

Lines = list[bytes]


async def exported(folder: Path) -> bytes:
    """An export with every type of row."""
    url = f"sqlite:///{folder}/exported.db"
    store = store_at(url)
    await store.open()
    async with AsyncClient(store, tasks=work.TASKS, flows=work.FLOWS) as client:
        await rows.fill(client)
        await run_work(store, client)
    await store.close()
    await export_store(url, folder / "whole.jsonl")
    return (folder / "whole.jsonl").read_bytes()


def write(
    path: Path, whole: bytes, changes: Sequence[tuple[str, Any, Any]], is_sealed: bool
) -> None:
    """Write the changed export."""
    lines = whole.splitlines(keepends=True)
    if changes and changes[0][0] == "huge":
        chunk = gzip.compress(changes[0][1] * _CHUNK)
        path.write_bytes(gzip.compress(lines[0]) + chunk * (_HUGE_BYTES // _CHUNK))
        return
    for change in changes:
        lines = _changed(lines, *change)
    data = b"".join(_sealed(lines) if is_sealed else lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def _changed(lines: Lines, what: str, where: Any, how: Any) -> Lines:
    if not any(lines):
        return lines
    at = int(where * len(lines))
    line = lines[at]
    match what:
        case "cut":
            return [*lines[:at], line[: int(how * len(line))]]
        case "flip":
            data = bytearray(b"".join(lines))
            data[int(where * len(data))] ^= how
            return bytes(data).splitlines(keepends=True)
        case "drop":
            return lines[:at] + lines[at + 1 :]
        case "twice":
            return [*lines[: at + 1], *lines[at:]]
        case "swap":
            other = int(how * len(lines))
            lines = [*lines]
            lines[at], lines[other] = lines[other], line
            return lines
        case "nest":
            return [*lines[:at], line.replace(b":", b":" + b"[" * 100_000, 1), *lines[at + 1 :]]
    try:
        row = json.loads(line)
        name = sorted(row)[int(how[0] * len(row))]
    except (ValueError, IndexError, TypeError, RecursionError):
        return lines
    return [*lines[:at], json.dumps({**row, name: how[1]}).encode() + b"\n", *lines[at + 1 :]]


def _sealed(lines: Lines) -> Lines:
    """The lines with counts and a checksum that fit, as an attacker would write them."""
    try:
        header, *found = [json.loads(line) for line in lines]
        counts = Counter(row["row"] for row in found[:-1])
    except (ValueError, KeyError, TypeError, RecursionError):
        return lines
    first = json.dumps({**header, "counts": counts}).encode() + b"\n"
    body = [first, *lines[1:-1]]
    end = {"row": "end", "counts": counts, "sha256": hashlib.sha256(b"".join(body)).hexdigest()}
    return [*body, json.dumps(end).encode() + b"\n"]


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Raise ``AssertionError`` if the block takes too much memory; Linux knows the peak."""
    peak = Path("/proc/self/clear_refs")
    if not peak.exists():
        yield
        return
    peak.write_text("5")  # starts a new peak
    before = _peak_bytes()
    yield
    taken = _peak_bytes() - before
    assert taken < MEMORY_MAX_BYTES, f"took {taken} bytes"


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [each for each in lines if each.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
