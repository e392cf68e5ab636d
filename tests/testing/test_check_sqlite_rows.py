"""Rows of a database changed behind the store's back: the checker catches that too."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.store.opening import store_at
from perdure.testing.check import check
from perdure.testing.check.witness import Line
from tests.testing.history import Made, Maker

SERIAL = "(SELECT serial FROM perdure_runs WHERE id = '{run}')"

BROKEN: list[tuple[str, str, str, str]] = [
    (
        "an event is deleted",
        "DELETE FROM perdure_events WHERE number = 2 AND run_serial = {chain}",
        "I4",
        "contiguous",
    ),
    (
        "an event is garbled",
        "UPDATE perdure_events SET data = x'00' WHERE number = 2 AND run_serial = {chain}",
        "I5",
        "foldable",
    ),
    (
        "an event has another's data",
        "UPDATE perdure_events SET data = (SELECT data FROM perdure_events"
        " WHERE number = 2 AND run_serial = {chain}) WHERE number = 3 AND run_serial = {chain}",
        "I2",
        "committed_once",
    ),
    (
        "an output is deleted",
        "UPDATE perdure_events SET value = NULL WHERE number = 3 AND run_serial = {chain}",
        "I2",
        "outputs_are_there",
    ),
    (
        "an ended run is marked as running",
        "UPDATE perdure_runs SET status = 'running', finished_at = NULL WHERE id = 'chain'",
        "I5",
        "row_agrees",
    ),
    (
        "a wait is deleted",
        "DELETE FROM perdure_waits WHERE run_id = 'asking'",
        "I7",
        "waits_match",
    ),
    (
        "a wait of a paused run is let go",
        "UPDATE perdure_waits SET is_held = 0 WHERE run_id = 'held'",
        "I7",
        "parked_in_a_pause",
    ),
    (
        "a job is deleted",
        "DELETE FROM perdure_jobs WHERE run_id = 'queued'",
        "I7",
        "jobs_match",
    ),
    (
        "a job is given to a run that has ended",
        "UPDATE perdure_jobs SET run_id = 'chain' WHERE run_id = 'queued'",
        "I8",
        "jobs_match",
    ),
    (
        "a job is in a lane that cannot be read",
        'UPDATE perdure_jobs SET lane = \'["nobody", "never", [], [], "other@1"]\''
        " WHERE run_id = 'queued'",
        "I7",
        "in_their_lanes",
    ),
    (
        "a run's row is deleted",
        "DELETE FROM perdure_runs WHERE id = 'asking'",
        "I8",
        "strays",
    ),
    (
        "a snapshot is of another state",
        "UPDATE perdure_snapshots SET data = replace(CAST(data AS TEXT), '\"jobs\":', '\"jobs\":1')"
        " WHERE run_serial = {long}",
        "I5",
        "snapshot_agrees",
    ),
    (
        "an epoch is raised after the outcome",
        "UPDATE perdure_jobs SET epoch = epoch + 1 WHERE status = 'completed'",
        "I3",
        "output_is_current",
    ),
]


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


@pytest.fixture
def broken_by(kept: Kept, tmp_path: Path) -> Callable[[str], str]:
    """Copies the database, runs a statement in it, and says where it is."""

    def break_it(statement: str) -> str:
        path = tmp_path / "broken.db"
        shutil.copy(kept.path, path)
        serials = {run: SERIAL.format(run=run) for run in ("chain", "long")}
        connection = sqlite3.connect(path)
        with connection:
            changed = connection.execute(statement.format(**serials))
            assert changed.rowcount > 0
        connection.close()
        return f"sqlite:///{path}"

    return break_it


@pytest.mark.parametrize(
    "statement, invariant, rule", [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN]
)
async def test_catches(
    kept: Kept,
    broken_by: Callable[[str], str],
    statement: str,
    invariant: str,
    rule: str,
) -> None:
    store = store_at(broken_by(statement))
    await store.open()

    findings = await check(store, kept.made.witness.lines, kept.made.settings)

    await store.close()
    found = {(finding.invariant, finding.rule) for finding in findings}
    assert (invariant, rule) in found, [str(finding) for finding in findings]
