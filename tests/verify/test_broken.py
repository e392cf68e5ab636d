"""Stores and logs that break a promise: the checker catches each, and says which it is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from perdure.diagnostics import declared
from perdure.model.ids import RunId
from perdure.store.memory.store import MemoryStore
from perdure.verify import finding_text
from perdure.verify.rules import jobs, schedules_limits
from perdure.verify.verifier import RUN_RULES
from proof.evidence import EvidenceSettings, verify_with_evidence
from proof.evidence.rules import EvidenceRules
from tests.verify.breaks_at_work import AT_WORK, change_schedule
from tests.verify.breaks_in_logs import IN_LOGS
from tests.verify.breaks_in_rows import IN_ROWS
from tests.verify.breaks_of_decisions import DECISIONS
from tests.verify.broken import NAMESPACE, Broken, Case, rule_of
from tests.verify.history import Made, Maker

FIELD = re.compile(r"{(\w+)")
"""In the template of a message."""

CASES = [*IN_LOGS, *AT_WORK, *IN_ROWS, *DECISIONS]


@pytest.fixture(scope="module")
def made() -> Made:
    """Made once: each test breaks a copy of it."""
    return asyncio.run(Maker(MemoryStore("memory://")).make())


def names(cases: list[Case]) -> Iterator[str]:
    return (f"{invariant}-{act.__name__}" for act, invariant, _ in cases)


async def test_the_history_itself_is_sound(made):
    broken = Broken(made)

    assert await verify_with_evidence(broken.store, broken.lines, broken.settings) == []


async def test_two_may_trigger_a_schedule_at_one_moment(made):
    broken = Broken(made)
    [triggered] = broken.state.schedules.by_place[NAMESPACE, "nightly"].state.history
    other = replace(triggered, run=RunId("chain"))
    change_schedule(broken, history=(triggered, other), started=2)

    assert await verify_with_evidence(broken.store, broken.lines, broken.settings) == []


@pytest.mark.parametrize("act, invariant, rule", CASES, ids=names(CASES))
async def test_catches(made, act, invariant, rule):
    broken = Broken(made)
    act(broken)

    findings = await verify_with_evidence(broken.store, broken.lines, broken.settings)

    found = {(finding.args["invariant"], rule_of(finding)) for finding in findings}
    assert (invariant, rule) in found, [finding_text(finding) for finding in findings]
    assert "rule_failed" not in {rule for _, rule in found}
    for finding in findings:
        assert set(FIELD.findall(declared()[finding.code].sentence)) <= finding.args.keys()


def test_every_invariant_has_something_that_breaks_it():
    assert {invariant for _, invariant, _ in CASES} == {f"I{n}" for n in range(1, 13)}


def test_every_rule_has_something_that_breaks_it():
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
