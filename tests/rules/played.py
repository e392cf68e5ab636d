"""A run that is played by hand: what happens is said by the test, and every step is checked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from perdure.engine import snapshot
from perdure.engine.decide import decide, fork, submit
from perdure.engine.decider import Decision
from perdure.engine.fold import fold
from perdure.engine.plan import GATHERED_MAX_BYTES, MAP_WINDOW
from perdure.errors import ValueMissing
from perdure.model.event import Event, Origin, Parent, decode_event, encode_event
from perdure.model.failure import Failure
from perdure.model.graph import FlowRef, Graph
from perdure.model.ids import Key, RunId
from perdure.model.outcome import Completed, Failed, Paused, Retried, Skipped
from perdure.model.run import LiveType, NodeStatus, RunState, RunStatus
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.model.trigger import (
    CancelRun,
    ChildEnded,
    DecideApproval,
    JobEnded,
    MigrateRun,
    PauseRun,
    ReportReceived,
    ResumeRun,
    RetryRun,
    SendSignal,
    Trigger,
    WaitDue,
)
from perdure.model.wait import Report, ReportStatus

RUN = RunId("run")


class Log:
    """The events of a run and their values, as a store would keep them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.values: dict[int, bytes] = {}
        self.lists: dict[str, list[bytes]] = {}

    def json(self, number: int) -> bytes:
        try:
            return self.values[number]
        except KeyError:
            raise ValueMissing(numbers=(number,)) from None

    def add(self, decision: Decision) -> None:
        for event, value in decision.events:
            # As it is read back: a state must not depend on what was not written.
            number = len(self.events) + 1
            self.events.append(decode_event(RUN, number, encode_event(event)))
            if value is not None:
                self.values[number] = value

    def state(self, last: int | None = None) -> RunState:
        """What the events up to ``last`` add up to."""
        state = RunState()
        for event in self.events[:last]:
            state = fold(state, event)
        return state


class Played:
    """Submits a run of a graph; then each method lets one thing happen to it."""

    def __init__(
        self,
        graph: Graph,
        input: Any = None,
        *,
        id: str = RUN,
        checks: bool = True,
        map_window: int = MAP_WINDOW,
        gathered_max_bytes: int = GATHERED_MAX_BYTES,
        first_items: int = 0,
        settings: RunSettings = NO_SETTINGS,
    ):
        self.graph = graph
        self.id = RunId(id)
        self.log = Log()
        self.checks = checks
        self.inputs: dict[str, Any] = {}
        """Of every key that was started, the input it was started with last."""
        self.started: list[str] = []
        """Keys in the order in which they were started, each time from its beginning."""
        self.resumptions: dict[str, Any] = {}
        """Of every key that was started, its resumption data."""
        self.state = RunState()
        self.decision = Decision()
        self._take(
            submit(
                graph,
                self.id,
                encoded(input),
                self.log,
                aging_ms=60_000,
                map_window=map_window,
                gathered_max_bytes=gathered_max_bytes,
                first_items=first_items,
                settings=settings,
            )
        )

    def happen(self, trigger: Trigger, graph: Graph | None = None) -> Decision:
        decided = decide(graph or self.graph, self.id, self.state, trigger, self.log)
        return self._take(decided)

    def _take(self, decided: tuple[Decision, RunState]) -> Decision:
        before = len(self.log.events)
        self.decision, state = decided
        self.log.add(self.decision)
        assert state.number == len(self.log.events)
        if self.checks:
            self._check(before, state)
        self.state = state
        for each in self.decision.schedules:
            self.inputs[each.key.text] = decoded(each.input)
            resumption = each.resumption and decoded(each.resumption)
            self.resumptions[each.key.text] = resumption
            if not resumption or not resumption.get("pauses"):
                self.started.append(each.key.text)
        for child in self.decision.children:
            self.inputs[child.key.text] = decoded(child.input)
            self.started.append(child.key.text)
        return self.decision

    def _check(self, before: int, state: RunState) -> None:
        folded = self.state
        for event in self.log.events[before:]:
            folded = fold(folded, event)
            kept = snapshot.take(folded)
            assert snapshot.restore(kept) == folded
        assert folded == state
        assert state.jobs == sum(live_type is LiveType.JOB for live_type in state.live.values())

    # What jobs, waits and people bring

    def end(self, key: str, outcome: Any, **details: Any) -> Decision:
        return self.happen(ended(key, outcome, **details))

    def finish(
        self, key: str, output: Any = None, is_done: bool | None = None, *, port: str = ""
    ) -> Decision:
        return self.end(key, Completed(output=encoded(output), port=port), is_done=is_done)

    def skip(self, key: str, reason: str = "") -> Decision:
        return self.end(key, Skipped(reason=reason))

    def pause_body(
        self,
        key: str,
        checkpoint: Any = None,
        name: str = "",
        *,
        deadline_ms: int | None = None,
        poll_ms: int | None = None,
        cancels: bool = False,
    ) -> Decision:
        outcome = Paused(
            checkpoint=encoded(checkpoint),
            name=name,
            deadline=None if deadline_ms is None else timedelta(milliseconds=deadline_ms),
            poll=None if poll_ms is None else timedelta(milliseconds=poll_ms),
            cancels=cancels,
        )
        return self.end(key, outcome)

    def report(self, key: str, status: str, *, token: str = "", **fields: Any) -> Decision:
        report = Report(status=ReportStatus(status), **fields)
        trigger = ReportReceived(
            key=Key.parse(key),
            status=report.status,
            report=encoded(report),
            token=token,
            port=report.port,
            has_progress=report.progress is not None,
        )
        return self.happen(trigger)

    def answer(
        self,
        node: str,
        decision: str = "approve",
        data: Any = None,
        *,
        by: str | None = None,
        **options: Any,
    ) -> Decision:
        trigger = DecideApproval(node=node, decision=decision, data=encoded(data), by=by, **options)
        return self.happen(trigger)

    def fail(self, key: str, message: str = "broken") -> Decision:
        return self.end(key, Failed(failure=failure(message)))

    def attempt_failed(self, key: str, attempt: int = 1) -> Decision:
        return self.end(key, Retried(failure=failure("once more")), attempt=attempt)

    def due(self, key: str, late_ms: int = 0) -> Decision:
        return self.happen(WaitDue(key=Key.parse(key), late_ms=late_ms))

    def child_completed(self, key: str, output: Any = None, run: str | None = None) -> Decision:
        child = self.state.children[key] if run is None else RunId(run)
        return self.happen(
            ChildEnded(
                key=Key.parse(key), run=child, status=RunStatus.COMPLETED, output=encoded(output)
            )
        )

    def child_ended(self, key: str, status: RunStatus, failure: Failure | None = None) -> Decision:
        child = self.state.children[key]
        return self.happen(
            ChildEnded(key=Key.parse(key), run=child, status=status, failure=failure)
        )

    def signal(self, name: str, payload: Any = None, by: str | None = None) -> Decision:
        return self.happen(SendSignal(name=name, payload=encoded(payload), by=by))

    def pause(self, reason: str | None = None, by: str | None = None) -> Decision:
        return self.happen(PauseRun(reason=reason, by=by))

    def unpause(self, by: str | None = None) -> Decision:
        return self.happen(ResumeRun(by=by))

    def cancel(self, *, compensates: bool = False, reason: str | None = None) -> Decision:
        return self.happen(CancelRun(reason=reason, by="ops", compensates=compensates))

    def retry(self) -> Decision:
        return self.happen(RetryRun(by="ops"))

    def migrate(self, to: Graph) -> Decision:
        """Go on in another version."""
        decision = self.happen(
            MigrateRun(to=FlowRef(name=to.name, version=to.version), by="ops"), to
        )
        self.graph = to
        return decision

    def fork(self, after: int, patch: dict[str, Any] | None = None) -> Played:
        """Another run that goes on from this one as it was after an event."""
        other = Played.__new__(Played)
        other.graph, other.id, other.checks = self.graph, RunId("fork"), self.checks
        other.log = Log()
        other.log.events = self.log.events[:after]
        other.log.values = {n: v for n, v in self.log.values.items() if n <= after}
        other.inputs, other.started, other.resumptions = {}, [], {}
        other.state = self.log.state(after)
        other._take(
            fork(
                self.graph,
                other.id,
                other.state,
                Origin(run=self.id, number=after),
                {id: encoded(output) for id, output in (patch or {}).items()},
                other.log,
            )
        )
        return other

    # What can be seen

    @property
    def status(self) -> str:
        return self.state.status

    @property
    def failure(self) -> Failure:
        """Why the run failed."""
        assert self.state.failure is not None
        return self.state.failure

    @property
    def live(self) -> dict[str, LiveType]:
        return dict(self.state.live)

    @property
    def result(self) -> Any:
        assert self.status == RunStatus.COMPLETED, self.status
        return decoded(self.log.json(self.state.result_ref))

    @property
    def types(self) -> list[str]:
        return [type(event).__name__ for event in self.log.events]

    @property
    def nodes(self) -> dict[str, NodeStatus]:
        return {id: node.status for id, node in self.state.nodes.items()}

    def output(self, node: str) -> Any:
        return decoded(self.log.json(self.state.nodes[node].ref))

    def outputs(self) -> dict[str, Any]:
        """Of the nodes that are completed."""
        return {id: self.output(id) for id, status in self.nodes.items() if status == "completed"}


def ended(key: str, outcome: Any, attempt: int = 1, is_done: bool | None = None) -> JobEnded:
    return JobEnded(key=Key.parse(key), attempt=attempt, outcome=outcome, is_done=is_done)


PARENT = Parent(run=RunId("parent"), key="child")


def failure(message: str = "broken") -> Failure:
    return Failure(type="OSError", message=message)


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def decoded(data: bytes) -> Any:
    return msgspec.json.decode(data)
