"""Rows of a database changed behind the store's back: the checker catches that too."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from perdure.clock import system_clock
from perdure.store.opening import store_at
from perdure.store.sqlite.rows import micros
from perdure.verify import finding_text
from proof.evidence import verify_with_evidence
from proof.evidence.log import Line
from tests.verify.broken import rule_of
from tests.verify.broken_rows import ROWS
from tests.verify.history import Made, Maker

MINUTE = timedelta(minutes=1)
AGES = timedelta(days=18_000)
SERIAL = "(SELECT serial FROM perdure_runs WHERE id = '{run}')"


class Kept:
    """A database that was made once, to be copied and broken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = []
        self.made: Made = asyncio.run(self._make())

    async def _make(self) -> Made:
        store = store_at(f"sqlite:///{self.path}")
        await store.open()
        made = await Maker(store).make()
        await store.close()
        return made


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return Kept(tmp_path_factory.mktemp("made") / "work.db")


async def test_the_rows_themselves_are_sound(kept):
    store = store_at(f"sqlite:///{kept.path}")
    await store.open()

    findings = await verify_with_evidence(store, kept.made.evidence.lines, kept.made.settings)

    await store.close()
    assert findings == []


@pytest.fixture
def broken_by(kept: Kept, tmp_path: Path) -> Callable[[str], str]:
    """Copies the database, runs a statement in it, and says where it is."""

    def break_it(statement: str) -> str:
        path = tmp_path / "broken.db"
        shutil.copy(kept.path, path)
        names: dict[str, object] = {run: SERIAL.format(run=run) for run in ("chain", "long")}
        names |= {"ages": micros(system_clock() + AGES), "soon": micros(system_clock() + MINUTE)}
        connection = sqlite3.connect(path)
        connection.executescript(statement.format(**names, **kept.made.jobs))
        assert connection.total_changes > 0
        connection.close()
        return f"sqlite:///{path}"

    return break_it


@pytest.mark.parametrize(
    "statement, invariant, rule", [each[1:] for each in ROWS], ids=[each[0] for each in ROWS]
)
async def test_catches(
    kept,
    broken_by,
    statement,
    invariant,
    rule,
):
    store = store_at(broken_by(statement))
    await store.open()

    findings = await verify_with_evidence(store, kept.made.evidence.lines, kept.made.settings)

    await store.close()
    found = {(finding.args["invariant"], rule_of(finding)) for finding in findings}
    assert (invariant, rule) in found, [finding_text(finding) for finding in findings]
    assert "rule_failed" not in {rule for _, rule in found}
