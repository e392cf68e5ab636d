"""Runs under test: drive them and assert on them; a failed assertion shows the run's state."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from perdure.client.client import AsyncClient
from perdure.client.handles import AsyncRunHandle
from perdure.diagnostics import declare, render
from perdure.errors import RunStuck
from perdure.inline import next_decider
from perdure.model.ids import RunId
from perdure.model.run import ENDED, RunStatus, WaitType
from perdure.operations.insight.explain import Explanation
from perdure.operations.page import PAGE_MAX
from perdure.operations.records import EventRecord, RunRecord, WaitRecord

EVENTS_MAX = 30
VALUE_MAX = 60


async def failure_text(run: AsyncRunHandle, explanation: Explanation, wanted: str) -> str:
    """An assertion about a run that failed, with the state and log of the run."""
    record, events = await run.record(), await run.events()
    name = f"run {run.id!r} of flow {record.flow!r}"
    status = "" if record.status in wanted else f"; it is {record.status}"
    lines = [f"{name} {wanted}{status}", f"  {explanation.summary}"]
    lines += [f"  - {render(finding)}" for finding in explanation.findings]
    return "\n".join([*lines, "its events:", *_listed(events)])


def event_line(event: EventRecord) -> str:
    """An event as shown in a failed assertion."""
    what = f"{event.number:>4}  {event.at:%Y-%m-%d %H:%M:%S}  {event.type}"
    if event.key:
        what += f" {event.key}"
    if event.failure is not None:
        return f"{what}: {event.failure.type}: {event.failure.message}"
    return what if event.value is None else f"{what}: {shortened(event.value)}"


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}…"


def _listed(events: list[EventRecord]) -> Iterable[str]:
    left_out = len(events) - EVENTS_MAX
    if left_out > 0:
        yield f"      … {left_out} before these"
    for event in events[-EVENTS_MAX:]:
        yield event_line(event)


STUCK = declare("testing.run_stuck", "{report}")


R = TypeVar("R")
Settle = Callable[[], Coroutine[Any, Any, None]]
ANYTHING: Any = object()
"""The default for a value that an assertion ignores."""
_DONE = frozenset({"node_completed", "item_completed", "iteration_completed"})


class AsyncKitRun:
    """A run. Every call takes effect before it returns.

    ``decide``, ``report``, ``signal`` and ``waiting`` include its child runs.
    """

    def __init__(self, client: AsyncClient, handle: AsyncRunHandle, settle: Settle) -> None:
        self._client = client
        self._settle = settle
        self.handle = handle
        """The client's handle, for all other operations."""

    def __repr__(self) -> str:
        return repr(self.handle)

    @property
    def id(self) -> RunId:
        return self.handle.id

    async def status(self) -> RunStatus:
        return await self.handle.status()

    async def record(self) -> RunRecord:
        return await self.handle.record()

    async def result(self) -> Any:
        """Its result. Raises ``RunStuck`` if it has not ended, or the error that it ended with."""
        if await self.status() not in ENDED:
            raise RunStuck(
                STUCK.fault(run_id=self.id, report=await self._failure_text("has no result"))
            )
        return await self.handle.result()

    async def outputs(self) -> dict[str, Any]:
        """The outputs of its completed nodes, as plain values."""
        return await self.handle.outputs()

    async def events(self) -> list[EventRecord]:
        """All its events."""
        return await self.handle.events()

    async def events_of(self, node: str) -> list[EventRecord]:
        """Return the events of a node, or of a part such as ``pack[7]``."""
        return [each for each in await self.events() if node in (each.node, each.key)]

    async def executed(self) -> list[str]:
        """Completed nodes, items (``pack[0]``) and iterations (``poll#1``), in order.

        A map comes after its items, and a loop counts as its last iteration.
        """
        return [each.key for each in await self.events() if each.type in _DONE and each.key]

    async def waiting(self) -> list[WaitRecord]:
        """Its open waits, oldest first, including those of its child runs."""
        waits = await self._client.waits.list(limit=PAGE_MAX)
        return [wait for wait in waits if self._is_below(wait.run)]

    async def explain(self) -> Explanation:
        """Explain its current state."""
        return await self._client.runs.explain(self.id)

    async def signal(self, name: str, payload: Any = None, *, by: str | None = None) -> None:
        """Send it a signal."""
        wait = await self._wait(WaitType.SIGNAL, lambda each: each.name == name)
        run = self.id if wait is None else wait.run
        await self._apply(self._client.runs.signal(run, name, payload, by=by))

    async def decide(
        self,
        node: str,
        decision: str = "approve",
        *,
        data: Any = None,
        by: str | None = None,
        roles: Sequence[str] = (),
        note: str | None = None,
    ) -> None:
        """Answer an approval, given by its node; ``by`` defaults to the next decider."""
        wait = await self._wait(WaitType.APPROVAL, lambda each: each.node == node)
        run = self.id if wait is None else wait.run
        approval = await self._client.approvals.get(f"{run}:{node}")
        who = next_decider(approval) if by is None else {"by": by}
        answering = self._client.approvals.decide(
            approval.id,
            decision,
            data=data,
            note=note,
            revision=approval.revision,
            **{**who, **({"roles": roles} if roles else {})},
        )
        await self._apply(answering)

    async def report(
        self,
        node: str,
        result: Any = None,
        *,
        status: str = "completed",
        error: str | None = None,
        progress: Any = None,
        port: str = "",
    ) -> None:
        """Report on external work: ``completed``, or the given ``status``.

        With an ``error``, the status is ``failed``.
        """
        wait = await self._wait(WaitType.EXTERNAL, lambda each: node in (each.node, each.key))
        run, key = (self.id, node) if wait is None else (wait.run, wait.key)
        reporting = self._client.runs.report(
            run,
            key,
            status="failed" if error is not None else status,
            result=result,
            error=error,
            progress=progress,
            port=port,
        )
        await self._apply(reporting)

    async def pause(self, *, reason: str | None = None, by: str | None = None) -> None:
        await self._apply(self.handle.pause(reason=reason, by=by))

    async def resume(self, *, by: str | None = None) -> None:
        await self._apply(self.handle.resume(by=by))

    async def cancel(
        self, *, reason: str | None = None, by: str | None = None, compensate: bool = False
    ) -> None:
        await self._apply(self.handle.cancel(reason=reason, by=by, compensate=compensate))

    async def retry(self, *, by: str | None = None) -> None:
        await self._apply(self.handle.retry(by=by))

    async def assert_completed(self, result: Any = ANYTHING) -> None:
        """Assert that it completed, with this result if given."""
        if await self.status() is not RunStatus.COMPLETED:
            raise AssertionError(await self._failure_text("is not completed"))
        found = await self.handle.result()
        if result is not ANYTHING and found != result:
            wanted = f"was completed with {found!r}, not with {result!r}"
            raise AssertionError(await self._failure_text(wanted))

    async def assert_failed(self, message: str = "", *, at: str | None = None) -> None:
        """Assert that it failed; at this node and with this text in its error, if given."""
        record = await self.record()
        if record.status is not RunStatus.FAILED:
            raise AssertionError(await self._failure_text("has not failed"))
        failure = record.failure
        found = "" if failure is None else f"{failure.type}: {failure.message}"
        if message not in found:
            raise AssertionError(
                await self._failure_text(f"failed with {found!r}, without {message!r}")
            )
        if at not in (None, record.failed_node):
            wanted = f"failed at node {record.failed_node!r}, not at {at!r}"
            raise AssertionError(await self._failure_text(wanted))

    async def assert_waiting(
        self, node: str | None = None, *, type: str | None = None, name: str | None = None
    ) -> WaitRecord:
        """Assert that it waits, at this node, for this type or name; return the wait."""
        for wait in await self.waiting():
            is_node = node in (None, wait.node, wait.key)
            if is_node and type in (None, wait.type) and name in (None, wait.name):
                return wait
        asked = [f"type {type!r}" if type else "", f"name {name!r}" if name else ""]
        what = "".join(f", {each}" for each in asked if each)
        place = f" at node {node!r}" if node else ""
        raise AssertionError(await self._failure_text(f"does not wait{place}{what}"))

    async def assert_executed(self, *keys: str) -> None:
        """Assert that exactly these completed, in this order."""
        found = await self.executed()
        if found != list(keys):
            raise AssertionError(await self._failure_text(f"completed {found}, not {list(keys)}"))

    async def assert_event(
        self, type: str, node: str | None = None, *, value: Any = ANYTHING, times: int | None = None
    ) -> None:
        """Assert that an event happened this often, or at least once."""
        found = [
            each
            for each in await self.events()
            if each.type == type
            and node in (None, each.node, each.key)
            and (value is ANYTHING or each.value == value)
        ]
        if len(found) == times or (found and times is None):
            return
        place = f" of {node!r}" if node else ""
        with_value = "" if value is ANYTHING else f" with {shortened(value)}"
        often = "never" if not found else f"{len(found)} times"
        wanted = "" if times is None else f", not {times} times"
        lines = "".join(f"\n{event_line(each)}" for each in found)
        raise AssertionError(
            await self._failure_text(f"has {type}{place}{with_value} {often}{wanted}{lines}")
        )

    def _is_below(self, run: str) -> bool:
        """Whether this is the run or a descendant, whose id is the run's followed by a slash."""
        return run == self.id or run.startswith(f"{self.id}/")

    async def _wait(
        self, type: WaitType, is_meant: Callable[[WaitRecord], bool]
    ) -> WaitRecord | None:
        return next((w for w in await self.waiting() if w.type is type and is_meant(w)), None)

    async def _apply(self, action: Coroutine[Any, Any, R]) -> None:
        await action
        await self._settle()

    async def _failure_text(self, wanted: str) -> str:
        return await failure_text(self.handle, await self.explain(), wanted)
