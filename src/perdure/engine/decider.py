"""One decision about one run: which edges fire, which nodes start, and what is written with it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from perdure.diagnostics import declare
from perdure.engine.approval_requests import notice_of, request_of, steps_of
from perdure.engine.decision import Following, Schedule, Skips, StartChild, Unusable, ms
from perdure.engine.readiness import Counts, Standing
from perdure.engine.run_view import Reading
from perdure.model import check
from perdure.model.graph import (
    ApprovalNode,
    Call,
    DelayNode,
    FlowNode,
    FlowRef,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
)
from perdure.model.ids import Key, RunId
from perdure.model.run import NewWait, WaitKind
from perdure.model.wait import PastPause, Report, ReportStatus, Resumption


def resumption_of(reading: Reading, text: str) -> bytes | None:
    """The pauses of a key, and how far its work came; None if there is nothing of either."""
    pauses = reading.state.pauses.get(text, ())
    progress = reading.state.progress.get(text)
    failures = reading.state.retried.get(text, 0)
    if not pauses and progress is None and not failures:
        return None
    partial = None if progress is None else _report(reading, progress).progress
    past = tuple(
        PastPause(
            name=pause.name,
            checkpoint=msgspec.Raw(reading.json(pause.checkpoint)),
            report=_report(reading, pause.report or reading.state.early.get(text, 0)),
        )
        for pause in pauses
    )
    return msgspec.json.encode(Resumption(pauses=past, progress=partial, failures=failures))


def _report(reading: Reading, number: int) -> Report:
    if not number:  # it is only asked after
        return Report(status=ReportStatus.PROGRESS)
    return msgspec.json.decode(reading.json(number), type=Report)


INVALID_TIME = declare(
    "node.invalid_time", "delay {node!r}: {value!r} is not a valid time: {reason}"
)
NOT_AN_OBJECT = declare(
    "node.input_not_an_object", "map {node!r}: its input must be an object with the key {key!r}"
)
NO_SUCH_KEY = declare(
    "node.no_such_key", "map {node!r}: its input has no key {key!r}[; it has {known}]"
)
NOT_A_LIST = declare("node.not_a_list", "map {node!r}: {what} must be a list")


class Starting(Reading):
    def start(self, following: Following, id: str) -> None:
        try:
            self._start(following, self.graph.nodes[id])
        except Unusable as error:
            self.unusable.append(error)
            following.waiting.append(id)
        except Skips as skips:
            self.skipping.append(skips)
            following.waiting.append(id)

    def _start(self, following: Following, node: Node) -> None:
        match node:
            case TaskNode() | RouteNode():
                self.schedule(following, Key(node=node.id), node.call, self.input_of(node.id))
            case MapNode():
                items = _items(node, self.input_of(node.id))
                following.mapped.append((node.id, len(items)))
                launched = min(len(items), node.concurrency or len(items))
                self._launch(following, node, items, range(launched))
            case LoopNode():
                self.call(
                    following, Key(node=node.id, iteration=1), node.body, self.input_of(node.id)
                )
            case FlowNode():
                self.call(following, Key(node=node.id), node.body, self.input_of(node.id))
            case DelayNode():
                self._delay(following, node)
            case SignalNode():
                self._await_signal(following, node)
            case ApprovalNode():
                self._ask(following, node)

    def _delay(self, following: Following, node: DelayNode) -> None:
        if not node.until:
            self.wait(following, NewWait(key=node.id, kind=WaitKind.TIMER, delay=ms(node.delay_ms)))
            return
        when = self.rendered(node, node.until)
        try:
            due_at = check.moment(datetime.fromisoformat(when), "until")
        except (TypeError, ValueError) as error:
            fault = INVALID_TIME.fault(
                ("nodes", node.id, "until"), node=node.id, value=when, reason=str(error)
            )
            raise Unusable(node.id, fault) from None
        self.wait(following, NewWait(key=node.id, kind=WaitKind.TIMER, due_at=due_at))

    def _await_signal(self, following: Following, node: SignalNode) -> None:
        where = None if node.where is None else self.rendered(node, node.where)
        for number in self.unread(node.signal):
            if self.accepts(where, number):
                following.waiting.append(node.id)
                self.instant.append((node.id, self.take(number)))
                return
        detail = b"" if where is None else msgspec.json.encode({"where": where})
        wait = NewWait(
            key=node.id,
            kind=WaitKind.SIGNAL,
            name=node.signal,
            delay=None if node.timeout_ms is None else ms(node.timeout_ms),
            detail=detail,
        )
        self.wait(following, wait)

    def _ask(self, following: Following, node: ApprovalNode) -> None:
        """Open an approval: in the inboxes of its deciders until one of them, or time, ends it."""
        request = request_of(self, node)
        wait = NewWait(
            key=node.id,
            kind=WaitKind.APPROVAL,
            name=request.title,
            delay=None if node.timeout_ms is None else ms(node.timeout_ms),
            deciders=node.deciders,
            detail=msgspec.json.encode(request),
        )
        self.wait(following, wait)
        if steps := steps_of(node):
            self.remind_in(following, node.id, steps[0].at_ms)
        if node.notify is not None:
            notice = notice_of(self.run, request, node.deciders, "opened")
            self.schedule(following, Key(node=node.id, part="notify"), node.notify, notice)

    def remind_in(self, following: Following, id: str, delay_ms: int) -> None:
        key = Key(node=id, part="remind").text
        self.wait(following, NewWait(key=key, kind=WaitKind.TIMER, delay=ms(max(0, delay_ms))))

    def resume(self, following: Following, id: str) -> None:
        """Start a node again where it stood, keeping what it has done."""
        node, state = self.graph.nodes[id], self.state.nodes[id]
        if isinstance(node, MapNode) and (progress := self.state.maps.get(id)) is not None:
            left = [item for item in range(progress.launched) if item not in progress.refs]
            self._launch(following, node, _items(node, self.input_of(id)), left)
        elif isinstance(node, LoopNode) and state.part == "check":
            self.check(following, node, state.iteration, self.json(state.ref))
        elif isinstance(node, LoopNode) and state.iteration > 1:
            key = Key(node=id, iteration=state.iteration)
            self.call(following, key, node.body, self.json(state.ref))
        else:
            self.start(following, id)

    def launch_next(self, following: Following, node: MapNode, item: int) -> None:
        """Start one more item of a map that is under way."""
        self._launch(following, node, self.items_of(node), [item])

    def items_of(self, node: MapNode) -> list[bytes]:
        """The items of a map that is under way."""
        # Its input is in the log by now. Remembered earlier, what a decision read that then came
        # to nothing could be mistaken for it.
        lists = self._values.lists
        if node.id not in lists:
            lists[node.id] = _items(node, self.input_of(node.id))
        return lists[node.id]

    def forget_items(self, id: str) -> None:
        self._values.lists.pop(id, None)

    def _launch(
        self, following: Following, node: MapNode, items: list[bytes], which: Sequence[int]
    ) -> None:
        for item in which:
            self.call(following, Key(node=node.id, item=item), node.body, items[item])
        if not which:
            following.waiting.append(node.id)
            self.full.append(node.id)

    def call(self, following: Following, key: Key, body: Call | FlowRef, input: bytes) -> None:
        """Start a job, or a child run, for a key."""
        if isinstance(body, Call):
            self.schedule(following, key, body, input)
            return
        child = RunId(f"{self.run}/{key.text}")
        if key.text in self.state.children:  # started anew by a retry
            child = RunId(f"{self.run}/{key.text}~{self.next_number}")
        following.children.append((key.text, child))
        self.decision.children.append(StartChild(key=key, id=child, flow=body, input=input))
        self.decision.waits.append(NewWait(key=key.text, kind=WaitKind.CHILD, name=child))

    def check(self, following: Following, node: LoopNode, iteration: int, output: bytes) -> None:
        """Ask whether a loop is done."""
        key = Key(node=node.id, iteration=iteration, part="check")
        self.schedule(following, key, node.check, output)

    def schedule(
        self,
        following: Following,
        key: Key,
        call: Call,
        input: bytes,
        resumption: bytes | None = None,
    ) -> None:
        if resumption is None and self.state.progress:  # an earlier try came some way
            resumption = resumption_of(self, key.text)
        following.started.append(key.text)
        self.decision.schedules.append(
            Schedule(key=key, call=call, input=input, resumption=resumption)
        )

    def wait(self, following: Following, wait: NewWait) -> None:
        following.waiting.append(wait.key)
        self.decision.waits.append(wait)


def _items(node: MapNode, input: bytes) -> list[bytes]:
    found: bytes = input
    if node.over is not None:
        try:
            fields = msgspec.json.decode(input, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            fault = NOT_AN_OBJECT.fault(("nodes", node.id), node=node.id, key=node.over)
            raise Unusable(node.id, fault) from None
        if node.over not in fields:
            fault = NO_SUCH_KEY.fault(
                ("nodes", node.id), node=node.id, key=node.over, known=tuple(fields)
            )
            raise Unusable(node.id, fault)
        found = bytes(fields[node.over])
    try:
        return [bytes(item) for item in msgspec.json.decode(found, type=list[msgspec.Raw])]
    except msgspec.ValidationError:
        what = "its input" if node.over is None else f"{node.over!r} of its input"
        fault = NOT_A_LIST.fault(("nodes", node.id), node=node.id, what=what)
        raise Unusable(node.id, fault) from None


class Deciding(Starting):
    """Collects one decision about one run."""

    def give_up(self) -> None:
        """Everything that is live ends here, and so does what this decision was to start."""
        decision = self.decision
        decision.clears = True
        for planned in (decision.schedules, decision.waits, decision.closes, decision.drops):
            planned.clear()
        decision.children.clear()

    # What follows when a node ends

    def after_end(self, node: str, port: str, value: bytes | None, ref: int = 0) -> Following:
        """What follows when ``node`` ends on ``port``, with the value of the event to come."""
        following = Following()
        if not self.graph.outgoing[node]:
            return following
        if value is not None:
            self.provide(value)
        self._ending = (node, port, ref or self.next_number)
        for ready in self._decide_edges(following, node, port):
            self.start(following, ready)
        return following

    def after_skip(self, node: str) -> Following:
        """What follows when ``node`` was reached and does not count."""
        following = Following()
        for ready in self._decide_edges(following, node, None, is_blocked=False):
            self.start(following, ready)
        return following

    def after_block(self, node: str) -> Following:
        """What follows when ``node`` failed and others are to be finished."""
        following = Following()
        for ready in self._decide_edges(following, node, None):
            self.start(following, ready)
        return following

    def after_recount(self, standing: Standing) -> Following:
        """What follows for the nodes that are not reached, when they were counted anew."""
        following = Following()
        following.arrived = dict(standing.arrived)
        following.skipped = list(standing.skipped)
        following.blocked = list(standing.blocked)
        for ready in standing.ready:
            self.start(following, ready)
        return following

    def _decide_edges(
        self, following: Following, node: str, port: str | None, *, is_blocked: bool | None = None
    ) -> list[str]:
        """Decide the edges that leave a node; the nodes that are ready by it.

        ``port`` None: it failed, and nothing behind it can run; or it was skipped.
        """
        blocks = port is None if is_blocked is None else is_blocked
        ready: list[str] = []
        ended: list[tuple[str, str | None, bool]] = [(node, port, blocks)]
        while ended:
            source, taken, is_blocked = ended.pop()
            for edge in self.graph.outgoing[source]:
                is_active = taken is not None and edge.port == taken
                counts = self._arrive(following, edge.target, is_active, is_blocked)
                if counts is None:
                    continue
                if counts[2]:
                    following.blocked.append(edge.target)
                    ended.append((edge.target, None, True))
                elif counts[1]:
                    ready.append(edge.target)
                else:
                    following.skipped.append(edge.target)
                    ended.append((edge.target, None, False))
        return ready

    def _arrive(
        self, following: Following, target: str, is_active: bool, is_blocked: bool
    ) -> Counts | None:
        """Count one more decided edge; the counts once all of the target's are."""
        degree = len(self.graph.incoming[target])
        if degree == 1:
            return 1, is_active, is_blocked
        known = following.arrived.get(target) or self.state.arrived.get(target) or (0, 0, 0)
        counts = (known[0] + 1, known[1] + is_active, known[2] + is_blocked)
        if counts[0] < degree:
            following.arrived[target] = counts
            return None
        following.arrived.pop(target, None)
        return counts
