"""``run_flow``: execute a flow in this process, on a private in-memory store.

A real worker executes it, as in production. The caller passes signals, answers and reports along
with the input. A run that can never finish raises ``RunStuck``.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
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
from perdure.model.ids import RUN_TIMEOUT, Key, RunId
from perdure.model.principal import role_of
from perdure.model.run import ENDED, RunFilter, Wait, WaitType
from perdure.model.times import Duration
from perdure.model.wait import Report, ReportStatus
from perdure.model.worker import PollResult
from perdure.operations.backend import checked_flow
from perdure.operations.records import ApprovalRecord
from perdure.store.contract import Store
from perdure.store.memory.store import MemoryStore
from perdure.worker.grants import Grant
from perdure.worker.lease_renewal import set_within
from perdure.worker.resources import fixed
from perdure.worker.secrets import Provider
from perdure.worker.worker import Worker

CONCURRENCY = 100
"""Enough for branches and items to run in parallel on the only worker."""
SPACING_SECONDS = 0.01
"""Several hints within this time cause a single poll."""
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
    "run.nothing_left", "run {run_id!r} has not ended, but has no job, timer or wait left"
)
NEEDS_SIGNAL = declare(
    "run.needs_signal",
    "node {node!r} of flow {flow!r} waits for signal {signal!r}, which was not passed",
    "Pass it in `signals`, or submit the flow to a store",
)
NEEDS_ANSWER = declare(
    "run.needs_answer",
    "node {node!r} of flow {flow!r} waits for an answer, which was not passed",
    "Pass it in `answers`, or submit the flow to a store",
)
NEEDS_REPORT = declare(
    "run.needs_report",
    "node {node!r} of flow {flow!r} waits for a report[ on {step!r}], which was not passed",
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
    answers: Mapping[str, Any] | Answerer | None = None,
    reports: Mapping[str, Any] | None = None,
    secrets: Provider | None = None,
    grants: Sequence[Grant] = (),
    allow_scripts: bool = False,
    resources: Mapping[str, Any] | None = None,
    timeout: Duration | None = None,
    skip_delays: bool = False,
) -> O:
    """Run a flow on the running event loop and return its result. Nothing is stored.

    ``signals`` maps the names of signals to payloads; a list holds several payloads for one signal.
    ``answers`` maps approval nodes to decisions: ``"approve"``, or an object with the arguments of
    ``client.approvals.decide``; ``by`` defaults to the next decider. A list holds several, for
    several deciders, iterations or items; a function, for one node or for all, gets each
    ``ApprovalRecord`` that needs an answer, and returns one or None. ``reports`` maps nodes with
    external waits to results or ``Report`` objects. ``secrets``, ``grants`` and ``allow_scripts``
    are passed to the worker. ``resources`` maps names to the resources that tasks declare.

    ``skip_delays`` skips delays, timeouts and retry backoff as soon as nothing else is left to do.
    Raises the errors of a run handle's ``result()``, ``RunTimeout`` after ``timeout``, and
    ``RunStuck`` if the run waits for something that was not passed.
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
            grants=grants,
            allow_scripts=allow_scripts,
            lifespan=fixed(resources),
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
    """Run a flow in its own thread and return its result; see :func:`run_flow_async`.

    A call on a running event loop blocks that loop.
    """,
    run_flow_async,
)


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    """Run a worker on the running event loop; on exit, stop it without a grace period."""
    started = asyncio.Event()
    serving = asyncio.create_task(worker.serve(started=started.set))
    starting = asyncio.create_task(started.wait())
    try:
        # An earlier shutdown request would be lost.
        await asyncio.wait([starting, serving], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving  # raises what kept it from starting
        yield
    finally:
        starting.cancel()
        worker.shutdown(grace="0s")
        await asyncio.wait([serving])


class PrivateStore(MemoryStore):
    """An in-memory store whose clock can skip ahead."""

    def __init__(self) -> None:
        self._skipped = timedelta(0)
        super().__init__("memory://", clock=self._now)

    def skip_to(self, moment: datetime) -> None:
        """Move the clock to ``moment`` and wake everything that is due by then."""
        self._skipped += max(timedelta(0), moment - self._now())
        self._session.state.hub.publish(Hint(type=HintType.DUE))

    def _now(self) -> datetime:
        return system_clock() + self._skipped


async def _watch(
    client: AsyncClient, store: PrivateStore, run: RunId, replies: Replies, *, skip_delays: bool
) -> None:
    """Send replies and skip delays until the run has ended; raise ``RunStuck`` if it never will."""
    hinted = asyncio.Event()
    unsubscribe = store.subscribe(lambda hint: hinted.set())
    try:
        while True:
            hinted.clear()
            if await replies.send(client, store):
                continue  # it may have led to the next wait at once
            poll = await store.maintenance.poll(client.namespace)
            if not poll.partitions and poll.next_lease_end_at is None:
                timers = [poll.next_due_at, poll.next_wait_at]
                due_at = min((each for each in timers if each is not None), default=None)
                if due_at is None or await _waits_for_its_timeout(client, store, poll):
                    if (await client.runs.get(run)).status in ENDED:
                        return
                    raise await _stuck(client, store, run)
                if due_at > poll.now and skip_delays:
                    store.skip_to(due_at)
            await asyncio.sleep(SPACING_SECONDS)
            await set_within(hinted, POLL_SECONDS)
    finally:
        unsubscribe()


async def _waits_for_its_timeout(client: AsyncClient, store: Store, poll: PollResult) -> bool:
    """Whether nothing else is due: what was not passed would not come before the timeout either."""
    if poll.next_due_at is not None:
        return False
    timed = [wait.key async for _, wait in _open_waits(client, store) if wait.due_at is not None]
    return bool(timed) and all(key == RUN_TIMEOUT for key in timed)


async def _stuck(client: AsyncClient, store: Store, run: RunId) -> RunStuck:
    missing: list[Fault] = []
    async for flow, wait in _open_waits(client, store):
        place = {"run_id": wait.run, "node": wait.key, "flow": flow}
        match wait.type:
            case WaitType.SIGNAL:
                missing.append(NEEDS_SIGNAL.fault(signal=wait.name, **place))
            case WaitType.APPROVAL:
                title = (await client.approvals.get(f"{wait.run}:{wait.key}")).title
                missing.append(NEEDS_ANSWER.fault(title=title, **place))
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


Answerer = Callable[[ApprovalRecord], Any]


class Replies:
    """The signals, answers and reports passed with the input. Each is sent once.

    Signals that only the top-level flow waits for are sent up front. Signals for child flows, and
    all answers and reports, are sent to the first run that waits for them.
    """

    def __init__(
        self,
        flow: BuiltFlow,
        signals: Mapping[str, Any] | None,
        answers: Mapping[str, Any] | Answerer | None,
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
        self._answerers: dict[str, Answerer] = {}
        self._answers: dict[str, list[dict[str, Any]]] = {}
        if callable(answers):
            answers = dict.fromkeys(approvals, answers)
        for node, several in _by_node(answers, "answers", approvals).items():
            if len(several) == 1 and callable(several[0]):
                self._answerers[node] = several[0]
            else:
                self._answers[node] = [_answer(node, each) for each in several]
        self._reports = _by_node(reports, "reports", workers)

    async def send_early(self, client: AsyncClient, run: RunId) -> None:
        for name, payloads in self._early.items():
            for payload in payloads:
                await client.runs.signal(run, name, payload)

    async def send(self, client: AsyncClient, store: Store) -> bool:
        """Send replies to the runs that wait for them, oldest first; whether there were any."""
        if not (self._signals or self._answers or self._answerers or self._reports):
            return False
        is_sent = False
        waits = [wait async for _, wait in _open_waits(client, store)]
        for wait in sorted(waits, key=lambda wait: (wait.opened_at, _numbered(wait.run))):
            if wait.type is WaitType.APPROVAL:
                is_sent |= await self._send_answers(client, wait)
            elif wait.type is WaitType.EXTERNAL:
                is_sent |= await self._send_reports(client, wait)
            elif wait.type is WaitType.SIGNAL and (payloads := self._signals.get(wait.name)):
                await client.runs.signal(wait.run, wait.name, payloads.pop(0))
                is_sent = True
        return is_sent

    async def _send_answers(self, client: AsyncClient, wait: Wait) -> bool:
        """Answer an approval until it is closed, each time as its next decider."""
        answers, answerer = self._answers.get(wait.key, []), self._answerers.get(wait.key)
        is_sent = False
        while answers or answerer is not None:
            record = await client.approvals.get(f"{wait.run}:{wait.key}")
            if not record.is_open:
                break
            if answerer is not None:
                found = answerer(record)
                if found is None:
                    break
                given = _answer(wait.key, found)
            else:
                given = answers[0]
            answer = {**next_decider(record), "revision": record.revision, **given}
            await client.approvals.decide(record.id, **answer)
            is_sent = True
            if answerer is None:
                answers.pop(0)
        return is_sent

    async def _send_reports(self, client: AsyncClient, wait: Wait) -> bool:
        """Report on a node, or on one of its items or iterations, until it is done."""
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
                return True
        return False


def _numbered(run: str) -> list[str | int]:
    """A key that sorts child runs by the numbers in their ids: items and iterations."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", run)]


def next_decider(approval: ApprovalRecord) -> dict[str, Any]:
    """The first decider who has not answered: ``by`` and ``roles`` of answers without them.

    The answer of a role is that of a user with the role's name.
    """
    answered = {each for answer in approval.answers for each in (answer.by, *answer.stands_for)}
    for decider in approval.deciders:
        if decider not in answered:
            role = role_of(decider)
            return {"by": decider} if role is None else {"by": role, "roles": [role]}
    return {}


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
