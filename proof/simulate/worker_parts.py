"""Parts of a worker that use threads, as they are when there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from perdure.worker import service
from perdure.worker.leases import STOP_SECONDS, LeaseKeeper
from perdure.worker.steps import AttemptSteps
from proof.simulate.actors import ACTING, Actor


class LeaseKeeperOnLoop(LeaseKeeper):
    """The keeper with its thread being an actor of its own: it may freeze when others do not."""

    def start(self) -> None:
        keeper = Actor(ACTING.get().process, "leases")
        task = asyncio.get_running_loop().create_task
        self._keeping = keeper.context().run(task, self._keep())

    async def stop(self) -> None:
        self._stopping.set()
        await asyncio.wait([self._keeping], timeout=STOP_SECONDS)
        if not self._keeping.done():
            self._keeping.cancel()
            await asyncio.wait([self._keeping])


def at_once(act: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that has nothing to wait for, but may let others have a turn."""
    try:
        while act.send(None) is None:
            pass
    except StopIteration as end:
        return end.value
    act.close()
    raise AssertionError(f"{act!r} waits, where nothing can be waited for")


def _wait(self: AttemptSteps, act: Coroutine[Any, Any, Any]) -> Any:
    return at_once(act)


@contextmanager
def threadless() -> Iterator[None]:
    """Let workers do without threads within the block."""
    changes: list[tuple[Any, str, Any]] = [
        (service, "LeaseKeeper", LeaseKeeperOnLoop),
        (AttemptSteps, "wait", _wait),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
