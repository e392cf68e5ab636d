"""The task that executes a node type on a worker: picks its method and prepares its arguments."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, Permanent
from perdure.model.wait import Report
from perdure.nodes.config import as_config
from perdure.tasks.context import AsyncContext, BaseContext, Context
from perdure.tasks.node_type import NodeType
from perdure.tasks.resource import declared_resources
from perdure.tasks.result import Pause
from perdure.tasks.task import Task, refuse_other_context

POLL_PART, CANCEL_PART = "poll", "cancel"
"""The parts of a node's key for jobs that poll or cancel its external work."""

RETURNED_COROUTINE = declare(
    "node_type.returned_coroutine",
    "node type {type!r}: {method}() returned a coroutine, but is not async",
    "Write 'async def'",
)
NO_PAUSE_TO_POLL = declare(
    "node_type.no_pause_to_poll",
    "node type {type!r} was polled or cancelled, but its node is not paused",
)
INVALID_POLL_RESULT = declare(
    "node_type.invalid_poll_result",
    "node type {type!r}: poll() returns a Report or None, not {found}",
)


def node_type_task(node_type: NodeType, name: str) -> Task[..., Any]:
    """The task of a node of this type. It is called with the rendered config and the context."""

    methods = (node_type.execute, node_type.resume, node_type.poll, node_type.cancel)
    for method in methods:
        refuse_other_context(method, f"{method.__name__}() of node type {node_type.name!r}")

    def call_of(config: Any, ctx: BaseContext) -> partial[Any]:
        """The method to call and its arguments, without the context."""
        pause = ctx.last_pause
        if ctx.part in (POLL_PART, CANCEL_PART):
            if pause is None:
                raise Permanent(NO_PAUSE_TO_POLL.fault(type=node_type.name))
            method = node_type.poll if ctx.part == POLL_PART else node_type.cancel
            return partial(method, pause.checkpoint)
        if pause is not None:
            return partial(node_type.resume, pause.checkpoint, pause.report)
        return partial(node_type.execute, as_config(node_type, config))

    def result_of(found: Any, ctx: BaseContext) -> Any:
        if ctx.part == CANCEL_PART:
            return None
        if ctx.part == POLL_PART:
            if found is not None and not isinstance(found, Report):
                fault = INVALID_POLL_RESULT.fault(type=node_type.name, found=type(found).__name__)
                raise Permanent(fault)
            return msgspec.to_builtins(found)
        if isinstance(found, Pause):
            poll = node_type.poll_every if found.poll is None and node_type.has_poll else found.poll
            return msgspec.structs.replace(found, poll=poll, cancels=node_type.has_cancel)
        return found

    async def on_the_loop(config: Any, ctx: AsyncContext) -> Any:
        call = call_of(config, ctx)
        try:
            if inspect.iscoroutinefunction(call.func):
                found = await call(ctx)
            else:
                found = await asyncio.to_thread(call, ctx.in_thread())
                if inspect.isawaitable(found):
                    found = await found
        except InvalidInput as error:
            raise Permanent(*error.faults) from error  # a retry would not help
        return result_of(found, ctx)

    def in_a_thread(config: Any, ctx: Context) -> Any:
        call = call_of(config, ctx)
        try:
            found = call(ctx)
        except InvalidInput as error:
            raise Permanent(*error.faults) from error  # a retry would not help
        if inspect.iscoroutine(found):
            found.close()
            raise Permanent(
                RETURNED_COROUTINE.fault(type=node_type.name, method=call.func.__name__)
            )
        return result_of(found, ctx)

    is_async = any(map(inspect.iscoroutinefunction, methods))
    function: Callable[..., Any] = on_the_loop if is_async else in_a_thread
    function.__name__ = function.__qualname__ = node_type.name
    function.__doc__ = node_type.__doc__
    made: Task[..., Any] = Task(function, name=name)
    made.destinations = node_type.destinations_of
    made.reads = declared_resources(node_type.resources, node_type.name)
    return made
