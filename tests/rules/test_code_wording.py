"""The words of every code, in one place; other tests go by codes and arguments.

After a change of wording, run ``python -m tests.rules.test_code_wording`` and read the diff.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.renderer import CliRenderer
from perdure.diagnostics import Code, Finding, declared, message, remedy
from perdure.errors import DuplicateTask, PerdureError
from tests.docs.errors_page import exceptions, import_everything

SNAPSHOT = Path(__file__).with_name("code_wording.txt")
CLI = CliRenderer()
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
}
OF_FINDINGS = {"where": {"property": "sum"}}


def snapshot() -> str:
    """Each sentence as full and as bare as its template allows, and the remedy; $ is the CLI's."""
    import_everything()
    lines = []
    for name, code in sorted(declared().items()):
        if name.startswith(("test.", "evidence.")):
            continue
        fields = _FIELD.findall(code.sentence + code.remedy)
        args = {field: _value(name, field, spec) for field, spec in fields}
        full = Finding(code=name, args=args)
        needed = set(_FIELD.findall(re.sub(r"\[[^\]]*\]", "", code.sentence + code.remedy)))
        bare = Finding(code=name, args={field: args[field] for field, _ in needed})
        lines += [name, f"  {message(full)}"]
        if message(bare) != message(full):
            lines.append(f"  {message(bare)}")
        if code.remedy:
            lines.append(f"  > {remedy(full)}")
        if message(full, CLI) != message(full):
            lines.append(f"  $ {message(full, CLI)}")
        if remedy(full, CLI) != remedy(full):
            lines.append(f"  $ > {remedy(full, CLI)}")
    return "\n".join(lines) + "\n"


def _value(name: str, field: str, spec: str) -> Any:
    if spec in ("or", "and"):
        return ("a", "b")
    known = VALUES | OF_FINDINGS if name.startswith(("explain.", "health.")) else VALUES
    return known.get(field, 2 if spec else f"<{field}>")


def test_codes_read_as_they_were_reviewed():
    assert snapshot() == SNAPSHOT.read_text()


# Advice is an action, which each interface spells in its own way.
_CALL_OR_COMMAND = re.compile(r"\bclient\.\w|\bperdure [a-z-]+")


def test_sentences_have_no_calls_and_no_commands():
    import_everything()
    assert [
        each.name
        for each in declared().values()
        if _CALL_OR_COMMAND.search(f"{each.sentence} {each.remedy}")
    ] == []
    assert _CALL_OR_COMMAND.search("see client.runs.get(id)")
    assert _CALL_OR_COMMAND.search("Name one: perdure decide {id}")


@pytest.mark.parametrize("found_type", [PerdureError, *exceptions()])
def test_messages_of_exceptions_need_only_what_these_have(found_type):
    assert unknown_fields(found_type.CODE, found_type) == set()
    assert [each for each in found_type._derived if not hasattr(found_type, each)] == []


def test_a_field_that_an_exception_does_not_have_is_found():
    code = Code("test.unknown_field", "task {name!r}[ of {nobody}]", "Ask {other:or}")
    assert unknown_fields(code, DuplicateTask) == {"nobody", "other"}


def unknown_fields(code: Code, found_type: type[PerdureError]) -> set[str]:
    """Of the template; what is made with a text alone has that as its message."""
    has = {*found_type._fields, *found_type._derived} or {"message"}
    return {field for field, _ in _FIELD.findall(code.sentence + code.remedy)} - has


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot())
