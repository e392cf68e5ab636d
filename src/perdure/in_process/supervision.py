"""Watching over a run that nobody else can reach: skip its delays, and notice when it is stuck."""

from __future__ import annotations

import asyncio
from datetime import datetime

from perdure.client.client import AsyncClient
from perdure.diagnostics import Fault, declare
from perdure.errors import RunStuck
from perdure.in_process.mail import RUNS_MAX, Mail
from perdure.in_process.private_store import PrivateStore
from perdure.model.ids import RunId
from perdure.model.run import ENDED, RunFilter, Wait, WaitKind
from perdure.model.worker import PollResult

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
