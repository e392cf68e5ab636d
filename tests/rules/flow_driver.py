"""Runs a built flow through the rules alone: no store, no worker, no time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.engine.decide import decide, submit
from perdure.engine.decider import Decision, NodeJob, StartChild
from perdure.flows.built import BuiltFlow
from perdure.model.failure import Failure
from perdure.model.graph import LoopNode
from perdure.model.ids import Key, RunId
from perdure.model.outcome import Completed, Failed
from perdure.model.run import NewWait, RunState, RunStatus, WaitType
from perdure.model.trigger import ChildEnded, JobEnded, SendSignal, Trigger, WaitDue


class Driven:
    """One run, driven until it ends. ``is_last_first`` turns the order of arrival round."""

    def __init__(
        self,
        flow: BuiltFlow,
        input: Any,
        *,
        signals: Mapping[str, Any] | None = None,
        is_last_first: bool = False,
        id: str = "run",
    ) -> None:
        self.flow = flow
        self.id = RunId(id)
        self.calls: list[str] = []
        self.lists: dict[str, list[bytes]] = {}
        self._signals = signals or {}
        self._is_last_first = is_last_first
        self._values: dict[int, bytes] = {}
        self._number = 0
        self._pending: list[NodeJob | NewWait | StartChild] = []
        data = msgspec.json.encode(input)
        decision, self.state = submit(flow.graph, self.id, data, self, aging_ms=0)
        self._take(decision)
        while self._pending and not self.state.is_ended:
            self._happen(self._next(self._pending.pop(-1 if is_last_first else 0)))

    def json(self, number: int) -> bytes:
        return self._values[number]

    @property
    def result(self) -> Any:
        assert self.state.status is RunStatus.COMPLETED, self.state.failure
        return msgspec.json.decode(self._values[self.state.result_ref])

    @property
    def failure(self) -> Failure:
        assert self.state.status is RunStatus.FAILED
        assert self.state.failure is not None
        return self.state.failure

    def _happen(self, trigger: Trigger) -> None:
        decision, self.state = decide(self.flow.graph, self.id, self.state, trigger, self)
        self._take(decision)

    def _take(self, decision: Decision) -> None:
        for _, value in decision.events:
            self._number += 1
            if value is not None:
                self._values[self._number] = value
        self._pending.extend(decision.schedules)
        self._pending.extend(wait for wait in decision.waits if wait.type is not WaitType.CHILD)
        self._pending.extend(decision.children)

    def _next(self, pending: NodeJob | NewWait | StartChild) -> Trigger:
        match pending:
            case NodeJob():
                return self._execute(pending)
            case StartChild():
                return self._child(pending)
            case NewWait(type=WaitType.SIGNAL, name=name) if name in self._signals:
                payload = msgspec.json.encode(self._signals[name])
                return SendSignal(name=name, payload=payload)
            case _:
                return WaitDue(key=Key.parse(pending.key))

    def _execute(self, schedule: NodeJob) -> Trigger:
        self.calls.append(schedule.key.text)
        task = self.flow.tasks[schedule.call.task]
        arguments = [msgspec.json.decode(schedule.input)] if schedule.call.takes_input else []
        try:
            output = msgspec.json.encode(task(*arguments))
        except Exception as error:
            failure = Failure(type=type(error).__name__, message=str(error))
            return JobEnded(key=schedule.key, attempt=1, outcome=Failed(failure=failure))
        is_done = None
        node = self.flow.graph.nodes[schedule.key.node]
        if isinstance(node, LoopNode) and not schedule.key.part:
            is_done = self.flow.tasks[node.check.task](msgspec.json.decode(output))
        return JobEnded(
            key=schedule.key, attempt=1, outcome=Completed(output=output), is_done=is_done
        )

    def _child(self, start: StartChild) -> Trigger:
        child = Driven(
            self.flow.flows[start.flow.text],
            msgspec.json.decode(start.input),
            signals=self._signals,
            is_last_first=self._is_last_first,
            id=start.id,
        )
        state: RunState = child.state
        if state.status is RunStatus.COMPLETED:
            output = child.json(state.result_ref)
            return ChildEnded(key=start.key, run=child.id, status=state.status, output=output)
        return ChildEnded(key=start.key, run=child.id, status=state.status, failure=state.failure)


def result_of(flow: BuiltFlow, input: Any = None, **options: Any) -> Any:
    """The result, which is the same whichever outcome arrives first."""
    first = Driven(flow, input, **options).result
    last = Driven(flow, input, is_last_first=True, **options).result
    assert first == last
    return first
