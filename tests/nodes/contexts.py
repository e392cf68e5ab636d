"""Contexts as a worker makes them, for kinds that are executed without one."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from perdure.model.ids import JobId, Key, Part, RunId
from perdure.model.job import Claim, ClaimedJob, NodeRef, Progress
from perdure.model.partition import Partition
from perdure.model.wait import PastPause, Report, Resumption
from perdure.tasks.context import AbortSignal, AsyncContext, Context
from perdure.tasks.result import Pause


@dataclass
class Scope:
    """What a call brings besides its arguments."""

    inputs: Mapping[str, Any] = field(default_factory=dict)
    resumption: Resumption = field(default_factory=Resumption)
    allows_scripts: bool = False
    pauses: list[Pause] = field(default_factory=list)

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "secret": self.secret,
            "pause": self.pause,
            "inputs": self.inputs,
            "resumption": self.resumption,
            "allows_scripts": self.allows_scripts,
        }

    def secret(self, name: str) -> str:
        raise LookupError(name)

    def pause(self, asked: Pause) -> None:
        self.pauses.append(asked)


class NoSteps:
    async def find(self, name: str) -> tuple[Any, ...]:
        return ()

    async def save(self, name: str, value: Any) -> Any:
        return value

    def wait(self, act: Coroutine[Any, Any, Any]) -> Any:
        raise AssertionError("no steps are taken here")


def context(
    scope: Scope | None = None,
    *,
    run: str = "order-3",
    part: Part = "",
    abort: AbortSignal | None = None,
    progress: list[Progress] | None = None,
) -> Context:
    told = progress if progress is not None else []
    scope = scope or Scope()
    return Context(
        _job(run, part),
        "worker-1",
        told.append,
        abort or AbortSignal(),
        NoSteps(),
        **scope.arguments,
    )


def async_context(scope: Scope | None = None, *, part: Part = "") -> AsyncContext:
    scope, job = scope or Scope(), _job("r1", part)
    return AsyncContext(
        job, "worker-1", lambda _: None, AbortSignal(), NoSteps(), **scope.arguments
    )


def _job(run: str, part: Part) -> ClaimedJob:
    return ClaimedJob(
        claim=Claim(id=JobId("j1"), epoch=1),
        namespace="default",
        partition=Partition(queue="default", task="orders.ask"),
        input=b"[[],{}]",
        attempt=1,
        failures=0,
        snoozes=0,
        max_attempts=None,
        policy=None,
        group=None,
        deadline_at=None,
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
        node=NodeRef(run=RunId(run), key=Key(node="ask", part=part).text),
    )


def paused_before(checkpoint: Any, report: Report) -> Scope:
    """The scope of a body that goes on after a pause."""
    past = PastPause(name="", checkpoint=checkpoint, report=report)
    return Scope(resumption=Resumption(pauses=(past,)))
