"""Drives a run to its end, in an order of its own, and looks at every step on the way."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from perdure.engine import snapshot
from perdure.engine.decide import decide
from perdure.engine.fold import fold
from perdure.model.event import SignalReceived
from perdure.model.failure import Failure
from perdure.model.graph import ApprovalNode, FlowRef, Graph, LoopNode, MapNode, Node, TaskNode
from perdure.model.ids import Key, RunId
from perdure.model.outcome import Completed, Failed, Paused, Retried, Skipped
from perdure.model.run import LiveType, NodeStatus, RunStatus, Snapshot
from perdure.model.trigger import (
    ChildEnded,
    DecideApproval,
    JobEnded,
    ReportReceived,
    SendSignal,
    Trigger,
    WaitDue,
)
from perdure.model.wait import Report, ReportStatus
from proof.reference.drawing import NEVER_SENT, World, signals_to_send
from tests.rules.played import Played, decoded, encoded, ended

DECIDED = {NodeStatus.COMPLETED, NodeStatus.SKIPPED, NodeStatus.FAILED, NodeStatus.BLOCKED}


class Driver:
    """Lets happen what the world holds for a run, each thing once, in an order from ``seed``."""

    def __init__(self, run: Played, world: World, seed: int) -> None:
        self.run = run
        self.world = world
        self.chance = random.Random(seed)
        self.pauses = 0.0
        """How likely a pause is before any step."""
        self.signals = signals_to_send(run.graph)
        for event in run.log.events:
            if isinstance(event, SignalReceived):
                self.signals.remove(event.name)

    def finish(self) -> Played:
        while not self.run.state.is_ended:
            self.step()
        return self.run

    @property
    def is_stuck(self) -> bool:
        """Whether nothing can happen any more, because other nodes received the signals."""
        return not self.signals and all(map(self.waits, self.run.live))

    def step(self) -> None:
        if self.chance.random() < self.pauses:
            self._pause()
        if not self.run.state.is_ended:
            self.deliver(self.next_trigger())

    def next_trigger(self) -> Trigger:
        keys = sorted(self.run.live)
        choices = [key for key in keys if not self.waits(key)] + self.signals
        picked = self.chance.choice(choices)
        if picked in keys:
            return self._outcome(picked)
        self.signals.remove(picked)
        return SendSignal(name=picked, payload=encoded(self.world.payload(picked)))

    def deliver(self, trigger: Trigger) -> None:
        nodes = self.run.nodes
        self.run.happen(trigger)
        for id, status in self.run.nodes.items():
            if id not in nodes and status is not NodeStatus.BLOCKED:
                self._check_start(id)
        if not _may_come_again(trigger):
            again = self.decided(trigger)
            assert again == ([], []), f"{trigger} again"

    def decided(self, trigger: Trigger) -> tuple[list[Any], list[str]]:
        """What would be decided about something, which does not happen."""
        run = self.run
        decision, state = decide(run.graph, run.id, run.state, trigger, run.log)
        assert decision.events or state == run.state
        return decision.events, decision.close_waits

    def _check_start(self, id: str) -> None:
        """A node is reached when all before it are decided, and never before."""
        sources = [edge.source for edge in self.run.graph.incoming[id]]
        assert all(self.run.nodes.get(source) in DECIDED for source in sources), id

    def waits(self, key: str) -> bool:
        """Whether a key waits for a signal that comes in time."""
        signal = getattr(self.run.graph.nodes[Key.parse(key).node], "signal", NEVER_SENT)
        return bool(signal != NEVER_SENT)

    def _outcome(self, text: str) -> Trigger:
        key = Key.parse(text)
        live_type = self.run.live[text]
        node = self.run.graph.nodes[key.node]
        if live_type is LiveType.WAIT:
            return self._end_of_wait(key, node)
        if live_type is LiveType.CHILD:
            body = node.body  # type: ignore[union-attr]  # it has a child
            assert isinstance(body, FlowRef)
            return self._child_ended(key, self.world.graphs[body.name])
        if key.part in ("undo", "poll", "cancel", "notify"):
            return ended(text, Completed(output=b"null"))
        if not key.part and self._may_pause(node) and self.chance.random() < 0.2:
            poll = self.chance.choice([None, timedelta(seconds=1)])
            outcome = Paused(
                checkpoint=b'"here"',
                deadline=timedelta(seconds=5),
                poll=poll,
                cancels=self.chance.random() < 0.5,
            )
            return ended(text, outcome)
        if self.chance.random() < 0.1:
            return ended(text, Retried(failure=failure("once more")))
        result = self.world.outcome(self.run.graph, text, node, self.run.inputs[text])
        if result.error:
            return ended(text, Failed(failure=failure(result.error)))
        if result.is_skipped:
            return ended(text, Skipped())
        completed = Completed(output=encoded(result.value), port=result.port)
        return ended(text, completed, is_done=result.is_done)

    def _end_of_wait(self, key: Key, node: Node) -> Trigger:
        if isinstance(node, ApprovalNode) and not key.part:
            decision = self.world.decision(self.run.graph, node)
            if decision:
                return DecideApproval(node=node.id, decision=decision, by="ann")
        elif key.text in self.run.state.pauses:
            status = self.chance.choice(list(ReportStatus))
            report = encoded(Report(status=status, progress=1))
            return ReportReceived(key=key, status=status, report=report, has_progress=True)
        return WaitDue(key=key)

    def _may_pause(self, node: Node) -> bool:
        return isinstance(node, TaskNode | MapNode | LoopNode)

    def _child_ended(self, key: Key, graph: Graph) -> ChildEnded:
        id = self.run.state.children[key.text]
        child = Played(graph, self.run.inputs[key.text], id=id, checks=False)
        Driver(child, self.world, self.chance.randrange(2**31)).finish()
        if child.status == RunStatus.COMPLETED:
            output = encoded(child.result)
            return ChildEnded(key=key, run=id, status=RunStatus.COMPLETED, output=output)
        broke = failure(f"child of {key.node} broke")
        return ChildEnded(key=key, run=id, status=RunStatus.FAILED, failure=broke)

    def _pause(self) -> None:
        self.run.pause()
        held = dict(self.run.state.live)
        for key in held:
            outcome = self._outcome(key)
            if not isinstance(outcome, DecideApproval | ReportReceived):  # which are kept for later
                assert self.decided(outcome) == ([], [])
        if self.signals and self.chance.random() < 0.5:
            signal = self.signals.pop()
            self.run.signal(signal, self.world.payload(signal))
            assert self.run.live == held
        self.run.unpause()


def _may_come_again(trigger: Trigger) -> bool:
    """Whether the same once more means something else; who ends waits looks that it is not so."""
    if isinstance(trigger, WaitDue):
        return trigger.key.part == "remind"
    return isinstance(trigger, SendSignal | DecideApproval | ReportReceived) or (
        isinstance(trigger, JobEnded) and isinstance(trigger.outcome, Retried)
    )


def failure(message: str) -> Failure:
    return Failure(type="OSError", message=message)


def nonsense(run: Played) -> list[Trigger]:
    """Outcomes that no live key of the run can have."""
    found: list[Trigger] = []
    for id in run.graph.nodes:
        texts = [id, f"{id}#1", f"{id}[0]", f"check:{id}#2", f"undo:{id}", "unknown"]
        texts += [f"poll:{id}", f"cancel:{id}", f"remind:{id}", f"notify:{id}", f"notify:{id}#1"]
        for text in texts:
            key, live_type = Key.parse(text), run.live.get(text)
            if live_type is not LiveType.JOB:
                broken = failure("nonsense")
                outcomes = (
                    Completed(output=b'"x"'),
                    Failed(failure=broken),
                    Retried(failure=broken),
                    Paused(checkpoint=b"1"),
                    Skipped(),
                )
                found.extend(ended(text, outcome) for outcome in outcomes)
            if live_type is not LiveType.WAIT:
                found.append(WaitDue(key=key))
            found.append(ChildEnded(key=key, run=RunId("x"), status=RunStatus.COMPLETED))
    return found


def check_snapshots(run: Played, snapshots: list[Snapshot]) -> None:
    """A snapshot and the events after it give what all events give."""
    for kept in snapshots:
        state = snapshot.restore(kept)
        assert state is not None
        for event in run.log.events[kept.number :]:
            state = fold(state, event)
        assert state == run.state


def ends_of(run: Played) -> tuple[dict[str, str], dict[str, Any]]:
    return {id: str(status) for id, status in run.nodes.items()}, run.outputs()


def result_of(run: Played) -> Any:
    return decoded(run.log.json(run.state.result_ref))
