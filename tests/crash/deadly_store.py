"""A real store that kills its process at a point of a worker's work on one node."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any, Literal, cast

from perdure.model.event import ItemCompleted, IterationCompleted, NodeCompleted, decode_event
from perdure.model.job import Claimed
from perdure.model.run import CommitAnswer, RunCommit
from perdure.store.contract import ClaimRequest, Store

Point = Literal["claimed", "executed", "committed"]


class DeadlyStore:
    """``claimed``: before the body begins; ``executed``: before its outcome is written."""

    def __init__(self, store: Store, point: Point, key: str) -> None:
        self._store = store
        self._point = point
        self._key = key

    def as_store(self) -> Store:
        return cast(Store, self)

    def twin(self) -> Store:
        return DeadlyStore(self._store.twin(), self._point, self._key).as_store()

    async def claim_jobs(self, request: ClaimRequest) -> Claimed:
        claimed = await self._store.claim_jobs(request)
        keys = {job.node.key for job in claimed.jobs if job.node is not None}
        self._die_if(self._point == "claimed" and self._key in keys)
        return claimed

    async def commit_runs(
        self, commits: Sequence[RunCommit], lanes: Sequence[str] = ()
    ) -> CommitAnswer:
        is_meant = any(self._key in completed_by(commit) for commit in commits)
        self._die_if(self._point == "executed" and is_meant)
        answer = await self._store.commit_runs(commits, lanes)
        self._die_if(self._point == "committed" and is_meant)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

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
