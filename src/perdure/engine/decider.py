"""One decision about one run: which edges are taken, which nodes start, and what is written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from perdure.diagnostics import declare
from perdure.engine.readiness import Counts, Readiness
from perdure.engine.run_view import (
    RunView,
    SkipsNode,
    UnusableInput,
    Values,
    ValuesTooLarge,
    items_in,
    unusable,
)
from perdure.errors import InvalidInput
from perdure.expr.budget import CostBudget
from perdure.model import check
from perdure.model.event import NOTHING, EdgeCounts, Effects, Event
from perdure.model.graph import (
    MAP_ITEMS_MAX,
    ApprovalNode,
    Call,
    DelayNode,
    FlowNode,
    FlowRef,
    Graph,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
)
from perdure.model.ids import RUN_START, RUN_TIMEOUT, Key, RunId
from perdure.model.payload import weight
from perdure.model.run import MapState, NewWait, RunState, WaitType
from perdure.model.settings import RunSettings
from perdure.model.value import Value
from perdure.model.wait import ApprovalRequest, Notice, approval_id

INVALID_TIME = declare(
    "node.invalid_time", "delay {node!r}: {value!r} is not a valid time: {reason}"
)
STARTS_TOO_LARGE = declare(
    "node.starts_too_large",
    "node {node!r}: the inputs of the nodes that start together total more than {most} bytes",
    "Store large values elsewhere and pass references",
)

MAP_CONCURRENCY_MAX = 10_000
"""A larger ``concurrency`` counts as this: what one commit writes is bounded."""


def is_cancel(text: str) -> bool:
    """Whether this is the key of a job that cancels external work."""
    return text.startswith("cancel:")


class NodeJob(Value):
    """A job to insert for a node."""

    key: Key
    call: Call
    input: bytes
    resumption: bytes | None = None
    """A ``model.wait.Resumption``, if the task paused before or an earlier attempt had progress."""


class StartChild(Value):
    """A child run to start for a key."""

    key: Key
    id: RunId
    flow: FlowRef
    input: bytes


class Decision:
    """The events of a decision, and what the commit writes with them."""

    __slots__ = (
        "cancel_all",
        "cancel_keys",
        "children",
        "close_waits",
        "events",
        "is_started",
        "reprioritizes",
        "schedules",
        "suspend",
        "version",
        "waits",
    )

    def __init__(self) -> None:
        self.events: list[tuple[Event, bytes | None]] = []
        self.schedules: list[NodeJob] = []
        self.waits: list[NewWait] = []
        self.close_waits: list[str] = []
        self.cancel_keys: list[str] = []
        """Keys to cancel: their jobs are removed, their children cancelled."""
        self.children: list[StartChild] = []
        self.cancel_all = False
        """Cancel all live keys, except those this decision starts."""
        self.suspend: bool | None = None
        self.version: str | None = None
        self.is_started: bool | None = None
        """True: a queued run starts. False: the run is queued."""
        self.reprioritizes = False
        """The priorities of its jobs change with that of the run."""


class GatheredEffects:
    """Collects the effects of the next event."""

    __slots__ = ("blocked", "children", "edge_counts", "mapped", "skipped", "started", "waiting")

    def __init__(self) -> None:
        self.started: list[str] = []
        self.waiting: list[str] = []
        self.children: list[tuple[str, RunId]] = []
        self.mapped: list[tuple[str, int]] = []
        self.skipped: list[str] = []
        self.blocked: list[str] = []
        self.edge_counts: dict[str, Counts] = {}

    def take(self) -> Effects:
        """Return the collected effects and start over for the next event."""
        rest = self.waiting or self.children or self.mapped or self.skipped or self.blocked
        if not rest and not self.edge_counts:  # the common case
            if not self.started:
                return NOTHING
            effects = Effects(started=tuple(self.started))
            self.started.clear()
            return effects
        effects = Effects(
            started=tuple(self.started),
            waiting=tuple(self.waiting),
            children=tuple(self.children),
            mapped=tuple(self.mapped),
            skipped=tuple(self.skipped),
            blocked=tuple(self.blocked),
            edge_counts=tuple(
                EdgeCounts(node=node, decided=counts[0], active=counts[1], blocked=counts[2])
                for node, counts in self.edge_counts.items()
            ),
        )
        for gathered in (self.started, self.waiting, self.skipped, self.blocked):
            gathered.clear()
        self.children.clear()
        self.mapped.clear()
        self.edge_counts.clear()
        return effects


class Decider:
    """One decision about one run: events in order, and what is written with them.

    Effects gather until the event that causes them is emitted. The event carries them, so
    folding a log needs no graph, no code and no version of these rules.
    """

    def __init__(self, graph: Graph, run: RunId, state: RunState, values: Values) -> None:
        self.graph = graph
        self.run = run
        self.view = RunView(graph, run, state, values)
        self.decision = Decision()
        self.first_items = 0
        """How many items a map starts in this decision; 0: as many as it may."""
        self.is_reopening = False
        """Everything that was live starts again, however much it takes together."""
        self._taken_bytes = 0
        self._gathered = GatheredEffects()
        # Follow-ups that ``completion.settle`` processes once the events so far are emitted.
        self.unusable: list[UnusableInput] = []
        """Reached nodes whose input is invalid."""
        self.skipping: list[SkipsNode] = []
        """Reached nodes that lack an input and are therefore skipped."""
        self.signaled: list[tuple[str, int]] = []
        """Nodes that wait for an already pending signal, and the event of the signal."""
        self.emptied: list[str] = []
        """Maps that were started without any item to execute."""

    @property
    def state(self) -> RunState:
        return self.view.state

    def emit(self, event: Event, value: bytes | None = None) -> None:
        """Append an event and fold it, so that the next decision sees the new state."""
        self.view.apply(event, value)
        self.decision.events.append((event, value))

    def take_effects(self) -> Effects:
        """The effects collected since the last event, for the event about to be emitted."""
        return self._gathered.take()

    def give_up(self) -> None:
        """Cancel all live keys, and drop everything this decision was to start.

        Except jobs that cancel external work, which must be done even if the run ends.
        """
        decision = self.decision
        decision.schedules = [each for each in decision.schedules if is_cancel(each.key.text)]
        for planned in (decision.waits, decision.close_waits, decision.cancel_keys):
            planned.clear()
        decision.children.clear()
        if any(map(is_cancel, self.state.live)):
            decision.cancel_keys.extend(text for text in self.state.live if not is_cancel(text))
            decision.close_waits.append(RUN_TIMEOUT)
        else:
            decision.cancel_all = True

    # Edges

    def follow_edges(self, node: str, port: str, value: bytes | None, ref: int = 0) -> None:
        """Decide the edges that leave ``node``, which the next event completes on ``port``."""
        if not self.graph.outgoing[node]:
            return
        self.view.completing(node, port, value, ref)
        for ready in self._decide_edges(node, port, is_blocked=False):
            self.start(ready)

    def skip_edges(self, node: str, *, is_blocked: bool) -> None:
        """Decide the edges that leave ``node`` when none is taken: it was skipped, or it failed.

        ``is_blocked``: it failed, and nothing behind it can run.
        """
        for ready in self._decide_edges(node, None, is_blocked=is_blocked):
            self.start(ready)

    def adopt_recount(self, readiness: Readiness) -> None:
        """After a recount of all edges, adopt the counts of nodes that are not reached yet."""
        self._gathered.edge_counts = dict(readiness.edge_counts)
        self._gathered.skipped = list(readiness.skipped)
        self._gathered.blocked = list(readiness.blocked)
        for ready in readiness.ready:
            self.start(ready)

    def _decide_edges(self, node: str, port: str | None, *, is_blocked: bool) -> list[str]:
        """Decide the edges that leave a node: those of ``port`` are taken, all others are not.

        Returns the nodes that become ready; others are skipped or blocked, and their edges decided.
        """
        gathered = self._gathered
        ready: list[str] = []
        ended: list[tuple[str, str | None, bool]] = [(node, port, is_blocked)]
        while ended:
            source, taken, is_blocked = ended.pop()
            for edge in self.graph.outgoing[source]:
                is_active = taken is not None and edge.port == taken
                counts = self._count_edge(edge.target, is_active, is_blocked)
                if counts is None:
                    continue
                if counts[2]:
                    gathered.blocked.append(edge.target)
                    ended.append((edge.target, None, True))
                elif counts[1]:
                    ready.append(edge.target)
                else:
                    gathered.skipped.append(edge.target)
                    ended.append((edge.target, None, False))
        return ready

    def _count_edge(self, target: str, is_active: bool, is_blocked: bool) -> Counts | None:
        """Count one more decided edge; the counts once all of the target's are."""
        degree = len(self.graph.incoming[target])
        if degree == 1:
            return 1, is_active, is_blocked
        gathered = self._gathered.edge_counts
        known = gathered.get(target) or self.state.edge_counts.get(target) or (0, 0, 0)
        counts = (known[0] + 1, known[1] + is_active, known[2] + is_blocked)
        if counts[0] < degree:
            gathered[target] = counts
            return None
        gathered.pop(target, None)
        return counts

    # Starting nodes

    def start(self, id: str) -> None:
        """Start a node from the beginning."""
        try:
            self._start(self.graph.nodes[id])
        except UnusableInput as error:
            self.unusable.append(error)
            self._gathered.waiting.append(id)
        except SkipsNode as skips:
            self.skipping.append(skips)
            self._gathered.waiting.append(id)

    def _start(self, node: Node) -> None:
        view = self.view
        match node:
            case TaskNode() | RouteNode():
                self.schedule(Key(node=node.id), node.call, self._input_of(node))
            case MapNode():
                items = items_in(node, self._input_of(node), self._items_max(node))
                self._gathered.mapped.append((node.id, len(items)))
                launched = min(len(items), self._at_once(node) or len(items))
                if self.first_items:
                    launched = min(launched, self.first_items)
                self._launch(node, items, range(launched))
            case LoopNode():
                self.call(Key(node=node.id, iteration=1), node.body, self._input_of(node))
            case FlowNode():
                self.call(Key(node=node.id), node.body, self._input_of(node))
            case DelayNode(until=""):
                delay = timedelta(milliseconds=node.delay_ms)
                self.wait(NewWait(key=node.id, type=WaitType.TIMER, delay=delay))
            case DelayNode():
                when = view.rendered(node, node.until)
                try:
                    due_at = check.moment(datetime.fromisoformat(when), "until")
                except (TypeError, ValueError) as error:
                    fault = INVALID_TIME.fault(
                        ("nodes", node.id, "until"), node=node.id, value=when, reason=str(error)
                    )
                    raise UnusableInput(node.id, fault) from None
                self.wait(NewWait(key=node.id, type=WaitType.TIMER, due_at=due_at))
            case SignalNode():
                self._await_signal(node)
            case ApprovalNode():
                self._open_approval(node)

    def _input_of(self, node: Node) -> bytes:
        """The input of a node that starts."""
        input = self.view.input_of(node.id)
        self._take_bytes(node, weight(input))
        return input

    def _take_bytes(self, node: Node, size: int) -> None:
        """Count what the commit writes for a node: each of those that start gets a copy."""
        if self._taken_bytes and not self.is_reopening:
            try:
                self.view.check_together(self._taken_bytes + size)
            except ValuesTooLarge:
                most = self.state.gathered_max_bytes
                fault = STARTS_TOO_LARGE.fault(("nodes", node.id), node=node.id, most=most)
                raise UnusableInput(node.id, fault) from None
        self._taken_bytes += size

    def _await_signal(self, node: SignalNode) -> None:
        budget = CostBudget()
        where = self.view.where_of(node, budget)
        try:
            number = self.view.take_first(where, self.view.unread(node.signal), budget)
        except InvalidInput as error:
            raise unusable(node, "where", error) from None
        if number:
            self._gathered.waiting.append(node.id)
            self.signaled.append((node.id, number))
            return
        wait = NewWait(
            key=node.id,
            type=WaitType.SIGNAL,
            name=node.signal,
            delay=milliseconds(node.timeout_ms),
            detail=b"" if where is None else msgspec.json.encode({"where": where.data}),
        )
        self.wait(wait)

    def _open_approval(self, node: ApprovalNode) -> None:
        """Open an approval: it is in its deciders' inboxes until decided or expired."""
        request = self.view.approval_request(node)
        detail = msgspec.json.encode(request)
        self._take_bytes(node, len(detail))
        wait = NewWait(
            key=node.id,
            type=WaitType.APPROVAL,
            delay=milliseconds(node.timeout_ms),
            deciders=node.deciders,
            detail=detail,
        )
        self.wait(wait)
        if steps := reminder_steps(node):
            self.remind_in(node, steps[0].at_ms)
        self.notify(node, request, node.deciders, "opened")

    def remind_in(self, node: ApprovalNode, delay_ms: int) -> None:
        key = Key(node=node.id, part="remind").text
        delay = timedelta(milliseconds=max(0, delay_ms))
        self.wait(NewWait(key=key, type=WaitType.TIMER, delay=delay))

    def notify(
        self,
        node: ApprovalNode,
        request: ApprovalRequest,
        deciders: tuple[str, ...],
        why: str,
        number: int = 0,
        *,
        step: int = 0,
    ) -> None:
        """Execute the approval's ``notify`` task, if it has one."""
        if node.notify is None:
            return
        notice = Notice(
            approval=approval_id(self.run, node.id),
            why=why,
            title=request.title,
            message=request.message,
            deciders=deciders,
            number=number,
        )
        key = Key(node=node.id, part="notify", iteration=step)
        self.schedule(key, node.notify, msgspec.json.encode(notice))

    def restart(self, id: str) -> None:
        """Resume a node where it was, keeping its completed parts."""
        node, state = self.graph.nodes[id], self.state.nodes[id]
        if isinstance(node, MapNode) and (progress := self.state.maps.get(id)) is not None:
            left = [item for item in range(progress.launched) if item not in progress.refs]
            self._launch(node, items_in(node, self.view.input_of(id)), left)
        elif isinstance(node, LoopNode) and state.part == "check":
            self.check_loop(node, state.iteration, self.view.json(state.ref))
        elif isinstance(node, LoopNode) and state.iteration > 1:
            key = Key(node=id, iteration=state.iteration)
            self.call(key, node.body, self.view.json(state.ref))
        else:
            self.start(id)

    def launch_more(self, node: MapNode, progress: MapState) -> None:
        """Start more items of a map of which the next event ends one.

        Without a ``concurrency``, half a window at a time, so that the cost per item stays small.
        """
        room, least = 1, 1  # as in runs of earlier versions
        if window := self.state.map_window:
            unfinished = progress.launched - len(progress.refs) - 1
            room = (self._at_once(node) or window) - unfinished
            least = 1 if node.concurrency else max(1, window // 2)
        if room >= least:
            last = min(progress.launched + room, progress.count)
            self._launch(node, self.view.items_of(node), range(progress.launched, last))

    def _at_once(self, node: MapNode) -> int | None:
        """How many unfinished items a map may have; None: any number."""
        if not self.state.map_window:
            return node.concurrency
        return min(node.concurrency or self.state.map_window, MAP_CONCURRENCY_MAX)

    def _items_max(self, node: MapNode) -> int | None:
        """How many items a map may have; None: any number."""
        if node.items_max is not None or not self.state.map_window:
            return node.items_max
        return MAP_ITEMS_MAX

    def _launch(self, node: MapNode, items: list[bytes], which: Sequence[int]) -> None:
        for item in which:
            self.call(Key(node=node.id, item=item), node.body, items[item])
        if not which:
            self._gathered.waiting.append(node.id)
            self.emptied.append(node.id)

    # Jobs, child runs and waits

    def call(self, key: Key, body: Call | FlowRef, input: bytes) -> None:
        """Start a job, or a child run, for a key."""
        if isinstance(body, Call):
            self.schedule(key, body, input)
            return
        child = RunId(f"{self.run}/{key.text}")
        if key.text in self.state.children:  # restarted by a retry
            child = RunId(f"{self.run}/{key.text}~{self.view.next_number}")
        self._gathered.children.append((key.text, child))
        self.decision.children.append(StartChild(key=key, id=child, flow=body, input=input))
        self.decision.waits.append(NewWait(key=key.text, type=WaitType.CHILD, name=child))

    def check_loop(self, node: LoopNode, iteration: int, output: bytes) -> None:
        """Start the check task of a loop."""
        key = Key(node=node.id, iteration=iteration, part="check")
        self.schedule(key, node.check, output)

    def schedule(self, key: Key, call: Call, input: bytes, resumption: bytes | None = None) -> None:
        """Start a job for a key."""
        self.note_started(key.text)
        self.insert_job(key, call, input, resumption)

    def note_started(self, text: str) -> None:
        """Record in the next event that a job of this key starts."""
        self._gathered.started.append(text)

    def insert_job(
        self, key: Key, call: Call, input: bytes, resumption: bytes | None = None
    ) -> None:
        """Insert the job of a key whose start is recorded in the next or an earlier event."""
        if resumption is None and self.state.progress:  # an earlier attempt made progress
            resumption = self.view.resumption_of(key.text)
        self.decision.schedules.append(
            NodeJob(key=key, call=call, input=input, resumption=resumption)
        )

    def queue(self, settings: RunSettings) -> None:
        """Open the wait that starts the run: at its time, or when the store finds a place for it.

        Like the other waits of the run itself, it is not among the live keys.
        """
        timer = NewWait(
            key=RUN_START,
            type=WaitType.TIMER,
            delay=milliseconds(settings.delay_ms),
            due_at=settings.run_at,
        )
        self.decision.waits.append(timer)

    def start_clock(self, settings: RunSettings, *, is_queued: bool = False) -> None:
        """Open the timer that ends the run, if it has a timeout or a deadline.

        It is not among the live keys: a run does not wait for it. Only the clock of a deadline
        runs while the run is queued.
        """
        if is_queued and settings.deadline is None:
            return
        if settings.deadline is not None:
            timer = NewWait(key=RUN_TIMEOUT, type=WaitType.TIMER, due_at=settings.deadline)
        elif settings.timeout_ms is not None:
            delay = timedelta(milliseconds=settings.timeout_ms)
            timer = NewWait(key=RUN_TIMEOUT, type=WaitType.TIMER, delay=delay)
        else:
            return
        self.decision.waits.append(timer)

    def wait(self, wait: NewWait) -> None:
        self._gathered.waiting.append(wait.key)
        self.decision.waits.append(wait)


class ReminderStep(Value):
    """A reminder, or an escalation, which adds deciders."""

    at_ms: int
    """Measured from the opening of the approval."""
    deciders: tuple[str, ...] = ()


def reminder_steps(node: ApprovalNode) -> list[ReminderStep]:
    """Reminders and escalations in the order of their times."""
    steps = [ReminderStep(at_ms=at) for at in node.reminders_ms]
    steps += [
        ReminderStep(at_ms=each.after_ms, deciders=each.deciders) for each in node.escalations
    ]
    return sorted(steps, key=lambda step: step.at_ms)


def milliseconds(count: int | None) -> timedelta | None:
    return None if count is None else timedelta(milliseconds=count)
