"""The verdict finds missing, extra and wrong results."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    AsyncClient,
    Flow,
    JobUnsuccessful,
    Permanent,
    RetryLater,
    RunUnsuccessful,
    Worker,
    task,
)
from perdure.clock import system_clock
from perdure.model.client_event import ClientEvent
from perdure.model.ids import RunId
from perdure.store.contract.audit import AuditedPlace
from perdure.store.opening import store_at
from proof.chaos.clients import ENDS, Named, last_cursor, named, run_name
from proof.chaos.journal import Answer, Ask, AskNotes, NotePipe
from proof.chaos.verdict import ChaosRecord, Verdict, crowded, judge, missed_ends
from proof.evidence import EvidenceLog


@task
async def result(number: int) -> int:
    """Unlike chaos's own, it returns its input."""
    return number


@task
async def fail(value: Any) -> None:
    raise Permanent("as it always does")


@task(name="not_ready", retries=1)
async def not_ready(value: int) -> None:
    """Unlike chaos's own, it is dead after two attempts."""
    raise RetryLater(after="10ms")


order = Flow("order").then(result).build()
late = Flow("overdue", timeout="10ms").wait_for_signal("never").build()
failed = Flow("overdue").then(fail).build()
completed = Flow("overdue").then(result).build()


class Case:
    """A store, and the records of its clients."""

    def __init__(self, url: str, folder: Path) -> None:
        self.client = AsyncClient(url)
        self._url = url
        self._asked = folder / "asks"
        self._recorded = folder / "evidence"
        self._notes = AskNotes(str(self._asked))
        self._evidence = EvidenceLog(self._recorded)
        self._recorded.touch()
        self._number = 0

    def say(self, command: str, answer: Answer, run: str = "", group: str = "") -> None:
        self._number += 1
        ask = Ask(id=str(self._number), command=command, run=run, group=group, answer=answer)
        self._notes.write(ask)

    async def worked(self) -> None:
        flows = [order, late, failed, completed]
        worker = Worker(self._url, flows=flows, tasks=[result, not_ready])
        handle = worker.start()
        for run in await self.client.runs.list():
            with suppress(RunUnsuccessful):
                await self.client.runs.handle(run.id).result(20)
        for job in await self.client.jobs.list():
            with suppress(JobUnsuccessful):
                await self.client.jobs.handle(job.id).result(20)
        handle.shutdown()
        handle.join()

    async def verdict(self, *complaints: str, has_steady_clock: bool = False) -> Verdict:
        evidence = ChaosRecord(
            evidence_log=self._recorded,
            asked=self._asked,
            complaints=tuple(complaints),
            has_steady_clock=has_steady_clock,
        )
        return await judge(store_at(self._url), evidence)


@pytest.fixture
async def case(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Case]:
    case = Case(sqlite_url, tmp_path)
    async with case.client:
        yield case


class TestWhatIsThere:
    async def test_an_accepted_run_that_is_not_there_is_found(self, case: Case) -> None:
        case.say("submit", Answer.ACCEPTED, run="order.1.a")

        assert await findings(case) == ["run 'order.1.a' was accepted, and is there 0 times"]

    async def test_an_accepted_job_that_is_not_there_is_found(self, case: Case) -> None:
        case.say("enqueue", Answer.ACCEPTED, group="1.a")

        assert await findings(case) == ["job of group '1.a' was accepted, and is there 0 times"]

    async def test_a_refused_job_that_is_there_is_found(self, case: Case) -> None:
        await case.client.enqueue(result.options(group="1.a"), 2)
        case.say("enqueue", Answer.REFUSED, group="1.a")
        await case.worked()

        assert await findings(case) == ["job of group '1.a' was refused, and is there all the same"]

    async def test_what_is_unclear_may_be_there_once_and_not_twice(self, case: Case) -> None:
        await case.client.enqueue_many(result.options(group="1.a"), [2, 2])
        await case.client.enqueue(result.options(group="1.b"), 2)
        for name in ("a", "b", "c"):
            case.say("enqueue", Answer.UNCLEAR, group=f"1.{name}")
        await case.worked()

        assert await findings(case) == ["job of group '1.a' is there 2 times"]

    async def test_what_no_client_requested_is_found(self, case: Case) -> None:
        await case.client.enqueue(result.options(group="1.a"), 2)
        await case.worked()

        assert await findings(case) == ["job of group '1.a' exists, but no client asked for it"]


class TestHowItEnded:
    async def test_a_wrong_result_is_found(self, case: Case) -> None:
        id = run_name("order", 1, "a")
        await case.client.submit(order, 5, id=id)
        case.say("submit", Answer.ACCEPTED, run=id)
        await case.worked()

        assert await findings(case) == ["run 'order.1.a' gave 5 instead of one of [36]"]

    async def test_a_run_that_did_not_end_is_found(self, case: Case) -> None:
        await case.client.submit(order, 5, id="order.1.a")
        case.say("submit", Answer.ACCEPTED, run="order.1.a")

        assert "run 'order.1.a' has not ended: it is running" in await findings(case)

    async def test_a_run_that_no_client_cancelled_must_not_be_cancelled(self, case: Case) -> None:
        for name in ("a", "b"):
            await case.client.submit(order, 5, id=f"order.1.{name}")
            await case.client.runs.cancel(f"order.1.{name}")
            case.say("submit", Answer.ACCEPTED, run=f"order.1.{name}")
        case.say("cancel", Answer.UNCLEAR, run="order.1.a")

        [finding] = await findings(case)
        assert finding.startswith("run 'order.1.b' is cancelled")

    async def test_a_job_that_did_not_complete_or_gave_something_else_is_found(
        self, case: Case
    ) -> None:
        wrong = await case.client.enqueue(result.options(group="1.a"), 7)
        case.say("enqueue", Answer.ACCEPTED, group="1.a")
        await case.worked()
        left = await case.client.enqueue(result.options(group="1.b"), 7)
        case.say("enqueue", Answer.ACCEPTED, group="1.b")

        assert sorted(await findings(case)) == sorted(
            [
                f"job {wrong.id} (task result) gave 7 instead of 2",
                f"job {left.id} (task result) is waiting, not completed",
            ]
        )

    async def test_a_run_that_should_have_failed_in_another_way_is_found(self, case: Case) -> None:
        for flow, name in ((late, "a"), (failed, "b"), (completed, "c")):
            await case.client.submit(flow, 5, id=f"overdue.1.{name}")
            case.say("submit", Answer.ACCEPTED, run=f"overdue.1.{name}")
        await case.worked()

        code, gave = sorted(await findings(case))
        assert code.startswith(
            "run 'overdue.1.b' is failed with task.permanent instead of run.timed_out: "
        )
        assert gave == "run 'overdue.1.c' gave 5 instead of one of []"

    async def test_a_job_that_is_dead_too_early_is_found(self, case: Case) -> None:
        job = await case.client.enqueue(not_ready.options(group="1.a"), 1)
        right = await case.client.enqueue(not_ready.options(group="1.b", max_attempts=3), 1)
        for name in ("a", "b"):
            case.say("enqueue", Answer.ACCEPTED, group=f"1.{name}")
        await case.worked()

        assert (await case.client.jobs.get(right.id)).status == "dead"
        assert await findings(case) == [
            f"job {job.id} (task not_ready) is dead after 2 attempts, not dead after 3"
        ]


class TestPlaces:
    async def test_runs_that_overlap_beyond_their_places_are_found(
        self, case: Case, sqlite_url: str
    ) -> None:
        for name in ("a", "b", "c"):
            id = run_name("order", 1, name)
            await case.client.submit(order, 36, id=id, max_running=1 if name != "c" else 3)
            case.say("submit", Answer.ACCEPTED, run=id)
        await case.worked()
        assert not (await case.verdict(has_steady_clock=True)).findings

        [(start,)] = changed(sqlite_url, "SELECT min(started_at) FROM perdure_runs")
        changed(sqlite_url, f"UPDATE perdure_runs SET started_at = {start} WHERE id <> 'order.1.b'")
        assert not (await case.verdict(has_steady_clock=True)).findings
        changed(sqlite_url, f"UPDATE perdure_runs SET started_at = {start}")

        [finding] = (await case.verdict(has_steady_clock=True)).findings
        assert "verify.places_kept" in finding
        assert finding.endswith(" started while 1 others had the places of 'order@', which has 1")
        assert not await findings(case)  # by a clock that was turned

    def test_runs_in_progress_beyond_their_places_are_found(self) -> None:
        held = [
            AuditedPlace(
                namespace="default",
                key=key,
                run=RunId(run),
                limit=limit,
                started_at=system_clock(),
                rank=None,
                is_due=False,
            )
            for run, key, limit in (("a", "x@", 1), ("b", "x@", 2), ("c", "y@", 1), ("d", "y@", 1))
        ]

        [finding] = crowded(held)

        assert finding.endswith("'d' started while 1 others had the places of 'y@', which has 1")


class TestFollowers:
    """Each gets all ends after the first one that it got."""

    async def test_that_miss_an_end_are_found(self, case: Case, tmp_path: Path) -> None:
        for number in range(3):
            await case.client.submit(order, 5, id=f"order.1.{number}")
        await case.client.enqueue(result.options(group="1.a"), 2)
        events: asyncio.Queue[ClientEvent] = asyncio.Queue()
        subscription = await case.client.events.subscribe(events.put_nowait, types=ENDS)
        await case.worked()
        got = [await events.get() for _ in range(4)]
        subscription.unsubscribe()
        evidence = EvidenceLog(tmp_path / "evidence")
        for event in got:
            evidence.saw_event("client-0", event)
        for event in got[:-1]:
            evidence.saw_event("client-1", event)

        [missed] = await missed_ends(case.client, tmp_path / "evidence")

        assert missed.startswith(f"client-1 did not get {got[-1].type} of")
        assert last_cursor(tmp_path / "evidence", "client-0") == got[-1].cursor
        assert last_cursor(tmp_path / "evidence", "client-1") == got[-2].cursor
        assert last_cursor(tmp_path / "evidence", "client-2") is None


async def test_what_the_verifier_finds_is_in_the_verdict(case: Case, tmp_path: Path) -> None:
    EvidenceLog(tmp_path / "evidence").accepted(run="gone")

    [finding] = await findings(case)

    assert finding.startswith("I1 evidence.accepted.run: run 'gone'")


async def test_complaints_are_findings(case: Case) -> None:
    verdict = await case.verdict("worker-1 would not stop")

    assert verdict.findings == ("worker-1 would not stop",)


async def test_answers_are_counted_by_command(case: Case) -> None:
    case.say("signal", Answer.REFUSED, run="a")
    case.say("signal", Answer.UNCLEAR, run="a")

    verdict = await case.verdict()

    assert verdict.asked == {"signal": {"refused": 1, "unclear": 1}}


@pytest.mark.parametrize(
    "id, expected",
    [
        ("order.7.client-0.1.2", Named(flow="order", number=7)),
        ("order.7.client-0.1.2/child", None),
        ("ticking@2026-01-01T00:00:00Z", None),
        ("mine", None),
    ],
)
def test_ids_encode_what_a_client_requested(id: str, expected: Any) -> None:
    assert named(id) == expected


def test_a_pipe_of_notes_keeps_all_that_was_written(tmp_path: Path) -> None:
    pipe = NotePipe(tmp_path / "pipe", tmp_path / "log")
    for number in range(500):
        EvidenceLog(pipe.path).accepted(run=str(number))
    pipe.close()

    assert (tmp_path / "log").read_text().count("accepted") == 500


def changed(url: str, statement: str) -> list[Any]:
    """The rows of a statement on the file behind the store's back."""
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        return connection.execute(statement).fetchall()


async def findings(case: Case) -> list[str]:
    return list((await case.verdict()).findings)
