"""A real store that kills its process at a point of a worker's work on one node."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, Literal, cast

from perdure.model.event import ItemCompleted, IterationCompleted, NodeCompleted, decode_event
from perdure.model.run import RunCommit
from perdure.store.contract import Store
from perdure.testing.wrapped_store import wrap_part

Point = Literal["claimed", "executed", "committed"]


class DeadlyStore:
    """``claimed``: before the body begins; ``executed``: before its outcome is written."""

    def __init__(self, store: Store, point: Point, key: str) -> None:
        self._store = store
        self._point = point
        self._key = key

    def as_store(self) -> Store:
        return cast(Store, self)

    def clone(self) -> Store:
        return DeadlyStore(self._store.clone(), self._point, self._key).as_store()

    @property
    def jobs(self) -> Any:
        return wrap_part("jobs", self._store.jobs, self._around)

    @property
    def runs(self) -> Any:
        return wrap_part("runs", self._store.runs, self._around)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _around(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        is_meant = name == "runs.commit" and any(
            self._key in completed_by(each) for each in args[0]
        )
        self._die_if(self._point == "executed" and is_meant)
        answer = await method(*args, **kwargs)
        self._die_if(self._point == "committed" and is_meant)
        if name == "jobs.claim":
            keys = {job.node.key for job in answer.jobs if job.node is not None}
            self._die_if(self._point == "claimed" and self._key in keys)
        return answer

    def _die_if(self, is_time: bool) -> None:
        if is_time:
            os.kill(os.getpid(), signal.SIGKILL)


def completed_by(commit: RunCommit) -> set[str]:
    """The keys that a commit completes."""
    events = (decode_event(commit.run, 1, event.data) for event in commit.events)
    return {
        event.node if isinstance(event, NodeCompleted) else event.key
        for event in events
        if isinstance(event, NodeCompleted | ItemCompleted | IterationCompleted)
    }
