"""Watching over a run that nobody else can reach: skip its delays, and notice when it is stuck."""

from __future__ import annotations

import asyncio
from datetime import datetime

from perdure.client.client import AsyncClient
from perdure.errors import RunStuck
from perdure.in_process.mail import RUNS_MAX, Mail
from perdure.in_process.private_store import PrivateStore
from perdure.model.ids import RunId
from perdure.model.run import ENDED, RunFilter, Wait, WaitKind
from perdure.model.worker import PollResult

SPACING_SECONDS = 0.01
"""Between looks; hints in a row cause one."""
POLL_SECONDS = 1.0


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
            raise RunStuck(await self._why_stuck(run))
        if is_idle and due_at is not None and due_at > survey.now and self._skip_delays:
            self._store.skip_to(due_at)
        return False

    async def _why_stuck(self, run: RunId) -> str:
        live = RunFilter(namespace=self._client.namespace, is_ended=False)
        missing = [
            f"{name} at node {wait.key!r} of flow {each.flow!r}"
            for each in await self._store.queries.list_runs(live, RUNS_MAX)
            for wait in await self._store.queries.run_waits(each.namespace, each.id)
            if (name := _named(wait))
        ]
        if not missing:
            return f"run {run!r} has not ended, and nothing of it is left to do"
        return (
            f"the run waits for {' and '.join(sorted(missing))}, which nothing here will bring; "
            "pass it in signals={...}, answers={...} or reports={...}, or submit the flow to a "
            "store"
        )


def _named(wait: Wait) -> str:
    """What only somebody else can bring."""
    match wait.kind:
        case WaitKind.SIGNAL:
            return f"signal {wait.name!r}"
        case WaitKind.APPROVAL:
            return "an answer"
        case WaitKind.OUTSIDE:
            return f"a report on {wait.name!r}" if wait.name else "a report"
        case _:
            return ""


def _next_due(survey: PollResult) -> datetime | None:
    """When something happens by itself: a timer, or another attempt."""
    moments = (survey.next_due_at, survey.next_wait_at)
    return min((moment for moment in moments if moment is not None), default=None)
