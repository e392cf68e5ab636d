"""What is done about runs that wait while no worker lives, and what must become of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import (
    AlreadyAnswered,
    ApprovalDecided,
    AsyncClient,
    InvalidAnswer,
    NotDecider,
    ReportOutcome,
    RunFailed,
    RunStatus,
)
from perdure.engine.cached_run import restored
from perdure.flows.built import BuiltFlow
from perdure.model.event import NodeCompleted, decode_event
from perdure.model.ids import RunId
from perdure.model.payload import PlainCodec
from perdure.model.run import ENDED, LoadedRun, Run, RunFilter, RunState
from perdure.operations.run_log import RunLog, event_type
from perdure.store.contract import EventsAfter, Store
from tests.crash import waiting_flows as flows

REGIONS = ("north", "south", "west")
FAILED = "failed: perdure.errors.WaitTimedOut"

Act = Callable[[AsyncClient, str, int], Awaitable[object]]


async def nothing(_client: AsyncClient, _run: str, _number: int) -> None:
    """What it waits for comes by itself, or to many at once."""


@dataclass(frozen=True)
class Scene:
    """Some runs of one flow: what is done about each, its result, and what its log must have."""

    flow: BuiltFlow
    count: int
    result: Callable[[int], Any]
    log: dict[str, int] = field(default_factory=dict)
    """How often each kind of event is there, of those that are acts and ends of nodes."""
    act: Act = nothing
    input: Callable[[int], Any] = lambda number: number
    late: Act = nothing
    """What is tried when its time is over, and nobody has seen to that yet."""

    def id(self, number: int) -> str:
        return f"{self.flow.name}-{number}"


# Signals


async def send_letter(client: AsyncClient, run: str, number: int) -> None:
    await client.runs.signal(run, "letter", {"letter": number})


async def send_second_before_first(client: AsyncClient, run: str, number: int) -> None:
    await client.runs.signal(run, "second", {"second": number})
    await client.runs.signal(run, "first")


async def pay_for_others_too(client: AsyncClient, run: str, number: int) -> None:
    await client.runs.signal(run, "paid", {"order": number + 1})
    await client.runs.signal(run, "paid", {"order": number, "by": "ann"})
    await client.runs.signal(run, "paid", {"order": number, "by": "bob"})


async def tell_the_west(client: AsyncClient, run: str, number: int) -> None:
    if number % 3 == 2:
        await client.runs.signal(run, "news", {"region": "west"})


# People


def answered(decision: str, data: Any, *answers: dict[str, Any]) -> dict[str, Any]:
    """The output of an approval."""
    full = [{"decision": decision, "note": None, "data": None} | each for each in answers]
    names = [each["by"] for each in full]
    told = {"decision": decision, "data": data, "by": names, "answers": full}
    return {**told, "timed_out": False}


def timed_out(decision: str, data: Any) -> dict[str, Any]:
    return {"decision": decision, "data": data, "by": [], "answers": [], "timed_out": True}


async def decide_twice(client: AsyncClient, run: str, number: int) -> None:
    if number % 2:
        await client.approvals.decide(f"{run}:ask", "reject", by="ann", note=f"not {number}")
    else:
        await client.approvals.decide(f"{run}:ask", "approve", by="ann")
    with pytest.raises(ApprovalDecided):
        await client.approvals.decide(f"{run}:ask", "approve", by="bob")


async def sign(client: AsyncClient, run: str, number: int) -> None:
    first = await client.approvals.decide(f"{run}:ask", "approve", by="cem")
    assert first.is_open
    with pytest.raises(AlreadyAnswered):
        await client.approvals.decide(f"{run}:ask", "approve", by="cem")
    assert not (await client.approvals.decide(f"{run}:ask", "approve", by="ann")).is_open


async def fill_in(client: AsyncClient, run: str, number: int) -> None:
    with pytest.raises(InvalidAnswer):
        await client.approvals.decide(
            f"{run}:ask", "approve", data={"amount": 501}, roles=["finance"]
        )
    with pytest.raises(NotDecider):
        await client.approvals.decide(f"{run}:ask", "approve", data={"amount": 5}, by="ann")
    data = {"amount": 1 + number % 500}
    await client.approvals.decide(f"{run}:ask", "approve", data=data, by="lea", roles=["finance"])


async def decide_late(client: AsyncClient, run: str, _number: int) -> None:
    with pytest.raises(ApprovalDecided):
        await client.approvals.decide(f"{run}:ask", "reject", by="ann")


async def decide_in_child(client: AsyncClient, run: str, number: int) -> None:
    [child] = await client.runs.handle(run).children()
    await client.approvals.decide(f"{child.id}:ask", "approve", by="ann")


async def decide_and_post(client: AsyncClient, run: str, number: int) -> None:
    await client.runs.signal(run, "post", number)
    await client.approvals.decide(f"{run}:person", "approve", by="ann")


# Outside parties


async def report_twice(client: AsyncClient, run: str, number: int) -> None:
    node = "print_label"
    await client.runs.report(run, node, progress={"pages": number}, by="printer")
    if number % 4 == 3:
        told: dict[str, Any] = {"status": "failed", "error": "no paper"}
    else:
        told = {"status": "completed", "result": f"L-{number}"}
    receptions = [(await client.runs.report(run, node, **told, key="1")).outcome for _ in range(2)]
    assert receptions == [ReportOutcome.ACCEPTED, ReportOutcome.REPEATED]


async def report_early(client: AsyncClient, run: str, number: int) -> None:
    await client.runs.report(run, "print_once", status="completed", result={"early": number})


def label_of(number: int) -> Any:
    done = {"failed": "no paper"} if number % 4 == 3 else {"label": f"L-{number}"}
    return {**done, "pages": {"pages": number}}


def soon(_number: int) -> dict[str, Any]:
    return {"at": (datetime.now(UTC) + timedelta(seconds=flows.SPAN_SECONDS)).isoformat()}


PATIENT = [
    Scene(
        flows.letter,
        100,
        lambda number: {"letter": number},
        {"signal_received": 1, "node_completed": 3},
        send_letter,
    ),
    Scene(
        flows.letters,
        60,
        lambda number: {"second": number},
        {"signal_received": 2, "node_completed": 5},
        send_second_before_first,
    ),
    Scene(
        flows.payment,
        60,
        lambda number: {"order": number, "by": "ann"},
        {"signal_received": 3, "node_completed": 3},
        pay_for_others_too,
    ),
    Scene(
        flows.news,
        90,
        lambda number: {"region": REGIONS[number % 3]},
        {"signal_received": 1, "node_completed": 3},
        tell_the_west,
        input=lambda number: {"region": REGIONS[number % 3]},
    ),
    Scene(
        flows.question,
        150,
        lambda number: (
            f"refused: not {number}" if number % 2 else answered("approve", number, {"by": "ann"})
        ),
        {"approval_answered": 1, "node_completed": 3},
        decide_twice,
    ),
    Scene(
        flows.contract,
        80,
        lambda number: answered("approve", number, {"by": "cem"}, {"by": "ann"}),
        {"approval_answered": 2, "node_completed": 3},
        sign,
    ),
    Scene(
        flows.refund,
        60,
        lambda number: answered(
            "approve",
            {"amount": 1 + number % 500, "of": number},
            {"by": "lea", "data": {"amount": 1 + number % 500}},
        ),
        {"approval_answered": 1, "node_completed": 3},
        fill_in,
        input=lambda number: {"amount": 500, "of": number},
    ),
    Scene(
        flows.label,
        80,
        label_of,
        {"node_paused": 1, "node_reported": 2, "node_completed": 3},
        report_twice,
    ),
]
"""They wait until somebody does something."""
TIMED = [
    Scene(flows.nap, 80, lambda number: number, {"node_completed": 3}),
    Scene(flows.alarm, 40, lambda _: "too late", {"node_completed": 3}, input=soon),
    Scene(flows.hurry, 50, lambda _: "too late", {"node_completed": 3}),
    Scene(
        flows.yes_in_time,
        40,
        lambda number: timed_out("approve", number),
        {"node_completed": 3},
        late=decide_late,
    ),
    Scene(flows.port_in_time, 40, lambda _: "too late", {"node_completed": 3}, late=decide_late),
    Scene(
        flows.fail_in_time,
        20,
        lambda _: FAILED,
        {"node_completed": 1, "node_failed": 1},
        late=decide_late,
    ),
    Scene(flows.silent, 20, lambda _: "too late", {"node_paused": 1, "node_completed": 3}),
    Scene(
        flows.several,
        20,
        lambda number: {
            "person": answered("approve", number, {"by": "ann"}),
            "post": number,
            "time": number,
        },
        {"approval_answered": 1, "signal_received": 1, "node_completed": 5},
        decide_and_post,
    ),
]
"""They end by themselves after a while."""
CHILDREN = Scene(
    flows.parent,
    10,
    lambda number: answered("approve", number, {"by": "ann"}),
    {"node_completed": 3},
    decide_in_child,
)
"""Each waits for a run of its own, which waits for somebody."""
EARLY = Scene(
    flows.early_label,
    10,
    lambda number: {"early": number},
    {"node_reported": 1, "node_paused": 1, "node_completed": 3},
    report_early,
)
"""The report comes before a worker was there to pause the body."""
WAITING = [*PATIENT, *TIMED, CHILDREN]
WAITING_RUNS = sum(scene.count for scene in WAITING)


# What is true of runs that have ended, whoever died meanwhile: each has one end, and one log.


NAMESPACE = "default"
PAGE = 200
COUNTED = frozenset(
    {
        "node_completed",
        "node_failed",
        "node_retried",
        "node_paused",
        "node_reported",
        "report_ignored",
        "approval_answered",
        "signal_received",
    }
)
"""Events of which one too many would be an act, or an end of a node, that counted twice."""


async def check_logs(store: Store) -> dict[str, dict[str, int]]:
    """Check every run and its log; how often there is what, by run."""
    counts: dict[str, dict[str, int]] = {}
    async for run, whole, shortened in _loaded(store):
        log = RunLog(run.id, PlainCodec())
        log.take(whole.events)
        assert log.state == _restored(shortened)
        assert (log.state.status, log.state.number) == (run.status, run.number)
        assert run.status in ENDED
        assert not log.state.live
        counts[run.id] = _counted(whole)
    return counts


async def check_nothing_is_left(client: AsyncClient, store: Store) -> None:
    """No wait, no job, no lease."""
    assert list(await client.waits.list()) == []
    assert await client.jobs.count() == 0
    poll = await store.maintenance.poll(NAMESPACE)
    assert (poll.partitions, poll.next_lease_end_at, poll.next_due_at) == ((), None, None)
    assert (poll.next_wait_at, poll.next_tick_at) == (None, None)


async def check_nothing_is_held(client: AsyncClient, store: Store, ids: Collection[str]) -> None:
    """Runs that wait have no job at all, let alone one that somebody holds."""
    runs = await runs_of(store, ids)
    jobs = await client.jobs.list(limit=1000)
    assert {run.status for run in runs} == {RunStatus.WAITING}
    assert {job.node.run for job in jobs if job.node is not None}.isdisjoint(ids)


async def runs_of(store: Store, ids: Collection[str]) -> list[Run]:
    found = await store.queries.get_runs([(NAMESPACE, RunId(id)) for id in ids])
    runs = [run for run in found if run is not None]
    assert len(runs) == len(ids)
    return runs


async def outcome_of(client: AsyncClient, run: str, timeout: float) -> Any:
    """The result, or what the run failed with."""
    try:
        return await client.runs.handle(run).result(timeout)
    except RunFailed as error:
        return f"failed: {error.failure and error.failure.type}"


async def _loaded(store: Store) -> AsyncIterator[tuple[Run, LoadedRun, LoadedRun]]:
    """Every run there is, with its whole log, and as a worker would load it."""
    before = None
    while True:
        runs = await store.queries.list_runs(RunFilter(namespace=NAMESPACE, before=before), PAGE)
        if not runs:
            return
        before = (runs[-1].created_at, runs[-1].id)
        whole = [EventsAfter(namespace=NAMESPACE, id=run.id, number=0) for run in runs]
        shortened = [EventsAfter(namespace=NAMESPACE, id=run.id) for run in runs]
        loaded = (await store.runs.load(whole), await store.runs.load(shortened))
        for run, log, short in zip(runs, *loaded, strict=True):
            assert log is not None
            assert short is not None
            yield run, log, short


def _restored(loaded: LoadedRun) -> RunState:
    found = restored(loaded, PlainCodec())
    assert found is not None
    return found[0]


def _counted(loaded: LoadedRun) -> dict[str, int]:
    events = [decode_event(loaded.run.id, each.number, each.data) for each in loaded.events]
    nodes = Counter(event.node for event in events if isinstance(event, NodeCompleted))
    assert set(nodes.values()) <= {1}
    node_types = Counter(event_type(event) for event in events)
    return {found_type: count for found_type, count in node_types.items() if found_type in COUNTED}
