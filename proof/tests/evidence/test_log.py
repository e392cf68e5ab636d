"""The evidence log round-trips, with any number of writers and truncated ends."""

from __future__ import annotations

import multiprocessing
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import CONTEXT, AsyncClient, AsyncContext, Concurrency, Flow, JobFailed, task
from perdure.clock import system_clock
from perdure.errors import InvalidInput
from perdure.model.client_event import ClientEvent
from perdure.model.limit import LimitRule
from perdure.store.contract import Store
from perdure.store.opening import store_at
from proof.evidence import (
    EvidenceLog,
    EvidenceSettings,
    EvidenceVerifier,
    MemoryEvidenceLog,
    new_nonce,
    verify_with_evidence,
)
from proof.evidence.log import (
    Accepted,
    BodyEnded,
    BodyStarted,
    CommandSent,
    EndSeen,
    EventSeen,
    Refused,
    Requeued,
    read_lines,
)
from proof.evidence.rules import Judged
from proof.tests.evidence.evidence_tasks import LOG, print_in_process, write_many
from tests.worker.conftest import StartWorker, start_worker

__all__ = ["start_worker"]


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = store_at(store_url)
    await store.open()
    yield store
    await store.close()


class TestEvidenceLog:
    def test_stores_what_was_recorded(self, tmp_path: Path) -> None:
        evidence = EvidenceLog(tmp_path / "log", namespace="n", now=lambda: 1.5)
        evidence.accepted(run="r")
        evidence.refused(InvalidInput("no"), job="j")
        evidence.command_sent("signal", "r", "go", nonce="x", by="ann", error=InvalidInput("no"))
        evidence.saw_end("completed", run="r")
        evidence.requeued("j", 2)
        event = ClientEvent(type="job.dead", at=system_clock(), namespace="n", cursor="c", job="j")
        evidence.saw_event("f", event)
        evidence.close()

        lines = [line for _, line in read_lines(tmp_path / "log")]

        errors = ("InvalidInput", "PerdureError", "ValueError", "Exception", "BaseException")
        assert lines == [
            Accepted(at=1.5, namespace="n", run="r"),
            Refused(at=1.5, namespace="n", errors=errors, job="j"),
            CommandSent(
                at=1.5,
                namespace="n",
                command="signal",
                run="r",
                key="go",
                by="ann",
                nonce="x",
                errors=errors,
            ),
            EndSeen(at=1.5, namespace="n", status="completed", run="r"),
            Requeued(at=1.5, job="j", attempt=2),
            EventSeen(
                at=1.5,
                namespace="n",
                follower="f",
                name="job.dead",
                event_at=event.at,
                cursor="c",
                job="j",
            ),
        ]

    def test_takes_lines_of_several_processes(self, tmp_path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        path = tmp_path / "log"
        writers = [context.Process(target=write_many, args=(path, name)) for name in ("a", "b")]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(50)

        lines = [line for _, line in read_lines(path)]

        assert {line.run for line in lines if isinstance(line, Accepted)} == {
            f"{name} {number}" for name in ("a", "b") for number in range(200)
        }

    def test_a_line_that_was_cut_short_spoils_no_other(self, tmp_path: Path) -> None:
        evidence = EvidenceLog(tmp_path / "log")
        evidence.accepted(run="before")
        with open(tmp_path / "log", "ab") as file:
            file.write(b'\n{"type":"accep')
        evidence.accepted(run="after")

        lines = [line for _, line in read_lines(tmp_path / "log")]

        assert [getattr(line, "run", None) for line in lines] == ["before", None, "after"]

    async def test_only_the_last_line_may_be_cut_short(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "log"
        path.write_bytes(b'{"type":"accep\n')
        at_the_end = await verify_with_evidence(store, path)
        EvidenceLog(path).requeued("j", 1)

        in_the_middle = await verify_with_evidence(store, path)

        assert at_the_end == []
        assert [each.code for each in in_the_middle] == ["evidence.readable"]


class TestInBodies:
    async def test_records_every_execution(
        self, store: Store, store_url: str, start_worker: StartWorker, tmp_path: Path
    ) -> None:
        evidence = EvidenceLog(tmp_path / "log")

        @task(retries=1)
        async def print_it(value: int, ctx: AsyncContext = CONTEXT) -> str:
            with evidence.execution(ctx, limits=["printer"]) as execution:
                if ctx.attempt == 1:
                    raise ValueError("no paper")
                return execution.nonce

        printing = Flow("printing").then(print_it).build()
        await start_worker(flows=[printing])
        async with AsyncClient(store) as client:
            nonce = await (await client.submit(printing, 1, id="r")).result(20)

        lines = [line for _, line in read_lines(tmp_path / "log")]

        began = [line for line in lines if isinstance(line, BodyStarted)]
        ended = [line for line in lines if isinstance(line, BodyEnded)]
        assert [(each.run, each.key, each.attempt) for each in began] == [
            ("r", "print_it", 1),
            ("r", "print_it", 2),
        ]
        assert began[1].nonce == nonce
        assert began[0].epoch < began[1].epoch
        assert began[0].idempotency_key == began[1].idempotency_key
        assert began[0].limits == ("printer",)
        assert [(each.error, each.is_signed) for each in ended] == [
            ("ValueError", False),
            ("", True),
        ]
        assert await verify_with_evidence(store, tmp_path / "log") == []

    async def test_works_in_child_processes(
        self,
        store: Store,
        start_worker: StartWorker,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        path = tmp_path / "log"
        monkeypatch.setenv(LOG, str(path))
        await start_worker(print_in_process)
        async with AsyncClient(store) as client:
            job = await client.enqueue(print_in_process, 1)
            await job.result(30)

        verifier = EvidenceVerifier(store, path)

        assert [finding async for finding in verifier.findings()] == []
        assert verifier.evidence_counts.executions == 1
        assert verifier.evidence_counts.committed == 1


class TestLimits:
    @pytest.mark.parametrize("signs, judged", [(True, 3), (False, 0)])
    async def test_says_on_how_much_they_were_judged(
        self, store: Store, start_worker: StartWorker, signs: bool, judged: int
    ) -> None:
        """Only a committed output proves that its execution kept the claim to its end."""
        evidence = MemoryEvidenceLog()

        @task(limits=[Concurrency(1, key="printer")])
        async def print_it(value: int, ctx: AsyncContext = CONTEXT) -> str:
            with evidence.execution(ctx, limits=["printer"]) as execution:
                return execution.nonce if signs else "unsigned"

        await start_worker(print_it)
        async with AsyncClient(store) as client:
            for number in range(3):
                await (await client.enqueue(print_it, number)).result(20)
        rules = (LimitRule(key="printer", live_max=1), LimitRule(key="unused", live_max=1))
        verifier = EvidenceVerifier(store, evidence.lines, EvidenceSettings(limits=rules))

        assert [finding async for finding in verifier.findings()] == []
        assert verifier.evidence_counts.limits == {
            "printer": Judged(executions=3, at_once=judged, starts=judged),
            "unused": Judged(executions=0),
        }


class TestEnds:
    async def test_a_job_that_was_restarted_may_end_otherwise(
        self, store: Store, start_worker: StartWorker
    ) -> None:
        evidence = MemoryEvidenceLog()
        paper: list[str] = []

        @task
        async def print_it(value: int) -> str:
            return paper[0]

        await start_worker(print_it)
        async with AsyncClient(store) as client:
            job = await client.enqueue(print_it, 1)
            with pytest.raises(JobFailed):
                await job.result(20)
            evidence.saw_end("failed", job=job.id)
            paper.append("A4")
            await job.retry()
            await job.result(20)

        before = await verify_with_evidence(store, evidence.lines)
        evidence.command_sent("retry", "", job.id)

        assert [each.code for each in before] == ["evidence.ends_are_final"]
        assert await verify_with_evidence(store, evidence.lines) == []


class TestUnclearAnswers:
    async def test_a_command_that_may_have_been_executed_proves_nothing(self, store: Store) -> None:
        flow = Flow("asking").wait_for_signal("go").build()
        nonce = new_nonce()
        async with AsyncClient(store) as client:
            await client.submit(flow, 1, id="r")
            await client.runs.signal("r", "go", nonce)
        command = CommandSent(
            at=0,
            namespace="default",
            command="signal",
            run="r",
            nonce=nonce,
            errors=("StoreError",),
        )

        assert await verify_with_evidence(store, [command]) == []

    async def test_what_may_have_been_pruned_is_not_missed(self, store: Store) -> None:
        lines = [Accepted(at=0, namespace="default", run="gone")]

        assert await verify_with_evidence(store, lines, EvidenceSettings(allows_pruned=True)) == []
        [finding] = await verify_with_evidence(store, lines)
        assert (finding.code, finding.args["run"]) == ("evidence.accepted.run", "gone")
