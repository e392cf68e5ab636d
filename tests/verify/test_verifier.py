"""The verifier itself: progress, rules of the caller's own, and rules that fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from msgspec.structs import replace

from perdure import AsyncClient, Flow, task
from perdure.diagnostics import Finding, declare
from perdure.store.contract import Store
from perdure.store.memory.store import MemoryStore
from perdure.verify import Counts, ExtraRules, Verifier, finding_text
from perdure.verify.finding import contradiction
from perdure.verify.load import AuditedRun
from perdure.verify.rules.jobs import JobView
from perdure.verify.rules.log import first_event_time

OWN = declare("test.own_rule", "{count:run|runs} seen")
asking = Flow("asking").wait_for_signal("go").build()


@task
async def later(number: int) -> int:
    return number


@pytest.fixture
async def store() -> Store:
    """Two runs and a job."""
    store = MemoryStore("memory://")
    async with AsyncClient(store) as client:
        await client.submit(asking, 1, id="a")
        await client.submit(asking, 1, id="b")
        await client.enqueue(later, 1)
    return store


async def test_reports_its_progress(store):
    counted: list[Counts] = []
    verifier = Verifier(store, on_progress=counted.append)
    assert [finding async for finding in verifier.findings()] == []
    assert [(each.runs, each.jobs) for each in counted][:3] == [(1, 0), (2, 0), (2, 1)]
    assert counted[-1] == verifier.counts


async def test_asks_rules_of_the_callers_own(store):
    seen: list[str] = []

    def about_run(view: AuditedRun) -> Iterator[Finding]:
        seen.append(view.run.id)
        return iter(())

    def about_job(view: JobView) -> Iterator[Finding]:
        seen.append(view.job.task)
        return iter(())

    async def about_store(_: Store) -> AsyncIterator[Finding]:
        yield contradiction("I1", OWN, count=len(seen) - 1)

    rules = ExtraRules(runs=(about_run,), jobs=(about_job,), store=(about_store,))
    [finding] = [each async for each in Verifier(store, extra_rules=rules).findings()]

    assert sorted(seen) == ["a", "b", "later"]
    assert finding_text(finding) == "I1 test.own_rule: 2 runs seen"


async def test_a_rule_that_fails_is_a_finding_and_hides_no_other(store):
    def broken(view: AuditedRun) -> Iterator[Finding]:
        raise KeyError(view.run.id)

    def finds(view: AuditedRun) -> Iterator[Finding]:
        yield view.finding("I1", OWN, count=1)

    verifier = Verifier(store, extra_rules=ExtraRules(runs=(broken, finds)))
    found = [each async for each in verifier.findings()]

    assert sorted((each.code, each.args["run"]) for each in found) == [
        ("test.own_rule", "a"),
        ("test.own_rule", "b"),
        ("verify.rule_failed", "a"),
        ("verify.rule_failed", "b"),
    ]
    assert {each.args["rule"] for each in found if each.code == "verify.rule_failed"} == {"broken"}


@pytest.mark.parametrize(
    "created, started, is_found",
    [
        (0, 0, False),
        (1, 1, True),
        (1, 0, False),
        (1, None, False),
        (1, 3, False),
        (1_000_000, None, False),
        (1_000_001, 0, True),
        (1_000_001, None, True),
    ],
)
async def test_only_a_run_that_replaced_another_may_be_younger_than_its_log(
    store, created, started, is_found
):
    """In microseconds after its first event."""

    def redated(view: AuditedRun) -> Iterator[Finding]:
        at = view.events[0].at
        times = [None if each is None else at + timedelta(microseconds=each) for each in given]
        view.run = replace(view.run, created_at=times[0], started_at=times[1])
        return first_event_time(view)

    given = (created, started)
    verifier = Verifier(store, extra_rules=ExtraRules(runs=(redated,)))
    codes = {each.code async for each in verifier.findings()}
    assert codes == ({"verify.first_event_time"} if is_found else set())


async def test_what_cannot_be_read_hides_no_other_part(store):
    async def broken(_: Store) -> AsyncIterator[Finding]:
        for finding in {"known": OWN.finding()}["unknown"], OWN.finding():
            yield finding

    async def finds(_: Store) -> AsyncIterator[Finding]:
        yield contradiction("I1", OWN, count=1)

    verifier = Verifier(store, extra_rules=ExtraRules(store=(broken, finds)))

    assert [each.code async for each in verifier.findings()] == [
        "verify.store_readable",
        "test.own_rule",
    ]
