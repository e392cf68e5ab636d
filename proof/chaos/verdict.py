"""Compares the final store with the responses to clients and the executions of tasks.

Also renders the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from perdure import (
    AsyncClient,
    Job,
    RetryLater,
    RunRecord,
    RunStatus,
    RunUnsuccessful,
    Status,
)
from perdure.model.value import Value
from perdure.operations.page import PAGE_MAX
from perdure.store.contract import Store
from perdure.store.contract.audit import AuditedPlace
from perdure.verify import Counts, finding_text
from perdure.verify.rules.schedules_limits import PlaceView, places_kept
from proof.chaos.clients import ENDS, named
from proof.chaos.faults import FaultRecord
from proof.chaos.journal import Answer, Ask, by_answer, read_asks
from proof.chaos.load import DEAD_AFTER, FAILURES, LIMITS, number_of, results_of
from proof.evidence import EvidenceSettings, EvidenceVerifier
from proof.evidence.log import BodyEnded, BodyStarted, EventSeen, read_lines

FINDINGS_SHOWN = 50
PLANNED = ("ConnectionError", "RetryLater", "AttemptPaused")
"""How executions end on purpose, to be repeated."""


class Load(Value):
    """The amount of work, counted at the end."""

    runs: int
    jobs: int
    """Standalone jobs."""
    events: int
    executions: int
    """Executions that started."""
    retried: int
    """Those that failed on purpose, to be retried."""
    paused: int
    """Those that parked for an external callback."""
    repeated: int
    """Those that were repeated because a process died, froze, stopped or was cut off."""


class ChaosReport(Value):
    store: str
    seed: int
    workers: int
    clients: int
    fault_seconds: float
    settle_seconds: float
    faults: tuple[FaultRecord, ...]
    """All faults that were tried."""
    left_out: tuple[str, ...]
    load: Load
    asked: Mapping[str, Mapping[str, int]]
    """How often each action of clients was accepted, refused and unclear."""
    restarts: int
    failed_starts: int
    """Starts while the store was unusable; the process reported it and was restarted."""
    findings: tuple[str, ...]

    @property
    def survived(self) -> tuple[FaultRecord, ...]:
        """The faults that had an effect."""
        return tuple(each for each in self.faults if each.is_hit)

    @property
    def is_good(self) -> bool:
        return not self.findings


def report_lines(report: ChaosReport) -> Iterator[str]:
    yield f"Chaos on {report.store}, seed {report.seed}"
    yield (
        f"  faults: {len(report.survived)} in {report.fault_seconds:.0f} s, on {report.workers} "
        f"worker and {report.clients} client processes, restarted {report.restarts} times "
        f"({report.failed_starts} failed starts while the store was unavailable)"
    )
    times: dict[str, list[float]] = {}
    for each in report.survived:
        times.setdefault(each.name, []).append(each.at_seconds)
    for name, at in sorted(times.items()):
        yield f"    {len(at):>3} × {name}, at {', '.join(f'{each:.0f}' for each in sorted(at))} s"
    for each in report.faults:
        if not each.is_hit:
            yield f"      - missed, and not counted: {each.name}, {each.detail}"
    for reason in report.left_out:
        yield f"      - left out: {reason}"

    load, seconds = report.load, report.fault_seconds + report.settle_seconds
    yield (
        f"  load: {load.runs} runs, {load.jobs} plain jobs, {load.executions} attempts started, "
        f"{load.events} events in {seconds:.0f} s"
    )
    yield (
        f"    a second: {load.runs / seconds:.1f} runs, {load.jobs / seconds:.1f} plain jobs, "
        f"{load.executions / seconds:.1f} bodies, {load.events / seconds:.1f} events"
    )
    share = 100 * load.repeated / max(1, load.executions)
    yield (
        f"    attempts repeated: {load.repeated} because of faults ({share:.1f} %), "
        f"{load.retried} after failing on purpose, {load.paused} after a pause"
    )
    yield f"    settled {report.settle_seconds:.1f} s after the last fault"

    yield "  responses to clients (accepted / refused / unknown):"
    for command, counts in sorted(report.asked.items()):
        numbers = [counts.get(answer, 0) for answer in ("accepted", "refused", "unclear")]
        yield f"    {command:<10}{numbers[0]:>6} /{numbers[1]:>4} /{numbers[2]:>4}"

    if report.is_good:
        yield "  nothing was lost, nothing counted twice: no findings"
        return
    yield f"  FINDINGS: {len(report.findings)}"
    for finding in report.findings[:FINDINGS_SHOWN]:
        first, *more = finding.splitlines() or [""]
        yield f"    - {first}"
        yield from (f"      {line}" for line in more)
    if len(report.findings) > FINDINGS_SHOWN:
        yield f"    - and {len(report.findings) - FINDINGS_SHOWN} more"


class ChaosRecord(Value):
    """The result of a run of chaos besides its store."""

    evidence_log: Path
    asked: Path
    complaints: tuple[str, ...]
    """Violations during the run."""
    has_steady_clock: bool = False
    """Whether the times in the store say what came first."""


class Verdict(Value):
    findings: tuple[str, ...]
    load: Load
    asked: Mapping[str, Mapping[str, int]]


async def judge(store: Store, record: ChaosRecord) -> Verdict:
    """Open the store, and check everything in it."""
    asked = read_asks(record.asked)
    verifier = EvidenceVerifier(store, record.evidence_log, EvidenceSettings(limits=LIMITS))
    await store.open()
    try:
        checked = [finding_text(finding) async for finding in verifier.findings()]
    finally:
        await store.close()
    async with AsyncClient(store) as client:
        runs = [run async for run in _all_runs(client)]
        jobs = [job async for job in _all_jobs(client)]
        ends = [finding async for finding in _run_findings(client, runs, asked)]
        ends += [finding async for finding in _job_findings(client, jobs)]
    if record.has_steady_clock:
        ends += _place_findings(runs)
    return Verdict(
        findings=(*record.complaints, *checked, *ends, *_presence(runs, jobs, asked)),
        load=_load(record.evidence_log, verifier.counts),
        asked=by_answer(asked),
    )


async def missed_ends(client: AsyncClient, evidence_log: Path) -> list[str]:
    """The ends that followers did not get, of those after the first that each got."""
    seen: dict[str, dict[tuple[str, str, datetime], None]] = {}
    for _, line in read_lines(evidence_log):
        if isinstance(line, EventSeen) and line.name in ENDS:
            end = (line.name, line.run or line.job, line.event_at)
            seen.setdefault(line.follower, {})[end] = None
    there: set[tuple[str, str, datetime | None]] = set()
    async for run in _all_runs(client):
        there.add((f"run.{run.status}", run.id, run.finished_at))
    async for job in _all_jobs(client):
        there.add((f"job.{job.status}", job.id, job.finished_at))
    return [
        f"{follower} did not get {type} of {id!r}, which ended at {at}"
        for follower, ends in seen.items()
        for type, id, at in there - ends.keys()
        if at is not None and at > next(iter(ends))[2]
    ]


def crowded(places: Iterable[AuditedPlace]) -> list[str]:
    """Flows with more runs in progress at once than they have places."""
    held: dict[tuple[str, str], list[AuditedPlace]] = {}
    for each in places:
        held.setdefault((each.namespace, each.key), []).append(each)
    views = (PlaceView(*place, runs) for place, runs in held.items())
    return [finding_text(finding) for view in views for finding in places_kept(view)]


def _place_findings(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Whether a flow had too many runs in progress when one of them started."""
    by_key: dict[str, list[RunRecord]] = {}
    for run in runs:
        key = run.settings.place_key(run.flow)
        if key is not None and run.started_at is not None:
            by_key.setdefault(key, []).append(run)
    for key, started in by_key.items():
        for last in started:
            found = crowded(_place(each, key) for each in started if _was_there(each, last))
            if found:
                yield found[0]
                break  # the rest would repeat it


def _was_there(run: RunRecord, last: RunRecord) -> bool:
    """Whether a run was in progress when the last one had started."""
    assert run.started_at is not None
    assert last.started_at is not None
    is_ended = run.finished_at is not None and run.finished_at <= last.started_at
    return run.started_at <= last.started_at and not is_ended


def _place(run: RunRecord, key: str) -> AuditedPlace:
    return AuditedPlace(
        namespace=run.namespace,
        key=key,
        run=run.id,
        limit=run.settings.max_running or 0,
        started_at=run.started_at,
        rank=None,
        is_due=False,
    )


async def _run_findings(
    client: AsyncClient, runs: Sequence[RunRecord], asked: Sequence[Ask]
) -> AsyncIterator[str]:
    cancelled = {
        ask.run for ask in asked if ask.command == "cancel" and ask.answer is not Answer.REFUSED
    }
    for run in runs:
        if run.id in cancelled and run.status is RunStatus.CANCELLED:
            continue
        name = named(run.id)
        if name is None and "@" not in run.id:
            continue  # a child: checked with its parent
        flow, number = (run.flow, 1) if name is None else (name.flow, name.number)
        wanted, failure = results_of(flow, number), FAILURES.get(flow)
        try:
            result = await client.runs.handle(run.id).result(0)
        except RunUnsuccessful as error:
            code = None if error.failure is None else error.failure.code
            if run.status is not RunStatus.FAILED or code != failure:
                yield f"run {run.id!r} is {run.status} with {code} instead of {failure}: {error}"
        except TimeoutError:
            yield f"run {run.id!r} has not ended: it is {run.status}"
        else:
            if result not in wanted:
                yield f"run {run.id!r} gave {result!r} instead of one of {sorted(wanted)}"


async def _job_findings(client: AsyncClient, jobs: Sequence[Job]) -> AsyncIterator[str]:
    for job in jobs:
        if (attempts := DEAD_AFTER.get(job.task)) is not None:
            codes = [each.failure.code for each in await client.jobs.attempts(job.id)]
            failed = codes.count(RetryLater.CODE.name)  # crashes of workers do not count
            if job.status is not Status.DEAD or failed != attempts:
                yield (
                    f"job {job.id} (task {job.task}) is {job.status} after {failed} attempts, "
                    f"not dead after {attempts}"
                )
            continue
        if job.status is not Status.COMPLETED:
            yield f"job {job.id} (task {job.task}) is {job.status}, not completed"
            continue
        number = 1 if job.group is None else int(job.group.partition(".")[0])
        result = number_of((await client.jobs.get(job.id)).result)
        if result != number + 1:
            yield f"job {job.id} (task {job.task}) gave {result} instead of {number + 1}"


def _presence(
    runs: Sequence[RunRecord], jobs: Sequence[Job], asked: Sequence[Ask]
) -> Iterator[str]:
    """Accepted work exists once, refused work does not, and there is no other."""
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
    yield from (f"{what} {name!r} exists, but no client asked for it" for name in there)


def _answers(asked: Sequence[Ask], command: str) -> dict[str, Answer]:
    return {ask.run or ask.group: ask.answer for ask in asked if ask.command == command}


def _load(evidence_log: Path, counts: Counts) -> Load:
    parts: dict[str, tuple[str, str]] = {}
    unplanned: Counter[tuple[str, str]] = Counter()
    ends: Counter[str] = Counter()
    for _, line in read_lines(evidence_log):
        if isinstance(line, BodyStarted):
            parts[line.nonce] = (line.run, line.key) if line.run else ("", line.job)
            unplanned[parts[line.nonce]] += 1
        elif isinstance(line, BodyEnded) and line.error in PLANNED:
            ends[line.error] += 1
            unplanned[parts.get(line.nonce, ("", ""))] -= 1
    paused = ends["AttemptPaused"]
    return Load(
        runs=counts.runs,
        jobs=counts.jobs,
        events=counts.events,
        executions=len(parts),
        retried=ends.total() - paused,
        paused=paused,
        repeated=sum(max(0, count - 1) for count in unplanned.values()),
    )


async def _all_runs(client: AsyncClient) -> AsyncIterator[RunRecord]:
    cursor: str | None = None
    while True:
        page = await client.runs.list(limit=PAGE_MAX, cursor=cursor)
        for run in page:
            yield run
        if (cursor := page.next) is None:
            return


async def _all_jobs(client: AsyncClient) -> AsyncIterator[Job]:
    cursor: str | None = None
    while True:
        page = await client.jobs.list(limit=PAGE_MAX, cursor=cursor)
        for job in page:
            yield job
        if (cursor := page.next) is None:
            return
