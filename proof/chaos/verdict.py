"""What the store says in the end, held against what clients were told and what bodies did."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure import AsyncClient, Job, RunEndedBadly, RunRecord, RunStatus, Status
from perdure.client.client import JOBS_PAGE_MAX
from perdure.client.runs import RUNS_PAGE_MAX
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.verify import Counts
from proof.chaos.asks import Answer, Ask, by_answer, read_asks
from proof.chaos.load import LIMITS, number_of, results_of
from proof.chaos.naming import named
from proof.chaos.report import Load
from proof.evidence import EvidenceSettings, EvidenceVerifier
from proof.evidence.log import BodyBegan, BodyEnded, read_lines


class Evidence(Value):
    """What a run of chaos leaves behind besides its store."""

    witnessed: Path
    asked: Path
    complaints: tuple[str, ...]
    """What was wrong while it ran."""


class Verdict(Value):
    findings: tuple[str, ...]
    load: Load
    asked: Mapping[str, Mapping[str, int]]


async def judge(store: Store, evidence: Evidence) -> Verdict:
    """Open the store, and look at everything in it."""
    asked = read_asks(evidence.asked)
    verifier = EvidenceVerifier(store, evidence.witnessed, EvidenceSettings(limits=LIMITS))
    await store.open()
    try:
        checked = [str(finding) async for finding in verifier.findings()]
    finally:
        await store.close()
    async with AsyncClient(store) as client:
        runs = [run async for run in _all_runs(client)]
        jobs = [job async for job in _all_jobs(client)]
        ends = [finding async for finding in _run_findings(client, runs, asked)]
        ends += [finding async for finding in _job_findings(client, jobs)]
    return Verdict(
        findings=(*evidence.complaints, *checked, *ends, *_presence(runs, jobs, asked)),
        load=_load(evidence.witnessed, verifier.counts),
        asked=by_answer(asked),
    )


# How everything ended


async def _run_findings(
    client: AsyncClient, runs: Sequence[RunRecord], asked: Sequence[Ask]
) -> AsyncIterator[str]:
    cancelled = {
        ask.run for ask in asked if ask.act == "cancel" and ask.answer is not Answer.REFUSED
    }
    for run in runs:
        if run.id in cancelled and run.status is RunStatus.CANCELLED:
            continue
        name = named(run.id)
        if name is not None:
            wanted = results_of(name.flow, name.number)
        elif "@" in run.id:
            wanted = results_of(run.flow, 1)
        else:
            continue  # a child: its parent tells
        try:
            result = await client.run_handle(run.id).result(0)
        except RunEndedBadly as error:
            if wanted or run.status is not RunStatus.FAILED:
                yield f"run {run.id!r} is {run.status}: {error}"
        except TimeoutError:
            yield f"run {run.id!r} has not ended: it is {run.status}"
        else:
            if result not in wanted:
                yield f"run {run.id!r} gave {result!r} instead of one of {sorted(wanted)}"


async def _job_findings(client: AsyncClient, jobs: Sequence[Job]) -> AsyncIterator[str]:
    for job in jobs:
        if job.status is not Status.COMPLETED:
            yield f"job {job.id} (task {job.task}) is {job.status}, not completed"
            continue
        number = 1 if job.group is None else int(job.group.partition(".")[0])
        result = number_of((await client.job(job.id)).result)
        if result != number + 1:
            yield f"job {job.id} (task {job.task}) gave {result} instead of {number + 1}"


# What is there


def _presence(
    runs: Sequence[RunRecord], jobs: Sequence[Job], asked: Sequence[Ask]
) -> Iterator[str]:
    """What was accepted is there once, what was refused is not, and nothing comes from nowhere."""
    yield from _compared(
        "run", Counter(run.id for run in runs if named(run.id)), _answers(asked, "submit")
    )
    yield from _compared(
        "job of group", Counter(job.group for job in jobs if job.group), _answers(asked, "enqueue")
    )


def _compared(what: str, there: Counter[str], answers: Mapping[str, Answer]) -> Iterator[str]:
    for name, answer in answers.items():
        count = there.pop(name, 0)
        if answer is Answer.ACCEPTED and count != 1:
            yield f"{what} {name!r} was accepted, and is there {count} times"
        if answer is Answer.REFUSED and count:
            yield f"{what} {name!r} was refused, and is there all the same"
        if answer is Answer.UNCLEAR and count > 1:
            yield f"{what} {name!r} is there {count} times"
    yield from (f"{what} {name!r} is there, and nobody asked for it" for name in there)


def _answers(asked: Sequence[Ask], act: str) -> dict[str, Answer]:
    return {ask.run or ask.group: ask.answer for ask in asked if ask.act == act}


# How much was done


def _load(witnessed: Path, counts: Counts) -> Load:
    pieces: set[tuple[str, str]] = set()
    begun = 0
    ends: Counter[str] = Counter()
    for _, line in read_lines(witnessed):
        if isinstance(line, BodyBegan):
            begun += 1
            pieces.add((line.run, line.key) if line.run else ("", line.job))
        elif isinstance(line, BodyEnded):
            ends[line.error] += 1
    retried, paused = ends["ConnectionError"], ends["AttemptPaused"]
    return Load(
        runs=counts.runs,
        jobs=counts.jobs,
        events=counts.events,
        executions=begun,
        retried=retried,
        paused=paused,
        repeated=max(0, begun - len(pieces) - retried - paused),
    )


async def _all_runs(client: AsyncClient) -> AsyncIterator[RunRecord]:
    before: str | None = None
    while True:
        page = await client.runs(limit=RUNS_PAGE_MAX, before=before)
        for run in page:
            yield run
        if len(page) < RUNS_PAGE_MAX:
            return
        before = page[-1].id


async def _all_jobs(client: AsyncClient) -> AsyncIterator[Job]:
    before: Any = None
    while True:
        page = await client.jobs(limit=JOBS_PAGE_MAX, before=before)
        for job in page:
            yield job
        if len(page) < JOBS_PAGE_MAX:
            return
        before = page[-1].id
