"""What a worker needs to execute nodes: the code behind them, and what their outcomes mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from perdure.diagnostics import declare, safe_repr
from perdure.engine.failures import describe
from perdure.errors import InvalidInput, Permanent, UnknownTask, WorkerDied
from perdure.flows.built import NOT_BUILT, BuiltFlow
from perdure.model import trigger
from perdure.model.failure import Failure
from perdure.model.graph import Call, Graph, LoopNode
from perdure.model.ids import Key
from perdure.model.job import ClaimedJob, NewJob
from perdure.model.outcome import (
    Buried,
    Cancelled,
    Completed,
    Failed,
    NodeOutcome,
    Paused,
    Retried,
    Skipped,
)
from perdure.model.partition import Lane
from perdure.model.payload import Codec, from_json
from perdure.model.run import CommitAnswer
from perdure.model.trigger import AttemptFailed, FailedForGood, Finished, Happening
from perdure.tasks.node_type import TaskRegistry
from perdure.tasks.task import Task
from perdure.worker.attempt import Attempt
from perdure.worker.node_calls import NodeRules, rules_of
from perdure.worker.secrets import Secrets

ATTEMPT_ABORTED = declare("node.attempt_aborted", "the attempt was aborted")


class Code:
    """Everything that a worker has code for, and where that code gets secrets from."""

    def __init__(self, tasks: TaskRegistry, flows: FlowCode, secrets: Secrets) -> None:
        self.tasks = tasks
        self.flows = flows
        self.secrets = secrets

    def task_of(self, lane: Lane) -> Task[..., Any]:
        task = self.find(lane)
        if task is None:
            raise UnknownTask(name=lane.task, known=tuple(self.tasks))
        return task

    def find(self, lane: Lane) -> Task[..., Any] | None:
        """The code for jobs of a lane, if it is here."""
        if lane.flow:
            return self.flows.task_of(lane)
        return self.tasks[lane.task] if lane.task in self.tasks else None  # noqa: SIM401


class FlowCode(Mapping[str, BuiltFlow]):
    """The flows a worker has, with those that they start, by ``name@version``."""

    def __init__(self, flows: Iterable[BuiltFlow]) -> None:
        self._flows: dict[str, BuiltFlow] = {}
        for flow in flows:
            if not isinstance(flow, BuiltFlow):
                raise InvalidInput(NOT_BUILT.fault(("flows",), value=safe_repr(flow)))
            self._flows |= flow.with_children()
        rules = {text: rules_of(flow) for text, flow in self._flows.items()}
        self._rules = {text: of_nodes for text, of_nodes in rules.items() if of_nodes}

    def __getitem__(self, text: str) -> BuiltFlow:
        return self._flows[text]

    def __iter__(self) -> Iterator[str]:
        return iter(self._flows)

    def __len__(self) -> int:
        return len(self._flows)

    def task_of(self, lane: Lane) -> Task[..., Any] | None:
        """The code for jobs of a lane, if it is here."""
        flow = self._flows.get(lane.flow)
        return None if flow is None else flow.tasks.get(lane.task)

    def rules_of(self, job: ClaimedJob) -> NodeRules | None:
        """What the node of a job asks for around the call of its body, if that is anything."""
        if not self._rules or job.node is None:
            return None
        of_nodes = self._rules.get(job.lane.flow)
        if of_nodes is None:
            return None
        key = Key.parse(job.node.key)
        return of_nodes.get(key.node) if key.part in ("", "poll") else None

    @property
    def tasks(self) -> list[Task[..., Any]]:
        return [task for flow in self._flows.values() for task in flow.tasks.values()]

    @property
    def queues(self) -> list[str]:
        """The queues that jobs of these flows go to."""
        return list(dict.fromkeys(call.queue for call in self._calls()))

    def _calls(self) -> Iterator[Call]:
        for flow in self._flows.values():
            for node in flow.graph.nodes.values():
                for name in ("call", "body", "check", "undo", "notify"):
                    if isinstance(call := getattr(node, name, None), Call):
                        yield call


def happening_of(
    attempt: Attempt, outcome: NodeOutcome, graph: Graph, code: FlowCode, codec: Codec
) -> Happening:
    """What the outcome of a node's job means for its run."""
    assert attempt.job.node is not None
    key = Key.parse(attempt.job.node.key)
    match outcome:
        case Completed():
            return _finished(key, outcome, codec.decode(outcome.output), graph, code)
        case Skipped():
            return trigger.Skipped(key=key, reason=outcome.reason)
        case Paused():
            return trigger.Paused(
                key=key,
                checkpoint=codec.decode(outcome.checkpoint),
                name=outcome.name,
                deadline_ms=_ms(outcome.deadline),
                poll_ms=_ms(outcome.poll),
            )
        case Retried():
            return AttemptFailed(
                key=key,
                attempt=attempt.job.attempt,
                failure=outcome.failure,
                is_postponed=outcome.is_postponed,
            )
        case Failed() | Buried():
            return FailedForGood(key=key, failure=outcome.failure)
        case Cancelled():
            failure = outcome.failure or describe(Permanent(ATTEMPT_ABORTED.fault()))
            return FailedForGood(key=key, failure=failure)
        case _:
            raise AssertionError(f"{outcome!r} leaves the node as it is")


def continued(job: ClaimedJob, following: NewJob) -> ClaimedJob:
    """The same job as it goes on with another node."""
    return replace(
        job,
        lane=following.lane,
        input=following.input,
        attempt=1,
        failures=0,
        postpones=0,
        deaths=0,
        max_attempts=None,
        policy=following.policy,
        priority=following.priority,
        node=following.node,
    )


def yields(following: NewJob, answer: CommitAnswer) -> bool:
    """Whether something waits that is more urgent than to go on.

    By half a step of priority: what waits at the same priority does not interrupt a chain until
    it has waited that long.
    """
    if answer.most_urgent_rank is None or answer.now is None:
        return False
    rank = answer.now.timestamp() + (following.priority - 0.5) * following.aging.total_seconds()
    return answer.most_urgent_rank < rank


def poison_pill(deaths: int) -> Failure:
    return describe(WorkerDied(f"{deaths} workers died while they executed it"))


def repeated_by(outcome: NodeOutcome) -> Retried | None:
    return outcome if isinstance(outcome, Retried) else None


def _finished(
    key: Key, outcome: Completed, output: bytes, graph: Graph, code: FlowCode
) -> Happening:
    node = graph.nodes.get(key.node)
    check = None
    if isinstance(node, LoopNode) and isinstance(node.body, Call) and not key.part:
        check = _quick_check(node, graph, code)
    if check is None:
        return Finished(key=key, output=output, port=outcome.port, warnings=outcome.warnings)
    try:
        args, kwargs = check.arguments([from_json(output)], {}, None)
        is_done = bool(check.function(*args, **kwargs))
    except BaseException as error:  # whatever it is, the worker must not end of it
        return FailedForGood(key=key, failure=describe(error))
    return Finished(key=key, output=output, is_done=is_done)


def _ms(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // timedelta(milliseconds=1)


def _quick_check(node: LoopNode, graph: Graph, code: FlowCode) -> Task[..., Any] | None:
    """What tells whether a loop is done, if it may be asked here and now.

    A plain function may. A task has settings of its own, and may take long: it gets a job.
    """
    flow = code.get(graph.text)
    check = None if flow is None else flow.tasks.get(node.check.task)
    if check is None or check.is_async or check.context_parameter is not None:
        return None
    return check if check.name.startswith(f"{graph.name}.{node.id}.until") else None
