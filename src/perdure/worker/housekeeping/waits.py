"""Let waits that are due end: timers fire, times for signals run out, children report back."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from perdure.engine.acting import Acting
from perdure.errors import EventLogCorrupt, RunEnded, RunNotFound, UnknownFlow
from perdure.model.happening import CancelAsked, ChildEnded, WaitDue
from perdure.model.ids import RunId
from perdure.model.key import Key
from perdure.model.run import RunStatus, Wait, WaitKind
from perdure.store.contract import Store
from perdure.worker.housekeeping import BATCH

AT_ONCE = 16
"""Runs that are acted upon at the same time; their commits travel together."""
_log = logging.getLogger("perdure.worker")


class WaitDuty:
    """Any worker may do it, several at once too: a wait ends in one commit, whoever is first."""

    def __init__(self, store: Store, acting: Acting, namespace: str) -> None:
        self._store = store
        self._acting = acting
        self._namespace = namespace
        self._tending: asyncio.Task[None] | None = None

    def tend(self) -> None:
        """See to what is due, if that is not under way already."""
        if self._tending is None or self._tending.done():
            self._tending = asyncio.create_task(self._tend())

    async def stop(self) -> None:
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait([self._tending])

    async def _tend(self) -> None:
        try:
            while waits := await self._store.due_waits(self._namespace, BATCH):
                failed = await self._end_all(waits)
                if len(waits) < BATCH or failed:
                    break
        except Exception:
            _log.exception("waits that are due were not all seen to; trying again")

    async def _end_all(self, waits: list[Wait]) -> int:
        """End these waits; how many could not be ended."""
        room = asyncio.Semaphore(AT_ONCE)

        async def end(wait: Wait) -> bool:
            async with room:
                return await self._try_to_end(wait)

        ended = await asyncio.gather(*(end(wait) for wait in waits))
        return ended.count(False)

    async def _try_to_end(self, wait: Wait) -> bool:
        try:
            if wait.kind is WaitKind.CHILD:
                await self._end_child(wait)
            else:
                due = WaitDue(key=Key.parse(wait.key))
                await self._acting.act(wait.namespace, wait.run, due, closes=wait.key)
        except (EventLogCorrupt, RunNotFound, UnknownFlow) as error:
            _log.error("wait %s of run %s was not ended: %s", wait.key, wait.run, error)
            return False
        return True

    async def _end_child(self, wait: Wait) -> None:
        """Tell a parent how its child ended, or cancel a child that nobody waits for any more."""
        child_id = RunId(wait.name)
        child = await self._store.get_run(wait.namespace, child_id)
        if child is None:
            ended = ChildEnded(key=Key.parse(wait.key), run=child_id, status=RunStatus.CANCELLED)
        else:
            found = await self._acting.loader.load(wait.namespace, child_id)
            if not found.state.is_ended:
                await self._cancel(wait, child_id)
                return
            output = b"null"
            if found.state.status is RunStatus.COMPLETED:
                await self._acting.loader.read_values(found, [found.state.result_ref])
                output = found.values.json(found.state.result_ref)
            ended = ChildEnded(
                key=Key.parse(wait.key),
                run=child_id,
                status=found.state.status,
                output=output,
                failure=found.state.failure,
            )
        await self._acting.act(wait.namespace, wait.run, ended, closes=wait.key)

    async def _cancel(self, wait: Wait, child: RunId) -> None:
        """The parent gave it up. Its own end makes the wait due again, and then it is closed."""
        asked = CancelAsked(reason=f"run {wait.run} ended or gave it up")
        with suppress(RunEnded):
            await self._acting.act(wait.namespace, child, asked)
