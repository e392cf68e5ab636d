"""Stores, rows and logs that break a promise: the verifier catches each, and says which it is."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from perdure.clock import system_clock
from perdure.diagnostics import declared
from perdure.model.ids import RunId
from perdure.store.memory.store import MemoryStore
from perdure.store.opening import store_at
from perdure.store.sqlite.rows import micros
from perdure.testing.contract.builders import worker_info
from perdure.verify import finding_text
from perdure.verify.rules import jobs, schedules_limits
from perdure.verify.verifier import RUN_RULES
from proof.evidence import EvidenceSettings, verify_with_evidence
from proof.evidence.log import Line
from proof.evidence.rules import EvidenceRules
from proof.tests.evidence.breaks_at_work import AT_WORK, change_schedule
from proof.tests.evidence.breaks_in_logs import IN_LOGS
from proof.tests.evidence.breaks_in_rows import DECISIONS, IN_ROWS
from proof.tests.evidence.broken import NAMESPACE, ROWS, Broken, Case, rule_of
from proof.tests.evidence.history import Made, Maker

FIELD = re.compile(r"{(\w+)")
"""In the template of a message."""

CASES = [*IN_LOGS, *AT_WORK, *IN_ROWS, *DECISIONS]


@pytest.fixture(scope="module")
def made() -> Made:
    """Made once: each test breaks a copy of it."""
    return asyncio.run(Maker(MemoryStore("memory://")).make())


def names(cases: list[Case]) -> Iterator[str]:
    return (f"{invariant}-{command.__name__}" for command, invariant, _ in cases)


class TestBroken:
    """Stores and logs that break a promise: the checker catches each, and says which it is."""

    async def test_the_history_itself_is_sound(self, made: Made) -> None:
        broken = Broken(made)
        assert await verify_with_evidence(broken.store, broken.lines, broken.settings) == []

    async def test_two_may_trigger_a_schedule_at_one_moment(self, made: Made) -> None:
        broken = Broken(made)
        [triggered] = broken.state.schedules.by_place[NAMESPACE, "nightly"].state.history
        other = replace(triggered, run=RunId("chain"))
        change_schedule(broken, history=(triggered, other), started=2)
        assert await verify_with_evidence(broken.store, broken.lines, broken.settings) == []

    @pytest.mark.parametrize("command, invariant, rule", CASES, ids=names(CASES))
    async def test_catches(
        self, made: Made, command: Callable[[Broken], None], invariant: str, rule: str
    ) -> None:
        broken = Broken(made)
        command(broken)

        findings = await verify_with_evidence(broken.store, broken.lines, broken.settings)

        found = {(finding.args["invariant"], rule_of(finding)) for finding in findings}
        assert (invariant, rule) in found, [finding_text(finding) for finding in findings]
        assert "rule_failed" not in {rule for _, rule in found}
        for finding in findings:
            assert set(FIELD.findall(declared()[finding.code].sentence)) <= finding.args.keys()

    def test_every_invariant_has_something_that_breaks_it(self) -> None:
        assert {invariant for _, invariant, _ in CASES} == {f"I{n}" for n in range(1, 14)}

    def test_every_rule_has_something_that_breaks_it(self) -> None:
        evidence = EvidenceRules((), EvidenceSettings())
        extra = evidence.extra_rules
        evidence.close()
        asked = [
            *RUN_RULES,
            *jobs.RULES,
            *schedules_limits.SCHEDULE_RULES,
            *schedules_limits.LIMIT_RULES,
            *extra.runs,
            *extra.jobs,
            *extra.store,
        ]
        names = [rule.__name__ for rule in asked]
        caught = {rule for _, _, rule in CASES}

        assert len(set(names)) == len(names)  # so that a finding says which of them it is of
        # What a log that cannot be read leads to is tested where logs are read.
        assert set(names) - caught == {"readable", "note_job"}


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


@pytest.fixture
def broken_by(kept: Kept, tmp_path: Path) -> Callable[[str], str]:
    """Copies the database, runs a statement in it, and says where it is."""

    def break_it(statement: str) -> str:
        path = tmp_path / "broken.db"
        shutil.copy(kept.path, path)
        names: dict[str, object] = {run: SERIAL.format(run=run) for run in ("chain", "long")}
        names |= {"ages": micros(system_clock() + AGES), "soon": micros(system_clock() + MINUTE)}
        info = worker_info(id="live", namespace=NAMESPACE, incarnation=2)
        names["live"] = msgspec.json.encode(info).decode()
        connection = sqlite3.connect(path)
        connection.executescript(statement.format(**names, **kept.made.jobs))
        assert connection.total_changes > 0
        connection.close()
        return f"sqlite:///{path}"

    return break_it


class TestChangedRows:
    """Rows of a database changed behind the store's back: the checker catches that too."""

    async def test_the_rows_themselves_are_sound(self, kept: Kept) -> None:
        store = store_at(f"sqlite:///{kept.path}")
        await store.open()
        findings = await verify_with_evidence(store, kept.made.evidence.lines, kept.made.settings)
        await store.close()
        assert findings == []

    @pytest.mark.parametrize(
        "statement, invariant, rule", [each[1:] for each in ROWS], ids=[each[0] for each in ROWS]
    )
    async def test_catches(
        self, kept: Kept, broken_by: Callable[[str], str], statement: str, invariant: str, rule: str
    ) -> None:
        store = store_at(broken_by(statement))
        await store.open()
        findings = await verify_with_evidence(store, kept.made.evidence.lines, kept.made.settings)
        await store.close()
        found = {(finding.args["invariant"], rule_of(finding)) for finding in findings}
        assert (invariant, rule) in found, [finding_text(finding) for finding in findings]
        assert "rule_failed" not in {rule for _, rule in found}
