"""Reports: what an outside party says of the work that a node waits for, and what became of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.client.access import Access
from perdure.client.log_tail import latest_first
from perdure.client.results import decoded
from perdure.client.run_acts import RunActs
from perdure.diagnostics import declare
from perdure.errors import InvalidInput, NodeNotFound, RunEnded
from perdure.model import check
from perdure.model.event import NodeReported, ReportIgnored
from perdure.model.graph import ORDINARY, Graph, LoopNode
from perdure.model.ids import Key, RunId
from perdure.model.payload import to_json
from perdure.model.run import Run, RunStatus
from perdure.model.trigger import ReportReceived
from perdure.model.value import Value
from perdure.model.wait import LAST, Report, ReportStatus

ERROR_MAX = 10_000
"""How many characters the reason of a failure may have."""
WRONG_STATUS = declare(
    "report.wrong_status", "{name} requires status {required!r} (got {status!r})"
)


class Reception(StrEnum):
    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """A report with this key is there already; nothing was written."""
    IGNORED = "ignored"
    """Another last report came first, and counts; this one is only noted."""


class ReportAnswer(Value):
    """What became of a report."""

    run: RunId
    node: str
    """With its iteration or item, if any: ``poll#2``, ``pack[7]``."""
    reception: Reception
    status: RunStatus
    """Of the run, by now."""
    first: Report | None = None
    """Of an ignored one: the report that counts."""

    @property
    def is_accepted(self) -> bool:
        return self.reception is Reception.ACCEPTED


class Reporting:
    """The part of a client that outside parties use."""

    def __init__(self, access: Access, acts: RunActs) -> None:
        self._access = access
        self._acts = acts

    async def report(self, id: RunId, node: str, reported: ReportReceived) -> ReportAnswer:
        """``node`` is the text of a key; ``reported`` has everything but that."""
        run = await self._acts.found(id)
        key = await self._key(run, node)
        runs = await self._acts.runs()
        try:
            plan = await runs.apply(run.namespace, id, replace(reported, key=key))
        except RunEnded:
            return await self._too_late(run, key, reported)
        status = plan.run.state.status
        reception = Reception.REPEATED
        for event in plan.events:
            if isinstance(event, NodeReported):
                reception = Reception.ACCEPTED
            elif isinstance(event, ReportIgnored):
                reception = Reception.IGNORED
        return await self._answer(run, key, reception, status)

    async def _key(self, run: Run, text: str) -> Key:
        """The part of a run that is meant; of a loop, without a number, the last iteration."""
        store = await self._access.store.opened()
        flow = f"{run.flow}@{run.version}"
        graph = await self._acts.graphs.load(store, run.namespace, flow)
        key = _parsed(run, graph, text)
        if key.iteration or not isinstance(graph.nodes[key.node], LoopNode):
            return key
        state = (await self._acts.load(run.id)).state.nodes.get(key.node)
        return replace(key, iteration=1 if state is None else max(1, state.iteration))

    async def _too_late(self, run: Run, key: Key, reported: ReportReceived) -> ReportAnswer:
        """The run has ended: a report that was there before is no news, nor one after the last."""
        has_last = False
        async for _, event in self._reports(run, key):
            if reported.token and event.token == reported.token:
                return await self._answer(run, key, Reception.REPEATED, run.status)
            has_last = has_last or event.status in LAST
            if has_last and not reported.token:
                break
        if has_last:
            return await self._answer(run, key, Reception.IGNORED, run.status)
        raise RunEnded(
            run_id=run.id, operation=f"report on node {key.text!r} of", status=run.status
        )

    async def _answer(
        self, run: Run, key: Key, reception: Reception, status: RunStatus
    ) -> ReportAnswer:
        first = await self._first(run, key) if reception is Reception.IGNORED else None
        return ReportAnswer(
            run=run.id, node=key.text, reception=reception, status=status, first=first
        )

    async def _first(self, run: Run, key: Key) -> Report | None:
        """The last report that counted: in the log it is the latest of its kind."""
        async for number, event in self._reports(run, key):
            if event.status in LAST:
                store = await self._access.store.opened()
                values = await store.runs.event_values(run.namespace, run.id, [number])
                if number not in values:  # the run was removed meanwhile
                    return None
                return msgspec.convert(decoded(values[number], self._access.codec), Report)
        return None

    async def _reports(self, run: Run, key: Key) -> AsyncIterator[tuple[int, NodeReported]]:
        """The reports on a key with their numbers in the log, the latest first."""
        store = await self._access.store.opened()
        async for stored, event in latest_first(store, run.namespace, run.id):
            if isinstance(event, NodeReported) and event.key == key.text:
                yield stored.number, event


class ReportOptions(Value):
    """What a caller gave, before it is looked at."""

    status: Any
    result: Any
    error: Any
    progress: Any
    port: Any
    key: Any
    by: Any


def checked_report(options: ReportOptions, max_bytes: int) -> ReportReceived:
    """A report on a node that is still to be named."""
    status = check.choice(options.status, "status", ReportStatus)
    port = ORDINARY if options.port in (None, ORDINARY) else check.name(options.port, "port")
    for name, is_given, required in (
        ("result", options.result is not None, ReportStatus.COMPLETED),
        ("error", options.error is not None, ReportStatus.FAILED),
        ("port", bool(port), ReportStatus.COMPLETED),
    ):
        if is_given and status is not required:
            raise InvalidInput(
                WRONG_STATUS.fault((name,), name=name, required=required.value, status=status.value)
            )
    report = Report(
        status=status,
        result=options.result,
        error=check.optional(check.text, options.error, "error", ERROR_MAX),
        progress=options.progress,
        port=port,
    )
    return ReportReceived(
        key=Key(node=""),
        status=status,
        report=to_json(report, "the report", max_bytes),
        token="" if options.key is None else check.name(options.key, "key"),
        by=check.optional(check.name, options.by, "by"),
        port=port,
        has_progress=options.progress is not None,
    )


def _parsed(run: Run, graph: Graph, text: Any) -> Key:
    name = check.name(text, "node")
    try:
        key = Key.parse(name)
    except ValueError:
        key = None
    if key is None or key.part or key.node not in graph.nodes:
        raise NodeNotFound(run_id=run.id, node=name, known=tuple(graph.nodes))
    return key
