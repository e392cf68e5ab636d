"""What is given to a run along with its input: signals, answers and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.client.client import AsyncClient
from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.in_process.replies import Replies
from perdure.model import check
from perdure.model.flow import BuiltFlow
from perdure.model.ids import RunId
from perdure.model.run import RunFilter, Wait, WaitKind
from perdure.store.contract import Store

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
