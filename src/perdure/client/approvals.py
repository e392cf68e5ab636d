"""Approvals: whose turn it is, what is asked, and what somebody decided."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.client.access import Access
from perdure.client.approval_history import ApprovalHistory, ApprovalPlace, read_histories
from perdure.client.approval_records import ApprovalRecord, ApprovalStatus
from perdure.client.results import decoded
from perdure.client.run_acts import RunActs
from perdure.client.run_ids import REASON_MAX, run_id
from perdure.client.waits import pages_of
from perdure.diagnostics import declare, near, safe_repr
from perdure.engine.run_view import RunView
from perdure.errors import (
    ApprovalDecided,
    ApprovalNotFound,
    EventLogCorrupt,
    RunNotFound,
    ValueMissing,
)
from perdure.model import check
from perdure.model.graph import ApprovalNode
from perdure.model.ids import RunId
from perdure.model.payload import to_json
from perdure.model.run import Run, Wait, WaitFilter, WaitKind
from perdure.model.trigger import DecideApproval
from perdure.model.value import Value
from perdure.model.wait import ApprovalRequest, approval_id, parse_approval_id
from perdure.store.contract import Store

INBOX_PAGE_MAX = 1_000
_log = logging.getLogger("perdure.client")

INVALID_ID = declare("approval.invalid_id", "the id of an approval is RUN:NODE")
NO_SUCH_NODE = declare(
    "approval.no_such_node",
    "run {run_id!r} (flow {flow!r}) has no approval {node!r}[; did you mean {nearest:or}?]"
    "[; it has {known}]",
)
NOT_OPENED = declare("approval.not_opened", "run {run_id!r} has not reached it, or passed it by")
RUNS_AT_ONCE = 50
"""How many logs are read together to see who answered already."""


class InboxQuery(Value):
    """Whose open approvals, of which flow or run."""

    deciders: tuple[str, ...] | None = None
    flow: str | None = None
    run: RunId | None = None


class Approvals:
    """The part of a client that people use."""

    def __init__(self, access: Access, acts: RunActs) -> None:
        self._access = access
        self._acts = acts

    async def inbox(
        self, query: InboxQuery, limit: int, after: ApprovalRecord | str | None
    ) -> list[ApprovalRecord]:
        last = await self._last(after)
        wanted = WaitFilter(
            namespace=self._access.visible,
            run=query.run,
            kind=WaitKind.APPROVAL,
            deciders=query.deciders,
            after=None if last is None else (last.opened_at, last.run, last.node),
        )
        found: list[tuple[Wait, ApprovalRequest]] = []
        async for page in pages_of(await self._store(), wanted, limit):
            asked = self._readable(page)
            found += [each for each in asked if query.flow in (None, each[1].flow)]
            if len(found) >= limit:
                break
        return await self._records(found[:limit])

    async def _last(self, after: Any) -> ApprovalRecord | None:
        if after is None or isinstance(after, ApprovalRecord):
            return after
        if isinstance(after, str):
            return await self.approval(after)
        raise check.wrong_type(after, "after", "an approval or its id")

    async def approval(self, id: Any) -> ApprovalRecord:
        run, node = await self._place(id)
        store = await self._store()
        wait = await self._wait(store, run, node.id)
        history = await self._history(run, node.id)
        if history.status is None:
            raise ApprovalNotFound(NOT_OPENED.fault(run_id=run.id), approval_id=id)
        if wait is not None and history.status is ApprovalStatus.OPEN:
            return _open_record(wait, self._request(wait), history)
        return _closed_record(run, node, await self._asked(run, node), history)

    async def decide(self, id: Any, answer: DecideApproval) -> ApprovalRecord:
        """``answer`` has everything but the node."""
        run, node = await self._place(id)
        store = await self._store()
        wait = await self._wait(store, run, node.id)
        is_late = wait is not None and wait.due_at is not None and wait.due_at <= await store.now()
        meant = replace(answer, node=node.id, is_late=is_late)
        try:
            await self._acts.act_on(run, meant)
        except ApprovalDecided as error:
            raise await self._told_in_full(error, id) from None
        if wait is None:
            return await self.approval(id)
        request, history = self._request(wait), await self._history(run, node.id)
        if history.status is None:
            # That ended the run, and it was removed at once: what was decided counts all the same.
            before = _open_record(wait, request, ApprovalHistory())
            return replace(before, status=ApprovalStatus.DECIDED, decision=answer.decision)
        if history.status is ApprovalStatus.OPEN:
            return _open_record(wait, request, history)
        return _closed_record(run, node, request, history)

    async def _history(self, run: Run, node: str) -> ApprovalHistory:
        place = ApprovalPlace(namespace=run.namespace, run=run.id, node=node)
        return (await read_histories(await self._store(), [place], self._access.codec))[place]

    async def _asked(self, run: Run, node: ApprovalNode) -> ApprovalRequest:
        """What was asked follows from the log, and is put together again."""
        runs = await self._acts.runs()
        cached = await runs.load(run.namespace, run.id)
        while True:
            try:
                view = RunView(cached.graph, cached.id, cached.state, cached.values)
                return view.approval_request(node)
            except ValueMissing as error:
                await runs.read_values(cached, error.numbers)

    async def _place(self, id: Any) -> tuple[Run, ApprovalNode]:
        """The run and the node that an id names."""
        run_name, name = parse_approval_id(id) if isinstance(id, str) else ("", "")
        if not run_name or not name:
            shown = id if isinstance(id, str) else safe_repr(id)
            raise ApprovalNotFound(INVALID_ID.fault(("id",), name="id"), approval_id=shown)
        try:
            run = await self._acts.found(run_id(run_name))
        except RunNotFound as error:
            raise ApprovalNotFound(*error.faults, approval_id=id) from None
        text = f"{run.flow}@{run.version}"
        graph = await self._acts.graphs.load(await self._store(), run.namespace, text)
        node = graph.nodes.get(name)
        if isinstance(node, ApprovalNode):
            return run, node
        known = tuple(each.id for each in graph.nodes.values() if isinstance(each, ApprovalNode))
        nearest = near(name, known)
        fault = NO_SUCH_NODE.fault(
            run_id=run.id,
            flow=run.flow,
            node=name,
            nearest=nearest,
            known=() if nearest else known,
        )
        raise ApprovalNotFound(fault, approval_id=id)

    async def _wait(self, store: Store, run: Run, node: str) -> Wait | None:
        waits = await store.queries.run_waits(run.namespace, run.id)
        return next(
            (each for each in waits if each.kind is WaitKind.APPROVAL and each.key == node), None
        )

    async def _records(self, found: Sequence[tuple[Wait, ApprovalRequest]]) -> list[ApprovalRecord]:
        """With the answers so far; where the first one decides, there are none."""
        several = [wait for wait, request in found if request.quorum != 1]
        histories: dict[ApprovalPlace, ApprovalHistory] = {}
        store = await self._store()
        for first in range(0, len(several), RUNS_AT_ONCE):
            places = [_place_of(wait) for wait in several[first : first + RUNS_AT_ONCE]]
            histories |= await read_histories(store, places, self._access.codec)
        return [
            _open_record(wait, request, histories.get(_place_of(wait), ApprovalHistory()))
            for wait, request in found
        ]

    async def _told_in_full(self, error: ApprovalDecided, id: str) -> ApprovalDecided:
        """The same, with who decided what and when."""
        record = await self.approval(id)
        return (
            error if record.is_open else ApprovalDecided(approval_id=id, outcome=outcome_of(record))
        )

    def _readable(self, page: Sequence[Wait]) -> list[tuple[Wait, ApprovalRequest]]:
        """Without those that nobody could be shown, so that the others are."""
        found = []
        for wait in page:
            try:
                found.append((wait, self._request(wait)))
            except EventLogCorrupt as error:
                _log.error("approval %s is left out of the inbox: %s", wait.key, error)
        return found

    def _request(self, wait: Wait) -> ApprovalRequest:
        try:
            return msgspec.convert(decoded(wait.detail, self._access.codec), ApprovalRequest)
        except msgspec.ValidationError as error:
            reason = f"what is stored of approval {wait.key!r} cannot be read: {error}"
            raise EventLogCorrupt(run_id=wait.run, reason=reason) from error

    async def _store(self) -> Store:
        return await self._access.store.opened()


def checked_query(
    for_: Any = None, flow: str | None = None, run: RunId | None = None
) -> InboxQuery:
    names = [for_] if isinstance(for_, str) else for_
    deciders = check.optional(check.names, names, "for_")
    return InboxQuery(deciders=deciders, flow=flow, run=run)


def checked_answer(
    decision: Any, data: Any, by: str | None, roles: Any, note: str | None, max_bytes: int
) -> DecideApproval:
    """An answer to an approval that is still to be named."""
    return DecideApproval(
        node="",
        decision=check.name(decision, "decision"),
        data=to_json(data, "the data of the answer", max_bytes),
        by=check.optional(check.name, by, "by"),
        roles=check.names(roles, "roles"),
        note=check.optional(check.text, note, "note", REASON_MAX),
    )


def outcome_of(record: ApprovalRecord) -> str:
    """How an approval ended, in words."""
    at = f" at {record.decided_at:%Y-%m-%d %H:%M:%S %Z}" if record.decided_at else ""
    match record.status:
        case ApprovalStatus.DECIDED:
            agreed = [each for each in record.answers if each.decision == record.decision]
            by = " and ".join(each.by for each in agreed if each.by is not None)
            return f"{record.decision}{f' by {by}' if by else ''}{at}"
        case ApprovalStatus.TIMED_OUT:
            return f"nobody decided in time, which was over{at}"
        case ApprovalStatus.CANCELLED:
            return f"its run ended{at}, before anybody decided"
        case ApprovalStatus.OPEN:
            return f"open, with {len(record.answers)} answers so far"


def _open_record(wait: Wait, request: ApprovalRequest, history: ApprovalHistory) -> ApprovalRecord:
    return ApprovalRecord(
        id=approval_id(wait.run, wait.key),
        run=wait.run,
        node=wait.key,
        namespace=wait.namespace,
        flow=request.flow,
        status=ApprovalStatus.OPEN,
        title=request.title,
        message=request.message,
        form=request.form,
        show=request.show,
        data=request.data,
        deciders=wait.deciders,
        choices=request.answers,
        quorum=request.quorum,
        answers=history.answers,
        opened_at=wait.opened_at,
        due_at=wait.due_at,
        reminders=history.reminders,
    )


def _closed_record(
    run: Run, node: ApprovalNode, request: ApprovalRequest, history: ApprovalHistory
) -> ApprovalRecord:
    assert history.status is not None
    assert history.opened_at is not None
    more = [name for each in history.reminders for name in each.deciders]
    return ApprovalRecord(
        id=approval_id(run.id, node.id),
        run=run.id,
        node=node.id,
        namespace=run.namespace,
        flow=run.flow,
        status=history.status,
        title=request.title,
        message=request.message,
        form=request.form,
        show=request.show,
        data=request.data,
        deciders=tuple(dict.fromkeys([*node.deciders, *more])),
        choices=request.answers,
        quorum=request.quorum,
        answers=history.answers,
        opened_at=history.opened_at,
        reminders=history.reminders,
        decision=history.decision,
        port=history.port,
        decided_at=history.ended_at,
    )


def _place_of(wait: Wait) -> ApprovalPlace:
    return ApprovalPlace(namespace=wait.namespace, run=wait.run, node=wait.key)
