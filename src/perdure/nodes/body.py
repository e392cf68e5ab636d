"""The task that executes a kind on a worker: which of its methods is called, and with what."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from perdure.client.context import Context
from perdure.errors import InvalidInput, Permanent
from perdure.model.report import Report
from perdure.model.result import Pause
from perdure.model.task import Task
from perdure.nodes.config import as_config
from perdure.nodes.kind import Kind

POLL_PART = "poll"
"""The part of a node's key under which its outside party is asked."""


def kind_task(kind: Kind, name: str) -> Task[..., Any]:
    """The task of a node of this kind. It is called with the rendered config and the context."""
    function = _async_body(kind) if _has_async_method(kind) else _thread_body(kind)
    function.__name__ = function.__qualname__ = kind.name
    function.__doc__ = kind.__doc__
    return Task(function, name=name)


def _has_async_method(kind: Kind) -> bool:
    methods = (kind.execute, kind.resume, kind.poll)
    return any(inspect.iscoroutinefunction(method) for method in methods)


def _async_body(kind: Kind) -> Callable[..., Any]:
    async def body(config: Any, ctx: Context) -> Any:
        call = _call(kind, config, ctx)
        try:
            if inspect.iscoroutinefunction(call.func):
                found = await call()
            else:
                found = await asyncio.to_thread(call)
                if inspect.isawaitable(found):
                    found = await found
        except InvalidInput as error:
            raise _permanent(kind, error) from error
        return _result(kind, found, ctx)

    return body


def _thread_body(kind: Kind) -> Callable[..., Any]:
    def body(config: Any, ctx: Context) -> Any:
        call = _call(kind, config, ctx)
        try:
            found = call()
        except InvalidInput as error:
            raise _permanent(kind, error) from error
        if inspect.iscoroutine(found):
            found.close()
            raise Permanent(
                f"kind {kind.name!r}: {call.func.__name__}() returned a coroutine, but is not "
                "async itself: write 'async def'"
            )
        return _result(kind, found, ctx)

    return body


def _call(kind: Kind, config: Any, ctx: Context) -> partial[Any]:
    """The method that it is the turn of, with its arguments."""
    pause = ctx.last_pause
    if ctx.part == POLL_PART:
        if pause is None:
            raise Permanent(f"kind {kind.name!r} cannot be asked about a pause that is not there")
        return partial(kind.poll, pause.checkpoint, ctx)
    if pause is not None:
        return partial(kind.resume, pause.checkpoint, pause.report, ctx)
    return partial(kind.execute, as_config(kind, config), ctx)


def _permanent(kind: Kind, error: InvalidInput) -> Permanent:
    """What cannot be used now never will be, however often it is tried."""
    return Permanent(f"kind {kind.name!r}: {error}")


def _result(kind: Kind, found: Any, ctx: Context) -> Any:
    if ctx.part == POLL_PART:
        if found is not None and not isinstance(found, Report):
            raise Permanent(
                f"kind {kind.name!r}: poll() returns a Report or None, not {type(found).__name__}"
            )
        return msgspec.to_builtins(found)
    if isinstance(found, Pause) and found.poll is None and kind.has_poll:
        return msgspec.structs.replace(found, poll=kind.poll_every)
    return found
