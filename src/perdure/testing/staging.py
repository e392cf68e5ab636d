"""Tasks on a stage: each call is noted, and a fake may take the place of the body.

A flow on a stage has the same version as before, for code is no part of it. Bodies that would run
in a process of their own run in a thread here, where a fake can reach them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from perdure.client.context import Context
from perdure.errors import NotFaked, Permanent
from perdure.model.flow import BuiltFlow
from perdure.model.graph import Call, LoopNode, Node, TaskNode
from perdure.model.key import Key
from perdure.model.payload import Converter
from perdure.model.retry import Retry
from perdure.model.task import PlainFunction, Task
from perdure.testing.fakes import Fakes, come_to

INWARD_KINDS = frozenset({"match", "switch", "check", "note", "outside"})
"""Kinds that touch nothing outside their run."""
_REAL: Any = object()


@dataclass(frozen=True, slots=True)
class MadeCall:
    """One execution of a task, real or faked."""

    task: str
    args: tuple[Any, ...]
    """As the function gets them, without the context."""
    kwargs: Mapping[str, Any]
    run: str | None
    key: str | None
    """The node, and of a loop or a map which part of it; None for a plain job."""
    attempt: int
    is_fake: bool


class Stage:
    """What one kit knows of the tasks that it executes."""

    def __init__(self, *, fakes_only: bool) -> None:
        self.fakes = Fakes()
        self.calls: list[MadeCall] = []
        self.refused: list[NotFaked] = []
        """Calls without a fake, where only fakes may be called."""
        self._fakes_only = fakes_only
        self._tasks: dict[str, Task[..., Any]] = {}
        self._flows: dict[str, BuiltFlow] = {}
        self._nodes: set[str] = set()

    def task(self, task: Task[..., Any]) -> Task[..., Any]:
        self._tasks[task.name] = task
        return StagedTask(task, self, is_outward=True)

    def flow(self, flow: BuiltFlow) -> BuiltFlow:
        """The same flow, with the flows that it starts, whose tasks are on this stage."""
        if (known := self._flows.get(flow.graph.text)) is not None:
            return known
        self._nodes |= {node.id for node in flow.graph.nodes.values() if _work_of(node)}
        own = _own_calls(flow)
        quick = {node.check.task for node in _loops(flow)}
        tasks = {
            name: task if name in quick else StagedTask(task, self, is_outward=name not in own)
            for name, task in flow.tasks.items()
        }
        self._tasks.update(flow.tasks)
        children = {text: self.flow(child) for text, child in flow.flows.items()}
        staged = BuiltFlow(flow.graph.definition, tasks, children)
        self._flows[flow.graph.text] = staged
        return staged

    def refuse_unknown_fakes(self) -> None:
        functions = [task.function for task in self._tasks.values()]
        self.fakes.refuse_unknown({*self._nodes, *self._tasks}, functions)

    def enter(self, staged: StagedTask, ctx: Context, call: tuple[Any, Any]) -> Any:
        """Note a call; what a fake makes of it, or ``_REAL``."""
        args, kwargs = call
        key = _key_of(ctx)
        fake = self.fakes.find(key, staged.original)
        made = MadeCall(
            task=staged.name,
            args=tuple(each for each in args if each is not ctx),
            kwargs={name: each for name, each in kwargs.items() if each is not ctx},
            run=ctx.run_id,
            key=None if key is None else key.text,
            attempt=ctx.attempt,
            is_fake=fake is not None,
        )
        self.calls.append(made)
        if fake is not None:
            return fake.outcome()
        if self._fakes_only and staged.is_outward:
            refusal = NotFaked(task=staged.name, key=made.key)
            self.refused.append(refusal)
            raise Permanent(*refusal.faults) from refusal
        return _REAL


class StagedTask(Task[..., Any]):
    """A task with the settings of another one, whose calls go through a stage."""

    def __init__(self, original: Task[..., Any], stage: Stage, *, is_outward: bool) -> None:
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
        self.is_outward = is_outward
        """Whether it may reach beyond its run: a fake must stand for it where only fakes may."""
        self._stage = stage

    @cached_property
    def context_parameter(self) -> str | None:
        """It always wants one, to know which node it is executed for."""
        return "ctx"

    @cached_property
    def result_converter(self) -> Converter | None:
        return self.original.result_converter

    def arguments(
        self, args: list[Any], kwargs: dict[str, Any], context: Any
    ) -> tuple[list[Any], dict[str, Any]]:
        return [context, *self.original.arguments(args, kwargs, context)], {}

    def _execute(self, ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
        outcome = self._stage.enter(self, ctx, (args, kwargs))
        if outcome is _REAL:
            return self.original.function(*args, **kwargs)
        made = come_to(outcome, args, kwargs)
        return asyncio.run(_awaited(made)) if inspect.isawaitable(made) else made

    async def _execute_async(self, ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
        outcome = self._stage.enter(self, ctx, (args, kwargs))
        if outcome is _REAL:
            return await self.original.function(*args, **kwargs)
        made = come_to(outcome, args, kwargs)
        return await made if inspect.isawaitable(made) else made


async def _awaited(made: Awaitable[Any]) -> Any:
    return await made


def _steady(retry: Retry | None) -> Retry | None:
    """Without its random part: a test should see the same times again."""
    return None if retry is None else replace(retry, jitter=False)


def _key_of(ctx: Context) -> Key | None:
    if ctx.node is None:
        return None
    return Key(node=ctx.node, iteration=ctx.iteration, item=ctx.item, part=ctx.part)


def _work_of(node: Node) -> Call | None:
    """What a node calls for its own work."""
    work = getattr(node, "call", None) or getattr(node, "body", None)
    return work if isinstance(work, Call) else None


def _own_calls(flow: BuiltFlow) -> set[str]:
    """What belongs to the flow itself: its plain functions, and kinds that stay within the run."""
    plain = {name for name, task in flow.tasks.items() if isinstance(task, PlainFunction)}
    nodes = flow.graph.nodes.values()
    inward = {
        node.call.task for node in nodes if isinstance(node, TaskNode) and node.kind in INWARD_KINDS
    }
    return plain | inward


def _loops(flow: BuiltFlow) -> Iterator[LoopNode]:
    """Loops whose check is a function of theirs, which is asked without a job."""
    for node in flow.graph.nodes.values():
        if isinstance(node, LoopNode) and isinstance(flow.tasks[node.check.task], PlainFunction):
            yield node
