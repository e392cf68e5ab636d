"""``run_flow``: execute a flow in this process, on a private store in memory.

A real worker runs it, so the result cannot differ from that of a deployed one. Replies to
approvals and reports on external waits are given with the input; time skips ahead when nothing
else can happen, and a run that could never finish ends with an error that says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from perdure.client.approval_records import ApprovalRecord
from perdure.client.client import AsyncClient
from perdure.client.portal import Portal
from perdure.client.submitting import checked_flow
from perdure.clock import system_clock
from perdure.diagnostics import Fault, declare
from perdure.errors import InvalidInput, RunStuck, RunTimeout
from perdure.flows.built import BuiltFlow
from perdure.model import check
from perdure.model.graph import ApprovalNode, LoopNode, MapNode, TaskNode
from perdure.model.hint import Hint, HintKind
from perdure.model.ids import Key, RunId
from perdure.model.run import ENDED, RunFilter, Wait, WaitKind
from perdure.model.times import Duration
from perdure.model.wait import Report, ReportStatus
from perdure.model.worker import PollResult
from perdure.store.contract import Store
from perdure.store.memory.store import MemoryStore
from perdure.worker.secrets import Provider
from perdure.worker.worker import Worker

NOT_WAITING = declare(
    "flow.node_waits_for_none",
    "node {node!r} does not wait for {what}[; nodes that do: {known}]",
)
INVALID_REPLY = declare(
    "flow.invalid_reply",
    "{value!r} is not an answer for node {node!r}",
    "Give a decision such as 'approve', or an object with a decision and any of {fields}",
)


ANSWER_FIELDS = frozenset({"decision", "data", "by", "roles", "note"})


class Replies:
    """What people and outside parties say, by the node that waits for it; each of them once."""

    def __init__(
        self,
        flow: BuiltFlow,
        answers: Mapping[str, Any] | None,
        reports: Mapping[str, Any] | None,
    ) -> None:
        nodes = [
            node for each in flow.with_children().values() for node in each.graph.nodes.values()
        ]
        approvals = {node.id for node in nodes if isinstance(node, ApprovalNode)}
        workers = {node.id for node in nodes if isinstance(node, TaskNode | MapNode | LoopNode)}
        self._answers = {
            node: [_answer(node, each) for each in given]
            for node, given in _by_node(answers, "answers", approvals).items()
        }
        self._reports = _by_node(reports, "reports", workers)

    def __bool__(self) -> bool:
        return bool(self._answers or self._reports)

    async def answer(self, client: AsyncClient, wait: Wait) -> None:
        """Decide on an approval, as the next of its deciders where it is not said as whom."""
        for answer in _all_of(self._answers.get(wait.key)):
            record = await client.approval(f"{wait.run}:{wait.key}")
            if not record.is_open:
                return
            await client.decide(record.id, **{"by": next_decider(record), **answer})
            self._answers[wait.key].pop(0)

    async def report(self, client: AsyncClient, wait: Wait) -> None:
        """Report on the work of a node, or of one item or iteration of it."""
        name = wait.key if wait.key in self._reports else Key.parse(wait.key).node
        for given in _all_of(self._reports.get(name)):
            self._reports[name].pop(0)
            report = given if isinstance(given, Report) else _completed(given)
            await client.report(
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
    """Whose turn it is, where nobody says as whom they answer."""
    answered = {each.by for each in approval.answers}
    return next((name for name in approval.deciders if name not in answered), None)


def _completed(result: Any) -> Report:
    return Report(status=ReportStatus.COMPLETED, result=result)


def _all_of(given: list[Any] | None) -> list[Any]:
    return list(given or ())


def _by_node(given: Any, name: str, known: set[str]) -> dict[str, list[Any]]:
    if given is None:
        return {}
    for text in check.mapping(given, name, f"node ids to {name}"):
        check.name(text, name)
        if _node_of(text) not in known:
            fault = NOT_WAITING.fault(
                (name, text), node=text, what=name, known=tuple(sorted(known))
            )
            raise InvalidInput(fault)
    return {node: list(each) if isinstance(each, list) else [each] for node, each in given.items()}


def _node_of(text: str) -> str:
    try:
        return Key.parse(text).node
    except ValueError:
        return text


def _answer(node: str, given: Any) -> dict[str, Any]:
    """As ``client.decide`` takes it."""
    answer = {"decision": given} if isinstance(given, str) else given
    if not isinstance(answer, Mapping) or "decision" not in answer or answer.keys() - ANSWER_FIELDS:
        fields = ", ".join(sorted(ANSWER_FIELDS))
        fault = INVALID_REPLY.fault(("answers", node), value=given, node=node, fields=fields)
        raise InvalidInput(fault)
    return dict(answer)


UNKNOWN_SIGNAL = declare(
    "flow.unknown_signal",
    "flow {flow!r} does not wait for signal {name!r}[; it waits for {known}]",
)


RUNS_MAX = 10_000


class Mail:
    """Payloads by the name of their signal, each of them delivered once, and replies.

    Signals that only the flow itself waits for are delivered up front; those that a child flow
    waits for, and all replies, to the first run that does.
    """

    def __init__(
        self, flow: BuiltFlow, signals: Mapping[str, Any] | None, replies: Replies
    ) -> None:
        self._replies = replies
        graphs = [each.graph for each in flow.with_children().values()]
        in_children = {
            name for graph in graphs if graph.text != flow.graph.text for name in graph.signals
        }
        known = in_children | set(flow.graph.signals)
        self._up_front: dict[str, list[Any]] = {}
        self._kept: dict[str, list[Any]] = {}
        for name, payload in _checked(signals).items():
            if name not in known:
                fault = UNKNOWN_SIGNAL.fault(
                    ("signals", name), flow=flow.name, name=name, known=tuple(sorted(known))
                )
                raise InvalidInput(fault)
            place = self._kept if name in in_children else self._up_front
            place[name] = list(payload) if isinstance(payload, list) else [payload]

    async def deliver_up_front(self, client: AsyncClient, run: RunId) -> None:
        for name, payloads in self._up_front.items():
            for payload in payloads:
                await client.signal(run, name, payload)

    async def deliver_kept(self, client: AsyncClient, store: Store) -> None:
        """Hand what is left to the runs that wait for it."""
        if not self._kept and not self._replies:
            return
        live = RunFilter(namespace=client.namespace, is_ended=False)
        for run in await store.queries.list_runs(live, RUNS_MAX):
            for wait in await store.queries.run_waits(run.namespace, run.id):
                await self._deliver(client, wait)

    async def _deliver(self, client: AsyncClient, wait: Wait) -> None:
        if wait.kind is WaitKind.APPROVAL:
            await self._replies.answer(client, wait)
        elif wait.kind is WaitKind.OUTSIDE:
            await self._replies.report(client, wait)
        elif wait.kind is WaitKind.SIGNAL and (payloads := self._kept.get(wait.name)):
            await client.signal(wait.run, wait.name, payloads.pop(0))


def _checked(signals: Any) -> dict[str, Any]:
    return {} if signals is None else check.mapping(signals, "signals", "names to payloads")


class SkippingClock:
    """The time of day, plus all that was skipped."""

    def __init__(self) -> None:
        self._skipped = timedelta(0)

    def __call__(self) -> datetime:
        return system_clock() + self._skipped

    def skip_to(self, moment: datetime) -> None:
        self._skipped += max(timedelta(0), moment - self())


class PrivateStore(MemoryStore):
    def __init__(self) -> None:
        self._skipping = SkippingClock()
        super().__init__("memory://", clock=self._skipping)

    def skip_to(self, moment: datetime) -> None:
        """Let this moment come at once, and tell everybody who sleeps until then."""
        self._skipping.skip_to(moment)
        self._session.state.hub.publish(Hint(kind=HintKind.DUE))


SPACING_SECONDS = 0.01
"""Between looks; hints in a row cause one."""
POLL_SECONDS = 1.0

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


class Supervision:
    """Looks whenever something has changed, until the run has ended."""

    def __init__(
        self, client: AsyncClient, store: PrivateStore, mail: Mail, *, skip_delays: bool
    ) -> None:
        self._client = client
        self._store = store
        self._mail = mail
        self._skip_delays = skip_delays
        self._hinted = asyncio.Event()

    async def watch_over(self, run: RunId) -> None:
        """Returns when the run has ended; raises ``RunStuck`` when it will not by itself."""
        unsubscribe = self._store.subscribe(lambda hint: self._hinted.set())
        try:
            while not await self._look(run):
                await asyncio.sleep(SPACING_SECONDS)
                try:
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._hinted.wait()
                except TimeoutError:
                    pass
        finally:
            unsubscribe()

    async def _look(self, run: RunId) -> bool:
        self._hinted.clear()
        await self._mail.deliver_kept(self._client, self._store)
        survey = await self._store.maintenance.poll(self._client.namespace)
        is_idle = not survey.lanes and survey.next_lease_end_at is None
        due_at = _next_due(survey)
        if is_idle and due_at is None:
            if (await self._client.run(run)).status in ENDED:
                return True
            raise await self._stuck(run)
        if is_idle and due_at is not None and due_at > survey.now and self._skip_delays:
            self._store.skip_to(due_at)
        return False

    async def _stuck(self, run: RunId) -> RunStuck:
        live = RunFilter(namespace=self._client.namespace, is_ended=False)
        missing = [
            fault
            for each in await self._store.queries.list_runs(live, RUNS_MAX)
            for wait in await self._store.queries.run_waits(each.namespace, each.id)
            if (fault := _missing(wait, each.flow)) is not None
        ]
        missing.sort(key=lambda fault: (fault.code, *map(str, fault.args.values())))
        return RunStuck(*missing or [NOTHING_LEFT.fault(run_id=run)])


def _missing(wait: Wait, flow: str) -> Fault | None:
    """What only somebody else can bring."""
    place = {"run_id": wait.run, "node": wait.key, "flow": flow}
    match wait.kind:
        case WaitKind.SIGNAL:
            return NEEDS_SIGNAL.fault(signal=wait.name, **place)
        case WaitKind.APPROVAL:
            return NEEDS_ANSWER.fault(title=wait.name, **place)
        case WaitKind.OUTSIDE:
            return NEEDS_REPORT.fault(step=wait.name, **place)
        case _:
            return None


def _next_due(survey: PollResult) -> datetime | None:
    """When something happens by itself: a timer, or another attempt."""
    moments = (survey.next_due_at, survey.next_wait_at)
    return min((moment for moment in moments if moment is not None), default=None)


CONCURRENCY = 100
"""Enough for branches and items to run side by side; there is no other worker to take them."""


async def run_flow_async(
    flow: BuiltFlow,
    input: Any = None,
    *,
    signals: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
    reports: Mapping[str, Any] | None = None,
    secrets: Provider | None = None,
    allow_scripts: bool = False,
    timeout: Duration | None = None,
    skip_delays: bool = False,
) -> Any:
    """Run a flow on the running event loop, and return its result. Nothing is stored.

    ``signals`` has payloads for the signals that it waits for; a list holds several for one name.
    ``answers`` has what people decide, by the node of the approval: ``"approve"``, or an object
    with what ``client.decide`` takes. It is given in the name of the next decider, unless it says
    ``by`` whom. ``reports`` has what comes of outside work, by the node that waits for it: its
    result, or a ``Report``. ``secrets`` and ``allow_scripts`` are those of a worker.

    ``skip_delays`` makes delays, times for signals and pauses between attempts pass at once, as
    soon as there is nothing else to do. Raises ``RunFailed`` as ``result()`` of a run does,
    ``RunTimeout`` after ``timeout``, and ``RunStuck`` if it waits for what nobody can bring.
    """
    mail = Mail(checked_flow(flow), signals, Replies(flow, answers, reports))
    seconds = None if timeout is None else check.span(timeout, "timeout").total_seconds()
    store = PrivateStore()
    async with AsyncClient(store) as client:
        run = await client.submit(flow, input)
        await mail.deliver_up_front(client, run.id)
        watching = Supervision(client, store, mail, skip_delays=skip_delays)
        worker = _worker(store, flow, secrets, allow_scripts)
        async with working(worker):
            try:
                async with asyncio.timeout(seconds):
                    await watching.watch_over(run.id)
            except TimeoutError:
                if seconds is None:
                    raise
                raise RunTimeout(
                    run_id=run.id, timeout=seconds, status=await run.status()
                ) from None
            return await run.result()


def run_flow(
    flow: BuiltFlow,
    input: Any = None,
    *,
    signals: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
    reports: Mapping[str, Any] | None = None,
    secrets: Provider | None = None,
    allow_scripts: bool = False,
    timeout: Duration | None = None,
    skip_delays: bool = False,
) -> Any:
    """Run a flow in a thread of its own, and return its result; see :func:`run_flow_async`.

    May be called where an event loop is running, too, which waits meanwhile.
    """
    portal = Portal(_nothing)
    try:
        return portal.run(
            run_flow_async(
                flow,
                input,
                signals=signals,
                answers=answers,
                reports=reports,
                secrets=secrets,
                allow_scripts=allow_scripts,
                timeout=timeout,
                skip_delays=skip_delays,
            )
        )
    finally:
        portal.close()


def _worker(
    store: PrivateStore, flow: BuiltFlow, secrets: Provider | None, allow_scripts: bool
) -> Worker:
    return Worker(
        store,
        flows=[flow],
        concurrency=CONCURRENCY,
        hold_off="0s",  # there is no other worker to prefer
        keep_completed=None,
        keep_failed=None,
        secrets=secrets,
        allow_scripts=allow_scripts,
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


async def _nothing() -> None:
    pass
