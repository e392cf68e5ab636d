"""External input to runs: reports on external work and broadcast signals, and listing waits.

Whether a report counts, or repeats an earlier one, is decided in ``engine.external_waits``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.engine.cached_run import CachedRun
from perdure.engine.plan import Plan
from perdure.engine.runs import RunEngine
from perdure.errors import InvalidInput, MailboxFull, NodeNotFound, PerdureError, RunEnded
from perdure.expr.budget import CostBudget, on_event_loop
from perdure.expr.condition import holds, parse_condition
from perdure.model import check
from perdure.model.event import NodeCompleted, NodeReported, ReportIgnored
from perdure.model.graph import ORDINARY, LoopNode
from perdure.model.ids import Key, RunId
from perdure.model.run import LiveType, Wait, WaitFilter, WaitType
from perdure.model.trigger import ReportReceived, SendSignal
from perdure.model.wait import LAST, Report, ReportStatus
from perdure.operations.backend import Backend
from perdure.operations.operation import Group, Role, operation
from perdure.operations.page import Page, decode_cursor, page_of, page_size
from perdure.operations.records import (
    BroadcastResult,
    ReportOutcome,
    ReportReceipt,
    WaitRecord,
    decoded,
    wait_record,
)
from perdure.operations.run_log import latest_first
from perdure.operations.submit import run_id
from perdure.store.contract import Store

ERROR_MAX = 10_000
"""Maximum characters of a failure reason."""
RUNS_AT_ONCE = 100
"""Runs per write of a broadcast."""
WRONG_STATUS = declare(
    "report.wrong_status", "{name} requires status {required!r} (got {status!r})"
)


class Waits(Group):
    """Open waits of runs."""

    @operation("waits.list", role=Role.VIEWER)
    async def list(
        self,
        *,
        type: str | None = None,
        run: str | None = None,
        name: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[WaitRecord]:
        """List the waits of runs, oldest first.

        ``type`` is ``timer``, ``signal``, ``child``, ``external`` or ``approval``.
        """
        size = page_size(limit)
        wanted = WaitFilter(
            namespace=self._backend.visible,
            run=None if run is None else run_id(run),
            type=check.optional(check.choice, type, "type", WaitType),
            name=check.optional(check.stored_name, name, "name"),
            after=None
            if cursor is None
            else decode_cursor("waits.list", cursor, tuple[datetime, RunId, str]),
        )
        store = await self._backend.store()
        found = await store.queries.list_waits(wanted, size + 1)
        records = [wait_record(wait, self._backend.codec) for wait in found]
        return page_of("waits.list", records, size, lambda wait: place_of(wait))


def place_of(wait: Wait | WaitRecord) -> tuple[datetime, RunId, str]:
    """The sort key for the next page."""
    return wait.opened_at, wait.run, wait.key


async def pages_of(store: Store, wanted: WaitFilter, size: int) -> AsyncGenerator[list[Wait], None]:
    """Yield all matching waits, the longest open first, a page at a time."""
    while True:
        page = await store.queries.list_waits(wanted, size)
        if page:
            yield page
        if len(page) < size:
            return
        wanted = replace(wanted, after=place_of(page[-1]))


# Reports.


def report(
    backend: Backend,
    id: RunId,
    node: Any,
    *,
    status: Any,
    result: Any,
    error: Any,
    progress: Any,
    port: Any,
    key: Any,
    at: Any,
    by: Any,
) -> Coroutine[Any, Any, ReportReceipt]:
    status = check.choice(status, "status", ReportStatus)
    port = ORDINARY if port in (None, ORDINARY) else check.name(port, "port")
    for name, is_given, required in (
        ("result", result is not None, ReportStatus.COMPLETED),
        ("error", error is not None, ReportStatus.FAILED),
        ("port", bool(port), ReportStatus.COMPLETED),
    ):
        if is_given and status is not required:
            raise InvalidInput(
                WRONG_STATUS.fault((name,), name=name, required=required.value, status=status.value)
            )
    at = check.optional(check.moment, at, "at")
    token = "" if at is None else f"at:{at.isoformat()}"
    content = Report(
        status=status,
        result=result,
        error=check.optional(check.text, error, "error", ERROR_MAX),
        progress=progress,
        port=port,
    )
    reported = ReportReceived(
        key=Key(node=""),
        status=status,
        report=backend.json(content, "the report"),
        token=token if key is None else check.name(key, "key"),
        by=check.optional(check.person, by, "by"),
        port=port,
        has_progress=progress is not None,
    )
    return _report(backend, id, node, reported)


async def _report(
    backend: Backend, id: RunId, node: Any, reported: ReportReceived
) -> ReportReceipt:
    run = await backend.load_run(id)
    part = _part(run, node)
    try:
        plan = await backend.command(run, replace(reported, key=part))
    except RunEnded:
        return await _too_late(backend, run, part, reported)
    outcome, before = ReportOutcome.REPEATED, plan.run.state
    for event in plan.events:
        if isinstance(event, NodeReported):
            is_ahead = part.node not in before.nodes
            outcome = ReportOutcome.KEPT if is_ahead else ReportOutcome.ACCEPTED
        elif isinstance(event, ReportIgnored):
            outcome = ReportOutcome.IGNORED
    return await _receipt(backend, run, part, outcome)


def _part(run: CachedRun, node: Any) -> Key:
    """The key that the report is for; for a loop without a number, the last iteration."""
    name = check.stored_name(node, "node")
    try:
        key = Key.parse(name)
    except ValueError:
        key = None
    nodes = run.graph.nodes
    if key is None or key.part or key.node not in nodes:
        raise NodeNotFound(run_id=run.id, node=name, known=tuple(nodes))
    if key.iteration or not isinstance(nodes[key.node], LoopNode):
        return key
    state = run.state.nodes.get(key.node)
    return replace(key, iteration=1 if state is None else max(1, state.iteration))


async def _too_late(
    backend: Backend, run: CachedRun, key: Key, reported: ReportReceived
) -> ReportReceipt:
    """The run has ended: accept a duplicate report, and ignore one after the final report."""
    has_last = False
    async for _, event in _reports(backend, run, key):
        if reported.token and event.token == reported.token:
            return await _receipt(backend, run, key, ReportOutcome.REPEATED)
        has_last = has_last or event.status in LAST
        if has_last and not reported.token:
            break
    if has_last:
        return await _receipt(backend, run, key, ReportOutcome.IGNORED)
    operation = f"report on node {key.text!r} of"
    raise RunEnded(run_id=run.id, operation=operation, status=run.state.status)


async def _receipt(
    backend: Backend, run: CachedRun, key: Key, outcome: ReportOutcome
) -> ReportReceipt:
    first = await _first(backend, run, key) if outcome is ReportOutcome.IGNORED else None
    return ReportReceipt(
        run=run.id, node=key.text, outcome=outcome, status=run.state.status, first=first
    )


async def _first(backend: Backend, run: CachedRun, key: Key) -> Report | None:
    """The final report that counted: the latest of its type in the log."""
    async for number, event in _reports(backend, run, key):
        if event.status in LAST:
            store = await backend.store()
            values = await store.runs.event_values(run.namespace, run.id, [number])
            if number not in values:  # the run was pruned concurrently
                return None
            return msgspec.convert(decoded(values[number], backend.codec), Report)
    return None


async def _reports(
    backend: Backend, run: CachedRun, key: Key
) -> AsyncIterator[tuple[int, NodeReported]]:
    """Yield the reports on a key with their numbers in the log, the latest first."""
    async for stored, event in latest_first(await backend.store(), run.namespace, run.id):
        if isinstance(event, NodeReported) and event.key == key.text:
            yield stored.number, event


# Broadcasts.


async def broadcast(backend: Backend, signal: SendSignal, flow: str | None) -> BroadcastResult:
    namespace, store = backend.namespace, await backend.store()
    engine = await backend.engine()
    # Excludes waits opened from now on: a run that receives the signal may wait for it again.
    until = await store.now()
    wanted = WaitFilter(namespace=namespace, type=WaitType.SIGNAL, name=signal.name)
    payload = msgspec.json.decode(signal.payload)
    reached: dict[RunId, None] = {}
    refused: set[RunId] = set()
    async for page in pages_of(store, wanted, RUNS_AT_ONCE):
        waiting = [wait for wait in page if wait.opened_at <= until]
        if not waiting:
            break
        if flow is not None:
            runs = await store.queries.get_runs([(namespace, wait.run) for wait in waiting])
            flows = [None if run is None else run.flow for run in runs]
            waiting = [wait for wait, of in zip(waiting, flows, strict=True) if of == flow]
        with on_event_loop():
            matching = [wait.run for wait in waiting if _accepts(backend, wait, payload)]
        new = [id for id in dict.fromkeys(matching) if id not in reached]
        sent = await _send(engine, [(namespace, id) for id in new], signal, refused)
        reached |= dict.fromkeys(id for id in new if id in sent)
        refused.update(wait.run for wait in waiting if wait.run not in matching)
    unmatched = len(refused - reached.keys())
    return BroadcastResult(name=signal.name, runs=tuple(reached), unmatched=unmatched)


def _accepts(backend: Backend, wait: Wait, payload: Any) -> bool:
    """Whether the wait matches the signal; the engine checks again."""
    if not wait.detail:
        return True
    try:
        budget = CostBudget()
        condition = parse_condition(decoded(wait.detail, backend.codec)["where"], budget=budget)
        return holds(condition, payload if isinstance(payload, dict) else {}, budget)
    except (PerdureError, LookupError, TypeError):
        return True  # cannot be decided here, or takes too long


async def _send(
    engine: RunEngine, ids: Sequence[tuple[str, RunId]], signal: SendSignal, refused: set[RunId]
) -> set[RunId]:
    """Send the signal to these runs in one write; return those that received it or will.

    Runs that cannot take it, such as a paused one with a full mailbox, are added to ``refused``.
    """
    loaded = await engine.load_many(ids)
    left = [run for run in loaded if isinstance(run, CachedRun)]
    sent: set[RunId] = set()
    while left:
        plans: list[Plan] = []
        for run in left:
            if not _waits_for(run, signal.name):
                continue
            try:
                plan = await engine.plan(run, lambda plan: plan.apply(signal))
            except (InvalidInput, MailboxFull):
                refused.add(run.id)
            else:
                plans += [plan] if _is_taken(plan) else []
        written = await engine.commit(plans)
        sent |= {plan.run.id for plan in written}
        others = [plan.run for plan in plans if plan not in written]
        left = await engine.catch_up(others)
    return sent


def _waits_for(run: CachedRun, name: str) -> bool:
    nodes = run.graph.signals.get(name, ())
    return not run.state.is_ended and any(run.state.live.get(id) is LiveType.WAIT for id in nodes)


def _is_taken(plan: Plan) -> bool:
    """Whether a node receives the signal; for a paused run, once it resumes."""
    taken = any(
        isinstance(event, NodeCompleted) and event.cause == "signal" for event in plan.events
    )
    return taken or plan.run.state.is_paused
