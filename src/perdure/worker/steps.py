"""Stored steps of an attempt, and pauses of plain jobs.

A plain job has no log to record a pause in. Its checkpoint is stored under the claim, then the job
is parked under the same claim. A worker that crashes in between leaves the checkpoint of a pause
that never took effect: the job was never resumed, so it must pause again. The job counts such
crashes. A pause counts as over if the job was resumed with an answer, which is stored with the
resumption, or if no worker crashed since, and that is stored at once, so that later crashes do not
matter. When in doubt the job pauses again, which is safe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, StoreError
from perdure.model import check
from perdure.model.job import ClaimedJob
from perdure.model.outcome import Paused
from perdure.model.payload import Codec, as_type, from_json, to_json
from perdure.model.run import StoredStep
from perdure.model.value import Value
from perdure.model.wait import (
    STEP_PREFIX,
    PastPause,
    Report,
    ReportStatus,
    Resumption,
    answer_step,
)
from perdure.store.contract import Store
from perdure.worker.secrets import SECRET_IN_NAME

if TYPE_CHECKING:
    from perdure.worker.attempt import Attempt

_PAUSE, _RESUMED = f"{STEP_PREFIX}pause:", f"{STEP_PREFIX}resumed:"


T = TypeVar("T")

RETRY_SECONDS = 1.0

_log = logging.getLogger("perdure.worker")


async def until_answered(
    ask: Callable[[], Awaitable[T]],
    failure: str,
    is_wanted: Callable[[], bool] = lambda: True,
) -> T:
    """Call the store until it responds, or nothing wants the answer. A repeated write counts once.

    An outage of the store is no failure of the work that needs it.
    """
    while True:
        try:
            return await ask()
        except StoreError:
            if not is_wanted():
                raise
            _log.exception("%s; retrying", failure)
            await asyncio.sleep(RETRY_SECONDS)


class _Parked(Value):
    name: str
    checkpoint: Any
    crashes: int


async def save_checkpoint(store: Store, job: ClaimedJob, codec: Codec, paused: Paused) -> None:
    """Store the state that a parked job needs to resume; raises ``ClaimLost``."""
    checkpoint = from_json(codec.decode(paused.checkpoint))
    parked = _Parked(name=paused.name, checkpoint=checkpoint, crashes=job.crashes)
    # A claim has one pause at most, so a repeated write changes nothing.
    await _save(store, job, codec, f"{_PAUSE}{job.claim.epoch}", parked)


async def past_pauses(store: Store, job: ClaimedJob, codec: Codec) -> Resumption:
    """The pauses that the job was resumed from, in order."""
    steps = {step.name: step.value for step in await store.runs.load_steps(owner_of(job))}
    pauses = []
    for name, value in steps.items():
        if not name.startswith(_PAUSE):
            continue
        parked = as_type(from_json(codec.decode(value)), _Parked)
        epoch = int(name.removeprefix(_PAUSE))
        answer, mark = steps.get(answer_step(epoch)), f"{_RESUMED}{epoch}"
        if answer is None and mark not in steps:
            if parked.crashes != job.crashes:
                continue
            await _save(store, job, codec, mark, None)
        result = None if answer is None else from_json(codec.decode(answer))
        report = Report(status=ReportStatus.COMPLETED, result=result)
        pauses.append(PastPause(name=parked.name, checkpoint=parked.checkpoint, report=report))
    return Resumption(pauses=tuple(pauses))


async def _save(store: Store, job: ClaimedJob, codec: Codec, name: str, value: Any) -> None:
    plain = to_json(value, f"step {name!r}", 2**31)
    step = StoredStep(name=name, value=codec.encode(plain))
    await store.runs.save_step(job.claim, owner_of(job), step)


RESERVED_NAME = declare(
    "worker.reserved_step", "step {step!r}: names that begin with {prefix!r} are reserved"
)


class AttemptSteps:
    """The steps of one attempt, read with the first one and written under its claim."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._job = attempt.job
        self._owner = owner_of(attempt.job)
        self._store = attempt.runner.store
        self._codec = attempt.runner.codec
        self._known: dict[str, bytes] | None = None
        self._reading = asyncio.Lock()

    async def find(self, name: str) -> tuple[Any, ...]:
        self._check(name)
        async with self._reading:  # once: a second read could drop a step stored meanwhile
            if self._known is None:
                load = partial(self._store.runs.load_steps, self._owner)
                stored = await self._until_answered(load, "loading steps failed")
                self._known = {step.name: step.value for step in stored}
        return (self._read(self._known[name]),) if name in self._known else ()

    async def save(self, name: str, value: Any) -> Any:
        assert self._known is not None
        limit = self._attempt.runner.settings.payload_max_bytes
        plain = to_json(value, f"the result of step {name!r}", limit)
        self._check(name)  # again: a secret may have been resolved since
        if (masker := self._attempt.masker) is not None:
            plain = masker.json(plain)
        step = StoredStep(name=name, value=self._codec.encode(plain))
        save = partial(self._store.runs.save_step, self._job.claim, self._owner, step)
        await self._until_answered(save, "writing a step failed")
        self._known[name] = step.value
        return self._read(step.value)

    async def past_pauses(self) -> Resumption:
        """The pauses that a plain job was resumed from."""
        read = partial(past_pauses, self._store, self._job, self._codec)
        return await self._until_answered(read, "loading pauses failed")

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._attempt.runner.loop).result()

    async def _until_answered(self, ask: Callable[[], Awaitable[T]], failure: str) -> T:
        return await until_answered(ask, failure, lambda: not self._attempt.is_over)

    def _check(self, name: str) -> None:
        check.name(name, "step")
        if name.startswith(STEP_PREFIX):
            raise InvalidInput(RESERVED_NAME.fault(("name",), step=name, prefix=STEP_PREFIX))
        masker = self._attempt.masker
        if masker is not None and masker.is_in(name):
            raise InvalidInput(SECRET_IN_NAME.fault(("name",), what="step"))

    def _read(self, data: bytes) -> Any:
        return from_json(self._codec.decode(data))


def owner_of(job: ClaimedJob) -> str:
    """The owner of the steps: the same for every attempt at a job, or at a node."""
    if job.node is None:
        return job.claim.id
    # As JSON, because each part may contain any separator.
    return msgspec.json.encode((job.namespace, job.node.run, job.node.key)).decode()
