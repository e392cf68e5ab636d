"""The part of a client that is about what runs wait for: people, outside parties, signals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.client.access import Access, Openable
from perdure.client.approval_records import ApprovalRecord
from perdure.client.approvals import INBOX_PAGE_MAX, Approvals, checked_answer, checked_query
from perdure.client.broadcasting import Broadcasting, BroadcastResult
from perdure.client.lineage import lineage
from perdure.client.reporting import ReportAnswer, Reporting, ReportOptions, checked_report
from perdure.client.run_acts import RunActs
from perdure.client.run_ids import run_id
from perdure.client.submitting import AnyFlow, flow_name
from perdure.client.waits import WAITS_PAGE_MAX, WaitRecord, list_waits, place_of
from perdure.diagnostics import safe_repr
from perdure.model import check
from perdure.model.ids import RunId
from perdure.model.payload import to_json
from perdure.model.run import WaitFilter, WaitKind
from perdure.model.trigger import SendSignal
from perdure.operations.insight.lineage import Lineage


class AsyncAnswering(Openable):
    """What a client does for those whom runs wait for."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self._acts = RunActs(access)
        self._approvals = Approvals(access, self._acts)
        self._reporting = Reporting(access, self._acts)
        self._broadcasting = Broadcasting(access, self._acts)

    async def inbox(
        self,
        for_: str | Iterable[str] | None = None,
        *,
        flow: AnyFlow | None = None,
        limit: int = 50,
        after: ApprovalRecord | str | None = None,
    ) -> list[ApprovalRecord]:
        """Open approvals, the longest open first: those of one of these names or roles, or all.

        What names no deciders is in every inbox. ``after`` the last one is the next page.
        """
        query = checked_query(for_, flow_name(flow))
        size = check.integer(limit, "limit", 1, INBOX_PAGE_MAX)
        return await self._approvals.inbox(query, size, after)

    async def approval(self, id: str) -> ApprovalRecord:
        """One approval by its id, ``<run>:<node>``: open, or decided, with who answered what."""
        return await self._approvals.approval(id)

    async def decide(
        self,
        id: str,
        decision: str,
        *,
        data: Any = None,
        by: str | None = None,
        roles: Iterable[str] = (),
        note: str | None = None,
    ) -> ApprovalRecord:
        """Answer an approval; its record afterwards says whether that decided it.

        ``data`` is what its form asks for. ``by`` is who answers and ``roles`` what that person
        may answer as: nothing here proves either, that is up to whoever calls. Raises
        ``InvalidAnswer`` with what is wrong by field, ``NotADecider``, ``AlreadyAnswered``,
        ``ApprovalDecided`` or ``ApprovalNotFound``; then nothing was written.
        """
        size = self._access.storing.payload_max_bytes
        answer = checked_answer(decision, data, by, roles, note, size)
        return await self._approvals.decide(id, answer)

    async def report(
        self,
        run: str,
        node: str,
        *,
        status: str = "progress",
        result: Any = None,
        error: str | None = None,
        progress: Any = None,
        port: str = "",
        key: str | None = None,
        by: str | None = None,
    ) -> ReportAnswer:
        """Tell a run about the outside work that one of its nodes waits for.

        ``status`` is ``"progress"``, as often as you like, then ``"completed"`` with a ``result``
        and maybe a ``port``, or ``"failed"`` with an ``error``; the first of these two counts.
        ``progress`` is kept, so that another try can go on from it. ``key`` is your own for this
        report: repeated with the same one, it counts once. Of a loop or a map, ``node`` may say
        which part is meant: ``poll#2``, ``pack[7]``.
        """
        options = ReportOptions(
            status=status,
            result=result,
            error=error,
            progress=progress,
            port=port,
            key=key,
            by=by,
        )
        reported = checked_report(options, self._access.storing.payload_max_bytes)
        return await self._reporting.report(run_id(run), node, reported)

    async def waits(
        self,
        *,
        kind: str | None = None,
        run: str | None = None,
        name: str | None = None,
        limit: int = 50,
        after: WaitRecord | None = None,
    ) -> list[WaitRecord]:
        """What runs wait for, the longest first; ``after`` the last one is the next page.

        ``kind`` is ``timer``, ``signal``, ``child``, ``outside`` or ``approval``.
        """
        if after is not None:
            check.instance(after, "after", WaitRecord, "the last record of the previous page")
        wanted = WaitFilter(
            namespace=self._access.visible,
            run=None if run is None else run_id(run),
            kind=check.optional(check.choice, kind, "kind", WaitKind),
            name=check.optional(check.name, name, "name"),
            after=None if after is None else place_of(after),
        )
        size = check.integer(limit, "limit", 1, WAITS_PAGE_MAX)
        return await list_waits(self._access, wanted, size)

    async def broadcast(
        self,
        name: str,
        payload: Any = None,
        *,
        flow: AnyFlow | None = None,
        by: str | None = None,
    ) -> BroadcastResult:
        """Bring a signal to every run that waits for one of this name now, and no other.

        Nodes that wait with a filter get it only if it passes. Unlike with ``signal`` it is kept
        for nobody who comes to wait later.
        """
        what = f"the payload of signal {safe_repr(name)}"
        data = to_json(payload, what, self._access.storing.payload_max_bytes)
        who = check.optional(check.name, by, "by")
        signal = SendSignal(name=check.name(name, "signal"), payload=data, by=who)
        return await self._broadcasting.broadcast(signal, flow_name(flow))

    async def lineage(self, id: str) -> Lineage:
        """Which upstream values each node of a run used; secrets by their names only."""
        return await lineage(self._access, self._acts, run_id(id))

    async def _approvals_of(self, id: RunId) -> list[ApprovalRecord]:
        return await self._approvals.inbox(checked_query(run=id), INBOX_PAGE_MAX, None)
