"""The words of every finding of ``explain`` and the doctor; other tests go by codes and arguments.

After a change of wording, run ``python -m tests.unit.test_finding_wording`` and read the diff.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from perdure.diagnostics import Finding, declared, message, remedy
from perdure.rules import explain, health

SNAPSHOT = Path(__file__).with_name("finding_wording.txt")
MODULES = (explain, health)
_FIELD = re.compile(r"\{(\w+)(?:!r)?(?::([^}]*))?\}")

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
VALUES: dict[str, Any] = {
    **dict.fromkeys(
        ("at", "failed_at", "held_since", "lease_until", "opens_at", "poll_at", "since", "until"),
        NOON,
    ),
    **dict.fromkeys(
        ("ago", "late", "latency", "overdue", "silent", "skew", "spacing", "window"),
        timedelta(minutes=1, seconds=30),
    ),
    "answers": {"ann": "approve"},
    "where": {"property": "sum"},
}


def snapshot() -> str:
    """Each sentence as full and as bare as its template allows, and the remedy."""
    lines = []
    for name, code in sorted(declared().items()):
        if not name.startswith(("explain.", "health.")):
            continue
        fields = _FIELD.findall(code.sentence + code.remedy)
        args = {field: _value(field, spec) for field, spec in fields}
        full = Finding(code=name, args=args)
        needed = set(_FIELD.findall(re.sub(r"\[[^\]]*\]", "", code.sentence + code.remedy)))
        bare = Finding(code=name, args={field: args[field] for field, _ in needed})
        lines += [name, f"  {message(full)}"]
        if message(bare) != message(full):
            lines.append(f"  {message(bare)}")
        if code.remedy:
            lines.append(f"  > {remedy(full)}")
    return "\n".join(lines) + "\n"


def _value(field: str, spec: str) -> Any:
    if spec in ("or", "and"):
        return ("a", "b")
    return VALUES.get(field, 2 if spec else f"<{field}>")


def test_findings_read_as_they_were_reviewed() -> None:
    assert snapshot() == SNAPSHOT.read_text()


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot())
