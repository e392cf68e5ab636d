"""Operations on approvals."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import Fault, declare, near, safe_repr
from perdure.engine.approvals import NOT_OPENED, edited
from perdure.engine.cached_run import CachedRun
from perdure.engine.run_view import RunView
from perdure.errors import (
    ApprovalDecided,
    ApprovalNotFound,
    PerdureError,
    RunNotFound,
    StoreError,
    ValueMissing,
)
from perdure.model import check
from perdure.model.event import StoredEvent, decode_event
from perdure.model.graph import ApprovalNode, Graph
from perdure.model.ids import RunId
from perdure.model.principal import normal_name, role_of
from perdure.model.run import Wait, WaitFilter, WaitType
from perdure.model.trigger import DecideApproval
from perdure.model.value import Value
from perdure.model.wait import ApprovalRequest, approval_id, parse_approval_id
from perdure.operations.approval_history import (
    ApprovalHistory,
    ApprovalPlace,
    after_event,
    read_histories,
)
from perdure.operations.backend import AnyFlow, flow_name
from perdure.operations.external import pages_of
from perdure.operations.operation import Group, Role, operation
from perdure.operations.page import Page, decode_cursor, page_of, page_size
from perdure.operations.records import ApprovalRecord, ApprovalStatus, decoded
from perdure.operations.submit import run_id

NOTE_MAX = 2_000
"""Characters of a note."""
RUNS_AT_ONCE = 50
"""Logs read at once to find existing answers."""

INVALID_ID = declare("approval.invalid_id", "the id of an approval is RUN:NODE")
NO_SUCH_NODE = declare(
    "approval.no_such_node",
    "run {run_id!r} (flow {flow!r}) has no approval {node!r}[; did you mean {nearest:or}?]"
    "[; it has {known}]",
)
UNREADABLE = declare(
    "approval.unreadable", "the request of approval {approval_id!r} cannot be read: {reason}"
)


class Asked(Value):
    """The question of an approval, as far as it can be decoded here."""

    request: ApprovalRequest
    fault: Fault | None = None

    def within(self, flow: str) -> Asked:
        return replace(self, request=replace(self.request, flow=flow))


class Approvals(Group):
    """Operations on approvals. An approval's id is ``<run>:<node>``."""

    @operation("approvals.list", role=Role.VIEWER)
    async def list(
        self,
        deciders: str | Sequence[str] | None = None,
        *,
        flow: AnyFlow | None = None,
        run: str | None = None,
        include_answered: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ApprovalRecord]:
        """List open approvals, oldest first.

        For these users and roles (``role:NAME``), or all. Approvals without deciders are in every
        list. What all the named users have answered is left out, though others must still answer,
        unless ``include_answered`` is set.
        """
        check.flag(include_answered, "include_answered")
        size, of = page_size(limit), flow_name(flow)
        names = [deciders] if isinstance(deciders, str) else deciders
        wanted = WaitFilter(
            namespace=self._backend.visible,
            run=None if run is None else run_id(run),
            type=WaitType.APPROVAL,
            deciders=check.optional(check.deciders, names, "deciders"),
            after=None
            if cursor is None
            else decode_cursor("approvals.list", cursor, tuple[datetime, RunId, str]),
        )
        users = {each for each in wanted.deciders or () if role_of(each) is None}
        store = await self._backend.store()
        found: dict[ApprovalPlace, tuple[Wait, Asked]] = {}
        histories: dict[ApprovalPlace, ApprovalHistory | Fault] = {}
        async for page in pages_of(store, wanted, size + 1):
            asked = {_place_of(wait): (wait, self._asked(wait)) for wait in page}
            hidden = [place for place, (_, each) in asked.items() if each.fault is not None]
            places = [(place.namespace, place.run) for place in hidden]
            runs = await store.queries.get_runs(places) if places else []
            for place, of_place in zip(hidden, runs, strict=True):
                wait, each = asked[place]
                asked[place] = wait, each.within("" if of_place is None else of_place.flow)
            asked = {
                place: (wait, each)
                for place, (wait, each) in asked.items()
                if of in (None, each.request.flow)
            }
            # If the first answer decides, an open approval has no answers.
            several = [place for place, (_, each) in asked.items() if each.request.quorum != 1]
            for first in range(0, len(several), RUNS_AT_ONCE):
                histories |= await self._histories(several[first : first + RUNS_AT_ONCE])
            found |= {
                place: pair
                for place, pair in asked.items()
                if include_answered or not _is_answered(users, pair[0], histories.get(place))
            }
            if len(found) > size:
                break
        records = []
        for place, (wait, each) in found.items():
            history = histories.get(place, ApprovalHistory())
            if isinstance(history, Fault):
                each, history = replace(each, fault=history), ApprovalHistory()
            records.append(_open_record(wait, each, history))
        return page_of(
            "approvals.list", records, size, lambda each: (each.opened_at, each.run, each.node)
        )

    @operation("approvals.get", role=Role.VIEWER)
    async def get(self, id: str) -> ApprovalRecord:
        """Get an approval with all its answers.

        It may be open or decided.
        """
        run_name, name = _parsed(id)
        try:
            run = await self._backend.find_run(run_name)
        except RunNotFound as error:
            raise ApprovalNotFound(*error.faults, approval_id=id) from None
        # The run is not loaded: its log may be long, and the end of it is enough.
        store = await self._backend.store()
        graph = await self._backend.graphs.load(store, run.namespace, f"{run.flow}@{run.version}")
        node = _approval_node(graph, run.id, name, id)
        place = ApprovalPlace(namespace=run.namespace, run=run.id, node=node.id)
        waits = await store.queries.run_waits(run.namespace, run.id)
        return await self._read(place, node, run.flow, _wait_at(waits, node.id))

    @operation("approvals.decide", role=Role.DECIDER, writes=True)
    def decide(
        self,
        id: str,
        decision: str,
        *,
        data: Any = None,
        by: str | None = None,
        roles: Sequence[str] = (),
        note: str | None = None,
        revision: int | None = None,
    ) -> Coroutine[Any, Any, ApprovalRecord]:
        """Answer an approval.

        The returned record says whether that decided it. ``data`` is what its form asks for. ``by``
        is the person who answers and ``roles`` are that person's roles; the caller must have
        authenticated both. ``revision`` is that of the record which the person was shown; it is
        required once an earlier answer has changed the data. Raises ``InvalidAnswer`` with the
        faults by field, ``ApprovalChanged``, ``NotDecider``, ``AlreadyAnswered``,
        ``ApprovalDecided`` or ``ApprovalNotFound``; then nothing was written.
        """
        answer = DecideApproval(
            node="",
            decision=check.stored_name(decision, "decision"),
            data=self._backend.json(data, "the data of the answer"),
            by=check.optional(check.person, by, "by"),
            roles=tuple(
                dict.fromkeys(
                    check.person(each, ("roles", at), label=f"roles[{at}]")
                    for at, each in enumerate(check.listed(roles, "roles", "strings"))
                )
            ),
            note=check.optional(check.text, note, "note", NOTE_MAX),
            revision=check.optional(check.integer, revision, "revision", 0),
        )
        return self._decide(id, answer)

    async def _decide(self, id: str, answer: DecideApproval) -> ApprovalRecord:
        run_name, name = _parsed(id)
        store, engine = await self._backend.store(), await self._backend.engine()
        try:
            namespace = await self._backend.namespace_of(run_name)
            # One consistent read: the run, its waits, the end of its log, and the store's time.
            facts = await store.queries.explain_facts(namespace, run=run_name)
            if facts.loaded is None:
                raise RunNotFound(run_id=run_name)
        except RunNotFound as error:
            raise ApprovalNotFound(*error.faults, approval_id=id) from None
        run = await engine.open_run(namespace, run_name, facts.loaded)
        node = _approval_node(run.graph, run.id, name, id)
        place = ApprovalPlace(namespace=run.namespace, run=run.id, node=node.id)
        wait = _wait_at(facts.waits, node.id)
        # By the store's clock: the caller's clock may be off.
        is_late = wait is not None and wait.due_at is not None and wait.due_at <= facts.now
        if run.state.approvals.get(node.id) is not None:  # has answers or reminders
            history = await self._history(place, facts.events)
        else:
            opened_at = None if wait is None else wait.opened_at
            history = ApprovalHistory(status=ApprovalStatus.OPEN, opened_at=opened_at)
        loaded_number = run.state.number
        try:
            plan = await self._backend.command(run, replace(answer, node=node.id, is_late=is_late))
        except ApprovalDecided:
            known = facts.events if run.state.number == loaded_number else ()
            record = await self._read(place, node, run.graph.name, wait, known, run)
            if record.is_open:
                raise
            raise ApprovalDecided(approval_id=id, outcome=outcome_of(record)) from None
        if wait is None:
            return await self._read(place, node, run.graph.name, wait)
        if plan.first != loaded_number + 1:  # there were concurrent writes
            now = await self._history(place)
            if now.status is not None:  # otherwise this ended the run, which was pruned immediately
                return _record(place, node, wait, self._asked(wait, run.graph.name), now)
        for stored in plan.stored_events:
            event = decode_event(run.id, stored.number, stored.data)
            history = after_event(history, node.id, event, stored, self._backend.codec)
        return _record(place, node, wait, self._asked(wait, run.graph.name), history)

    async def _read(
        self,
        place: ApprovalPlace,
        node: ApprovalNode,
        flow: str,
        wait: Wait | None,
        known: Sequence[StoredEvent] = (),
        run: CachedRun | None = None,
    ) -> ApprovalRecord:
        """Read an approval, except what ``known`` already has of its log and run."""
        history = await self._history(place, known)
        if history.status is None:
            id = approval_id(place.run, node.id)
            raise ApprovalNotFound(NOT_OPENED.fault(run_id=place.run), approval_id=id)
        if wait is not None:
            return _record(place, node, wait, self._asked(wait, flow), history)
        # The question is in the log.
        engine = await self._backend.engine()
        run = run or await engine.load(place.namespace, place.run)
        while True:
            try:
                view = RunView(run.graph, run.id, run.state, run.values)
                asked = Asked(request=view.approval_request(node))
                return _record(place, node, wait, asked, history)
            except ValueMissing as error:
                await engine.read_values(run, error.numbers)

    async def _history(
        self, place: ApprovalPlace, known: Sequence[StoredEvent] = ()
    ) -> ApprovalHistory:
        store = await self._backend.store()
        return (await read_histories(store, [place], self._backend.codec, known))[place]

    async def _histories(
        self, places: Sequence[ApprovalPlace]
    ) -> dict[ApprovalPlace, ApprovalHistory | Fault]:
        """Return their histories, or a fault for each that cannot be decoded here."""
        store = await self._backend.store()
        try:
            return {**await read_histories(store, places, self._backend.codec)}
        except StoreError:
            raise
        except PerdureError as error:
            if len(places) == 1:
                return {places[0]: error.faults[0]}
        found: dict[ApprovalPlace, ApprovalHistory | Fault] = {}
        for place in places:
            found |= await self._histories([place])
        return found

    def _asked(self, wait: Wait, flow: str = "") -> Asked:
        """The question. If only another codec can decode it, the rest is still returned."""
        try:
            detail = decoded(wait.detail, self._backend.codec)
            return Asked(request=msgspec.convert(detail, ApprovalRequest))
        except msgspec.ValidationError as error:
            fault = UNREADABLE.fault(approval_id=approval_id(wait.run, wait.key), reason=str(error))
        except PerdureError as error:
            fault = error.faults[0]
        request = ApprovalRequest(node=wait.key, flow=flow, title=wait.name)
        return Asked(request=request, fault=fault)


def _is_answered(users: set[str], wait: Wait, history: ApprovalHistory | Fault | None) -> bool:
    """Whether those of the users whom it asks have answered; False if no user is named.

    A user may also be asked by a role, then all of them are meant.
    """
    if not users or not isinstance(history, ApprovalHistory):
        return False
    answered = {normal_name(each.by) for each in history.answers if each.by is not None}
    asked = users.intersection(map(normal_name, wait.deciders))
    return answered.issuperset(asked or users)


def _wait_at(waits: Iterable[Wait], node: str) -> Wait | None:
    for each in waits:
        if each.type is WaitType.APPROVAL and each.key == node:
            return each
    return None


def _parsed(id: Any) -> tuple[RunId, str]:
    """Parse an approval id into run and node."""
    run, node = parse_approval_id(id) if isinstance(id, str) else ("", "")
    if not run or not node:
        shown = id if isinstance(id, str) else safe_repr(id)
        raise ApprovalNotFound(INVALID_ID.fault(("id",), name="id"), approval_id=shown)
    return run_id(run), node


def _approval_node(graph: Graph, run: RunId, name: str, id: str) -> ApprovalNode:
    node = graph.nodes.get(name)
    if isinstance(node, ApprovalNode):
        return node
    known = tuple(each.id for each in graph.nodes.values() if isinstance(each, ApprovalNode))
    nearest = near(name, known)
    fault = NO_SUCH_NODE.fault(
        run_id=run,
        flow=graph.name,
        node=name,
        nearest=nearest,
        known=() if nearest else known,
    )
    raise ApprovalNotFound(fault, approval_id=id)


def outcome_of(record: ApprovalRecord) -> str:
    """A description of how an approval ended."""
    at = f" at {record.decided_at:%Y-%m-%d %H:%M:%S %Z}" if record.decided_at else ""
    match record.status:
        case ApprovalStatus.DECIDED:
            agreed = [each for each in record.answers if each.decision == record.decision]
            by = " and ".join(each.by for each in agreed if each.by is not None)
            return f"{record.decision}{f' by {by}' if by else ''}{at}"
        case ApprovalStatus.TIMED_OUT:
            return f"the deadline passed{at} without a decision"
        case ApprovalStatus.CANCELLED:
            return f"its run ended{at} without a decision"
        case ApprovalStatus.OPEN:
            return f"open, with {len(record.answers)} answers so far"


def _record(
    place: ApprovalPlace,
    node: ApprovalNode,
    wait: Wait | None,
    asked: Asked,
    history: ApprovalHistory,
) -> ApprovalRecord:
    if wait is not None and history.status is ApprovalStatus.OPEN:
        return _open_record(wait, asked, history)
    request = asked.request
    data, revision = edited(request, (each.data for each in history.answers))
    assert history.status is not None
    assert history.opened_at is not None
    more = [name for each in history.reminders for name in each.deciders]
    return ApprovalRecord(
        id=approval_id(place.run, node.id),
        run=place.run,
        node=node.id,
        namespace=place.namespace,
        flow=request.flow,
        status=history.status,
        title=request.title,
        message=request.message,
        form=request.form,
        show=request.show,
        data=data,
        revision=revision,
        deciders=tuple(dict.fromkeys([*node.deciders, *more])),
        choices=request.answers,
        quorum=request.quorum,
        answers=history.answers,
        opened_at=history.opened_at,
        reminders=history.reminders,
        decision=history.decision,
        port=history.port,
        decided_at=history.ended_at,
        fault=asked.fault,
    )


def _open_record(wait: Wait, asked: Asked, history: ApprovalHistory) -> ApprovalRecord:
    request = asked.request
    data, revision = edited(request, (each.data for each in history.answers))
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
        data=data,
        revision=revision,
        deciders=wait.deciders,
        choices=request.answers,
        quorum=request.quorum,
        answers=history.answers,
        opened_at=wait.opened_at,
        due_at=wait.due_at,
        reminders=history.reminders,
        fault=asked.fault,
    )


def _place_of(wait: Wait) -> ApprovalPlace:
    return ApprovalPlace(namespace=wait.namespace, run=wait.run, node=wait.key)
