"""``run_flow``: execute a flow in this process, on a private store in memory.

A real worker runs it, so the result cannot differ from that of a deployed one. Signals, answers to
approvals and reports on external waits are given with the input; time skips ahead when nothing else
can happen, and a run that could never finish ends with an error that says why.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar

from perdure.client.client import AsyncClient
from perdure.client.portal import Portal
from perdure.clock import system_clock
from perdure.diagnostics import Fault, declare
from perdure.errors import InvalidInput, RunStuck, RunTimeout
from perdure.flows.built import BuiltFlow
from perdure.model import check
from perdure.model.graph import ApprovalNode, LoopNode, MapNode, TaskNode
from perdure.model.hint import Hint, HintType
from perdure.model.ids import Key, RunId
from perdure.model.run import ENDED, RunFilter, Wait, WaitType
from perdure.model.times import Duration
from perdure.model.wait import Report, ReportStatus
from perdure.operations.backend import checked_flow
from perdure.operations.records import ApprovalRecord
from perdure.store.contract import Store
from perdure.store.memory.store import MemoryStore
from perdure.worker.lease_renewal import set_within
from perdure.worker.secrets import Provider
from perdure.worker.worker import Worker

CONCURRENCY = 100
"""Enough for branches and items to run side by side; there is no other worker to take them."""
SPACING_SECONDS = 0.01
"""Hints in a row cause one look in this time, not one each."""
POLL_SECONDS = 1.0
RUNS_MAX = 10_000
ANSWER_FIELDS = frozenset({"decision", "data", "by", "roles", "note"})

NOT_WAITING = declare(
    "flow.node_waits_for_none",
    "node {node!r} does not wait for {what}[; nodes that do: {known}]",
)
INVALID_REPLY = declare(
    "flow.invalid_reply",
    "{value!r} is not an answer for node {node!r}",
    "Give a decision such as 'approve', or an object with a decision and any of {fields}",
)
UNKNOWN_SIGNAL = declare(
    "flow.unknown_signal",
    "flow {flow!r} does not wait for signal {name!r}[; it waits for {known}]",
)
NOTHING_LEFT = declare(
    "run.nothing_left", "run {run_id!r} has not ended, and nothing of it is left to do"
)
NEEDS_SIGNAL = declare(
    "run.needs_signal",
    "the run waits for signal {signal!r} at node {node!r} of flow {flow!r}, "
    "which nothing here sends",
    "Pass it in `signals`, or submit the flow to a store",
)
NEEDS_ANSWER = declare(
    "run.needs_answer",
    "the run waits for an answer at node {node!r} of flow {flow!r}, which nothing here gives",
    "Pass it in `answers`, or submit the flow to a store",
)
NEEDS_REPORT = declare(
    "run.needs_report",
    "the run waits for a report[ on {step!r}] at node {node!r} of flow {flow!r}, "
    "which nothing here makes",
    "Pass it in `reports`, or submit the flow to a store",
)

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741
P = ParamSpec("P")
R = TypeVar("R")


async def run_flow_async(
    flow: BuiltFlow[I, O],
    input: I | None = None,
    *,
    signals: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
    reports: Mapping[str, Any] | None = None,
    secrets: Provider | None = None,
    allow_scripts: bool = False,
    timeout: Duration | None = None,
    skip_delays: bool = False,
) -> O:
    """Run a flow on the running event loop, and return its result. Nothing is stored.

    ``signals`` has payloads for the signals that it waits for; a list holds several for one name.
    ``answers`` has the decisions on approvals, by node: ``"approve"``, or an object with the
    arguments of ``client.approvals.decide``. An answer without ``by`` is given in the name of the
    next decider. ``reports`` has the reports on external work, by the node that waits for it: a
    result, or a ``Report``. ``secrets`` and ``allow_scripts`` are those of a worker.

    ``skip_delays`` makes delays, deadlines of signals and back-off between attempts pass at once,
    as soon as there is nothing else to do. Raises ``RunFailed`` as ``result()`` of a run does,
    ``RunTimeout`` after ``timeout``, and ``RunStuck`` if it waits for something that was not given.
    """
    replies = Replies(checked_flow(flow), signals, answers, reports)
    seconds = None if timeout is None else check.span(timeout, "timeout").total_seconds()
    store = PrivateStore()
    async with AsyncClient(store) as client:
        run = await client.submit(flow, input)
        await replies.send_early(client, run.id)
        worker = Worker(
            store,
            flows=[flow],
            concurrency=CONCURRENCY,
            hold_off="0s",  # there is no other worker to prefer
            keep_completed=None,
            keep_failed=None,
            secrets=secrets,
            allow_scripts=allow_scripts,
        )
        async with working(worker):
            try:
                async with asyncio.timeout(seconds):
                    await _watch(client, store, run.id, replies, skip_delays=skip_delays)
            except TimeoutError:
                if seconds is None:
                    raise
                status = await run.status()
                raise RunTimeout(run_id=run.id, timeout=seconds, status=status) from None
            return await run.result()


def _blocking(name: str, doc: str, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    @functools.wraps(function, assigned=("__module__", "__annotations__"))
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        portal = Portal(_nothing)
        try:
            return portal.run(function(*args, **kwargs))
        finally:
            portal.close()

    run.__name__ = run.__qualname__ = name
    run.__doc__ = doc
    return run


async def _nothing() -> None:
    pass


run_flow = _blocking(
    "run_flow",
    """Run a flow in a thread of its own, and return its result; see :func:`run_flow_async`.

    May be called on a running event loop too, which is blocked meanwhile.
    """,
    run_flow_async,
)


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    """Let a worker work on the running event loop; at the end it is stopped at once."""
    started = asyncio.Event()
    serving = asyncio.create_task(worker.serve(started=started.set))
    try:
        await started.wait()  # before that it could not be told to stop
        yield
    finally:
        worker.shutdown(grace="0s")
        await asyncio.wait([serving])


class PrivateStore(MemoryStore):
    """A store in memory whose clock can skip ahead."""

    def __init__(self) -> None:
        self._skipped = timedelta(0)
        super().__init__("memory://", clock=self._now)

    def skip_to(self, moment: datetime) -> None:
        """Let this moment come at once, and wake everything that sleeps until then."""
        self._skipped += max(timedelta(0), moment - self._now())
        self._session.state.hub.publish(Hint(type=HintType.DUE))

    def _now(self) -> datetime:
        return system_clock() + self._skipped


async def _watch(
    client: AsyncClient, store: PrivateStore, run: RunId, replies: Replies, *, skip_delays: bool
) -> None:
    """Reply, and skip delays, until the run has ended; ``RunStuck`` if it never will."""
    hinted = asyncio.Event()
    unsubscribe = store.subscribe(lambda hint: hinted.set())
    try:
        while True:
            hinted.clear()
            await replies.send(client, store)
            poll = await store.maintenance.poll(client.namespace)
            if not poll.partitions and poll.next_lease_end_at is None:
                timers = [poll.next_due_at, poll.next_wait_at]
                due_at = min((each for each in timers if each is not None), default=None)
                if due_at is None:
                    if (await client.runs.get(run)).status in ENDED:
                        return
                    raise await _stuck(client, store, run)
                if due_at > poll.now and skip_delays:
                    store.skip_to(due_at)
            await asyncio.sleep(SPACING_SECONDS)
            await set_within(hinted, POLL_SECONDS)
    finally:
        unsubscribe()


async def _stuck(client: AsyncClient, store: Store, run: RunId) -> RunStuck:
    missing: list[Fault] = []
    async for flow, wait in _open_waits(client, store):
        place = {"run_id": wait.run, "node": wait.key, "flow": flow}
        match wait.type:
            case WaitType.SIGNAL:
                missing.append(NEEDS_SIGNAL.fault(signal=wait.name, **place))
            case WaitType.APPROVAL:
                missing.append(NEEDS_ANSWER.fault(title=wait.name, **place))
            case WaitType.EXTERNAL:
                missing.append(NEEDS_REPORT.fault(step=wait.name, **place))
    missing.sort(key=lambda fault: (fault.code, *map(str, fault.args.values())))
    return RunStuck(*missing or [NOTHING_LEFT.fault(run_id=run)])


async def _open_waits(client: AsyncClient, store: Store) -> AsyncIterator[tuple[str, Wait]]:
    """The waits of all live runs, each with the name of its flow."""
    live = RunFilter(namespace=client.namespace, is_ended=False)
    for run in await store.queries.list_runs(live, RUNS_MAX):
        for wait in await store.queries.run_waits(run.namespace, run.id):
            yield run.flow, wait


class Replies:
    """Signals, answers and reports that were given with the input, each of them sent once.

    Signals that only the flow itself waits for are sent up front. Those that a child flow waits
    for, and all answers and reports, go to the first run that waits for them.
    """

    def __init__(
        self,
        flow: BuiltFlow,
        signals: Mapping[str, Any] | None,
        answers: Mapping[str, Any] | None,
        reports: Mapping[str, Any] | None,
    ) -> None:
        graphs = [each.graph for each in flow.with_children().values()]
        in_children = {
            name for graph in graphs if graph.text != flow.graph.text for name in graph.signals
        }
        known = in_children | set(flow.graph.signals)
        self._early: dict[str, list[Any]] = {}
        self._signals: dict[str, list[Any]] = {}
        given = {} if signals is None else check.mapping(signals, "signals", "names to payloads")
        for name, payload in given.items():
            if name not in known:
                fault = UNKNOWN_SIGNAL.fault(
                    ("signals", name), flow=flow.name, name=name, known=tuple(sorted(known))
                )
                raise InvalidInput(fault)
            (self._signals if name in in_children else self._early)[name] = _listed(payload)
        nodes = [node for graph in graphs for node in graph.nodes.values()]
        approvals = {node.id for node in nodes if isinstance(node, ApprovalNode)}
        workers = {node.id for node in nodes if isinstance(node, TaskNode | MapNode | LoopNode)}
        self._answers = {
            node: [_answer(node, each) for each in several]
            for node, several in _by_node(answers, "answers", approvals).items()
        }
        self._reports = _by_node(reports, "reports", workers)

    async def send_early(self, client: AsyncClient, run: RunId) -> None:
        for name, payloads in self._early.items():
            for payload in payloads:
                await client.runs.signal(run, name, payload)

    async def send(self, client: AsyncClient, store: Store) -> None:
        """Send what is left to the runs that wait for it."""
        if not (self._signals or self._answers or self._reports):
            return
        async for _, wait in _open_waits(client, store):
            if wait.type is WaitType.APPROVAL:
                await self._send_answers(client, wait)
            elif wait.type is WaitType.EXTERNAL:
                await self._send_reports(client, wait)
            elif wait.type is WaitType.SIGNAL and (payloads := self._signals.get(wait.name)):
                await client.runs.signal(wait.run, wait.name, payloads.pop(0))

    async def _send_answers(self, client: AsyncClient, wait: Wait) -> None:
        """Decide on an approval until it is closed, each time as the next of its deciders."""
        answers = self._answers.get(wait.key, [])
        while answers:
            record = await client.approvals.get(f"{wait.run}:{wait.key}")
            if not record.is_open:
                return
            await client.approvals.decide(record.id, **{"by": next_decider(record), **answers[0]})
            answers.pop(0)

    async def _send_reports(self, client: AsyncClient, wait: Wait) -> None:
        """Report on the work of a node, or of one item or iteration of it, until it is done."""
        name = wait.key if wait.key in self._reports else Key.parse(wait.key).node
        reports = self._reports.get(name, [])
        while reports:
            given = reports.pop(0)
            report = (
                given
                if isinstance(given, Report)
                else Report(status=ReportStatus.COMPLETED, result=given)
            )
            await client.runs.report(
                wait.run,
                wait.key,
                status=report.status,
                result=report.result,
                error=report.error,
                progress=report.progress,
                port=report.port,
            )
            if report.status is not ReportStatus.PROGRESS:
                return


def next_decider(approval: ApprovalRecord) -> str | None:
    """The next decider, for an answer that does not say whose it is."""
    answered = {each.by for each in approval.answers}
    return next((name for name in approval.deciders if name not in answered), None)


def _by_node(given: Any, name: str, known: set[str]) -> dict[str, list[Any]]:
    if given is None:
        return {}
    for text in check.mapping(given, name, f"node ids to {name}"):
        check.name(text, name)
        try:
            node = Key.parse(text).node
        except ValueError:
            node = text
        if node not in known:
            fault = NOT_WAITING.fault(
                (name, text), node=text, what=name, known=tuple(sorted(known))
            )
            raise InvalidInput(fault)
    return {node: _listed(each) for node, each in given.items()}


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list) else [given]


def _answer(node: str, given: Any) -> dict[str, Any]:
    """An answer as keyword arguments of ``client.approvals.decide``."""
    answer = {"decision": given} if isinstance(given, str) else given
    if not isinstance(answer, Mapping) or "decision" not in answer or answer.keys() - ANSWER_FIELDS:
        fields = ", ".join(sorted(ANSWER_FIELDS))
        fault = INVALID_REPLY.fault(("answers", node), value=given, node=node, fields=fields)
        raise InvalidInput(fault)
    return dict(answer)
