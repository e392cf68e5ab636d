"""Steps: results that a body stores once, and gets back whenever it is executed again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.job import ClaimedJob
from perdure.model.payload import from_json, to_json
from perdure.model.report import Resumption
from perdure.model.run import StoredStep
from perdure.store.contract import Store
from perdure.worker.attempt import Attempt, Crew
from perdure.worker.masking import SECRET_IN_NAME
from perdure.worker.parking import OWN_PREFIX, past_pauses

RESERVED_NAME = declare(
    "worker.reserved_step", "step {step!r}: names that begin with {prefix!r} are reserved"
)


class AttemptSteps:
    """The steps of one attempt, read when the first is asked for and written under its claim."""

    def __init__(
        self, store: Store, crew: Crew, attempt: Attempt, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._store = store
        self._crew = crew
        self._attempt = attempt
        self._job = attempt.job
        self._loop = loop
        self._known: dict[str, bytes] | None = None
        self._reading = asyncio.Lock()

    async def find(self, name: str) -> tuple[Any, ...]:
        self._check(name)
        async with self._reading:  # once, or one step would forget what another has stored
            if self._known is None:
                stored = await self._store.runs.load_steps(owner_of(self._job))
                self._known = {step.name: step.value for step in stored}
        return (self._read(self._known[name]),) if name in self._known else ()

    async def save(self, name: str, value: Any) -> Any:
        assert self._known is not None
        plain = to_json(value, f"the result of step {name!r}", self._crew.payload_max_bytes)
        self._check(name)  # anew: a secret may have been resolved since
        if (masker := self._attempt.masker) is not None:
            plain = masker.json(plain)
        step = StoredStep(name=name, value=self._crew.codec.encode(plain))
        await self._store.runs.save_step(self._job.claim, owner_of(self._job), step)
        self._known[name] = step.value
        return self._read(step.value)

    async def past_pauses(self) -> Resumption:
        """Of a plain job: the pauses that it was resumed from."""
        return await past_pauses(self._store, self._job, owner_of(self._job), self._crew.codec)

    def wait(self, act: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result()

    def _check(self, name: str) -> None:
        check.name(name, "step")
        if name.startswith(OWN_PREFIX):
            raise InvalidInput(RESERVED_NAME.fault(("name",), step=name, prefix=OWN_PREFIX))
        masker = self._attempt.masker
        if masker is not None and masker.is_in(name):
            raise InvalidInput(SECRET_IN_NAME.fault(("name",), what="step"))

    def _read(self, data: bytes) -> Any:
        return from_json(self._crew.codec.decode(data))


def owner_of(job: ClaimedJob) -> str:
    """Whose steps they are: the same for every execution of a job, or of a node."""
    if job.node is None:
        return job.claim.id
    # As JSON, because any of them may contain whatever character were to stand between them.
    return msgspec.json.encode((job.namespace, job.node.run, job.node.key)).decode()
