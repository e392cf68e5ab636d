"""Fakes that replace tasks while a flow is tested."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, NotFaked, PerdureError, Permanent
from perdure.flows.built import BuiltFlow
from perdure.model import check
from perdure.model.graph import Call, LoopNode, Node, TaskNode
from perdure.model.ids import Key
from perdure.model.payload import Converter
from perdure.model.retry import Retry
from perdure.tasks.context import AsyncContext, BaseContext, Context
from perdure.tasks.resource import Resources
from perdure.tasks.task import PlainFunction, Task

NO_OUTCOME = declare("testing.no_outcome", "in_turn() needs at least one outcome")
NESTED_IN_TURN = declare(
    "testing.nested_in_turn", "in_turn() within in_turn()", "Give all outcomes to one of them"
)
FAKE_FOR_NOTHING = declare(
    "testing.fake_for_nothing",
    "there is a fake for {target}, but no task and no node of that name[; known: {known}]",
)


Target = str | Callable[..., Any]
"""A task, a function that a flow calls, a task name, or a node id."""


@dataclass(frozen=True, slots=True)
class InTurn:
    """One outcome per call; the last one repeats."""

    outcomes: tuple[Any, ...]


def in_turn(*outcomes: Any) -> InTurn:
    """Return a fake with one outcome per call: ``in_turn(ConnectionError("busy"), "sent")``.

    The last outcome repeats.
    """
    if not outcomes:
        raise InvalidInput(NO_OUTCOME.fault())
    if any(isinstance(each, InTurn) for each in outcomes):
        raise InvalidInput(NESTED_IN_TURN.fault())
    return InTurn(outcomes)


class Fake:
    """The fake of one target. Thread-safe."""

    def __init__(self, outcome: Any) -> None:
        self._outcomes = outcome.outcomes if isinstance(outcome, InTurn) else (outcome,)
        self._calls = 0
        self._lock = threading.Lock()

    def outcome(self) -> Any:
        """The outcome of the next call."""
        with self._lock:
            outcome = self._outcomes[min(self._calls, len(self._outcomes) - 1)]
            self._calls += 1
            return outcome


class Fakes:
    """Fakes by target. The most specific applies: a part of a node, then a node, then a task."""

    def __init__(self) -> None:
        self._by_target: dict[Target, Fake] = {}

    def set(self, target: Any, outcome: Any) -> None:
        self._by_target[_checked(target)] = Fake(outcome)

    def find(self, key: Key | None, task: Task[..., Any]) -> Fake | None:
        names: list[Target] = []
        if key is not None and not key.part:  # a poll or an undo is not the node's own work
            names = [key.text, key.node]
        names += [task.name, task.function]
        return next((self._by_target[name] for name in names if name in self._by_target), None)

    def refuse_unknown(self, names: Iterable[str], functions: Iterable[Callable[..., Any]]) -> None:
        """Refuse fakes of unknown targets."""
        known, called = set(names), set(functions)
        for target in self._by_target:
            if target in called or (isinstance(target, str) and _node_of(target) in known):
                continue
            fault = FAKE_FOR_NOTHING.fault(target=_target_text(target), known=tuple(sorted(known)))
            raise InvalidInput(fault)


def produce(outcome: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
    """Produce an outcome: raise an exception, call a function, or return a value."""
    if isinstance(outcome, BaseException):
        raise outcome
    if inspect.isclass(outcome) and issubclass(outcome, BaseException):
        raise outcome
    return outcome(*args, **kwargs) if callable(outcome) else outcome


def _checked(target: Any) -> Target:
    if isinstance(target, str):
        return target
    if callable(target):
        function: Callable[..., Any] = getattr(target, "function", target)  # a task has one
        return function
    wanted = "a task, a function that a flow calls, or the id of a node"
    raise check.wrong_type(target, "target", wanted)


def _node_of(text: str) -> str:
    """The node of a key such as ``pack[7]``; other text is returned unchanged."""
    try:
        return Key.parse(text).node
    except InvalidInput:
        return text


def _target_text(target: Target) -> str:
    return repr(target if isinstance(target, str) else getattr(target, "__name__", target))


INWARD_NODE_TYPES = frozenset({"match", "switch", "check", "note", "external"})
"""Node types without effects outside their run."""
_REAL: Any = object()


@dataclass(frozen=True, slots=True)
class MadeCall:
    """An execution of a task, real or faked."""

    task: str
    args: tuple[Any, ...]
    """As passed to the function, without the context and resources."""
    kwargs: Mapping[str, Any]
    run: str | None
    key: str | None
    """The node, with its iteration or item; None for a standalone job."""
    attempt: int
    is_fake: bool


class CallRecorder:
    """Wraps the tasks of a kit: applies fakes and records calls."""

    def __init__(self, *, fakes_only: bool) -> None:
        self.fakes = Fakes()
        self.calls: list[MadeCall] = []
        self.refused: list[PerdureError] = []
        """Calls without a fake, if the kit allows only fakes, or without their resources."""
        self._fakes_only = fakes_only
        self._tasks: dict[str, Task[..., Any]] = {}
        self._flows: dict[str, BuiltFlow] = {}
        self._nodes: set[str] = set()

    def task(self, task: Task[..., Any]) -> Task[..., Any]:
        self._tasks[task.name] = task
        return RecordedTask(task, self, is_outward=True)

    def flow(self, flow: BuiltFlow) -> BuiltFlow:
        """Return the flow and its child flows with their tasks wrapped."""
        if (known := self._flows.get(flow.graph.text)) is not None:
            return known
        self._nodes |= {node.id for node in flow.graph.nodes.values() if _work_of(node)}
        own = _own_calls(flow)
        quick = {node.check.task for node in _loops(flow)}
        tasks = {
            name: task if name in quick else RecordedTask(task, self, is_outward=name not in own)
            for name, task in flow.tasks.items()
        }
        self._tasks.update(flow.tasks)
        children = {text: self.flow(child) for text, child in flow.flows.items()}
        wrapped = BuiltFlow(flow.graph.definition, tasks, children, is_loaded=flow.is_loaded)
        self._flows[flow.graph.text] = wrapped
        return wrapped

    def refuse_unknown_fakes(self) -> None:
        functions = [task.function for task in self._tasks.values()]
        self.fakes.refuse_unknown({*self._nodes, *self._tasks}, functions)

    def enter(
        self,
        task: RecordedTask,
        ctx: BaseContext,
        call: tuple[list[Any], dict[str, Any]],
        resources: Resources,
    ) -> Any:
        """Record a call; return the outcome of its fake, or ``_REAL``.

        Adds the context to the arguments and, for a real call, the resources.
        """
        args, kwargs = call
        key = _key_of(ctx)
        fake = self.fakes.find(key, task.original)
        made = MadeCall(
            task=task.name,
            args=tuple(args),
            kwargs=dict(kwargs),
            run=ctx.run_id,
            key=None if key is None else key.text,
            attempt=ctx.attempt,
            is_fake=fake is not None,
        )
        self.calls.append(made)
        if fake is not None:
            task.original.inject(args, kwargs, ctx, None)
            return fake.outcome()
        if self._fakes_only and task.is_outward:
            refusal = NotFaked(task=task.name, key=made.key)
            self.refused.append(refusal)
            raise Permanent(*refusal.faults) from refusal
        try:
            task.original.inject(args, kwargs, ctx, resources)
        except Permanent as error:
            self.refused.append(error)
            raise
        return _REAL


class RecordedTask(Task[..., Any]):
    """A copy of a task whose calls go through a :class:`CallRecorder`."""

    def __init__(
        self, original: Task[..., Any], recorder: CallRecorder, *, is_outward: bool
    ) -> None:
        super().__init__(
            self._execute_async if original.is_async else self._execute,
            name=original.name,
            queue=original.queue,
            priority=original.priority,
            retry=_steady(original.retry),
            timeout=original.timeout,
            tags=original.tags,
            limits=original.limits,
        )
        self.original = original
        self.destinations = original.destinations
        self.is_outward = is_outward
        """Whether it may have effects outside its run, so that ``fakes_only`` requires a fake."""
        self._recorder = recorder

    @cached_property
    def context_parameter(self) -> str | None:
        """It always takes a context, to know the node it runs for."""
        return "ctx"

    @cached_property
    def result_converter(self) -> Converter | None:
        return self.original.result_converter

    @cached_property
    def input_signature(self) -> inspect.Signature:
        return self.original.input_signature

    def convert(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.original.convert(args, kwargs)

    def inject(
        self, args: list[Any], kwargs: dict[str, Any], context: Any, resources: Resources | None
    ) -> None:
        # The original's resources are injected when it turns out that no fake replaces it.
        args[:] = [context, list(args), dict(kwargs), resources]
        kwargs.clear()

    def _execute(
        self, ctx: Context, args: list[Any], kwargs: dict[str, Any], resources: Resources
    ) -> Any:
        outcome = self._recorder.enter(self, ctx, (args, kwargs), resources)
        if outcome is _REAL:
            return self.original.function(*args, **kwargs)
        made = produce(outcome, args, kwargs)
        return asyncio.run(_awaited(made)) if inspect.isawaitable(made) else made

    async def _execute_async(
        self, ctx: AsyncContext, args: list[Any], kwargs: dict[str, Any], resources: Resources
    ) -> Any:
        outcome = self._recorder.enter(self, ctx, (args, kwargs), resources)
        if outcome is _REAL:
            return await self.original.function(*args, **kwargs)
        made = produce(outcome, args, kwargs)
        return await made if inspect.isawaitable(made) else made


async def _awaited(made: Awaitable[Any]) -> Any:
    return await made


def _steady(retry: Retry | None) -> Retry | None:
    """Without jitter, so that tests see the same times every run."""
    return None if retry is None else replace(retry, jitter=False)


def _key_of(ctx: BaseContext) -> Key | None:
    if ctx.node is None:
        return None
    return Key(node=ctx.node, iteration=ctx.iteration, item=ctx.item, part=ctx.part)


def _work_of(node: Node) -> Call | None:
    """The call that does a node's own work."""
    work = getattr(node, "call", None) or getattr(node, "body", None)
    return work if isinstance(work, Call) else None


def _own_calls(flow: BuiltFlow) -> set[str]:
    """The flow's internal calls: plain functions, and node types without outside effects."""
    plain = {name for name, task in flow.tasks.items() if isinstance(task, PlainFunction)}
    nodes = flow.graph.nodes.values()
    inward = {
        node.call.task
        for node in nodes
        if isinstance(node, TaskNode) and node.type in INWARD_NODE_TYPES
    }
    return plain | inward


def _loops(flow: BuiltFlow) -> Iterator[LoopNode]:
    """Loops whose check is a plain function, called without a job."""
    for node in flow.graph.nodes.values():
        if isinstance(node, LoopNode) and isinstance(flow.tasks[node.check.task], PlainFunction):
            yield node
