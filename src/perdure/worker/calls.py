"""The call of a body: what it brings besides its arguments, and what the body asks for with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, Permanent
from perdure.model.ids import Key, RunId
from perdure.model.job import ClaimedJob
from perdure.model.outcome import Completed, Paused
from perdure.model.payload import Codec, from_json
from perdure.model.wait import ReportStatus, Resumption
from perdure.tasks.result import CANNOT_PAUSE, Pause
from perdure.worker.results import paused_outcome
from perdure.worker.secrets import SECRET_IN_NAME, Masker, ResolvedSecrets, Secrets

NOTHING_BEFORE = Resumption()

Arguments = tuple[list[Any], dict[str, Any]]

PAUSE_OF_JOB = declare(
    "job.pause_deadline",
    "a plain job that pauses is parked until client.resume(job): it has no deadline and no poll",
    "Put the task into a flow, or leave them out",
)
INVALID_STORED_INPUT = declare("job.invalid_input", "the stored input cannot be used: {reason}")


class CallSettings(Protocol):
    """What calls need to know of their worker."""

    payload_max_bytes: int
    secrets: Secrets
    allows_scripts: bool


class BodyCall:
    """What a context tells and asks (see ``CallScope``), and what the attempt learns from it."""

    __slots__ = ("_job", "_secrets", "_settings", "asked", "inputs", "resumption")

    def __init__(
        self, job: ClaimedJob, settings: CallSettings, resumption: Resumption = NOTHING_BEFORE
    ) -> None:
        self._job = job
        self._settings = settings
        self._secrets: ResolvedSecrets | None = None
        self.resumption = resumption
        self.inputs: Mapping[str, Any] = {}
        self.asked: Paused | Completed | None = None
        """How the body asked to end. It counts, even if the body went on after that."""

    @property
    def run_id(self) -> RunId | None:
        return None if self._job.node is None else self._job.node.run

    @property
    def is_poll(self) -> bool:
        return self._job.node is not None and Key.parse(self._job.node.key).part == "poll"

    @property
    def allows_scripts(self) -> bool:
        return self._settings.allows_scripts

    @property
    def masker(self) -> Masker | None:
        """None as long as there is nothing to mask."""
        return None if self._secrets is None else self._secrets.masker

    @property
    def secret_values(self) -> tuple[str, ...]:
        return () if self._secrets is None else self._secrets.values

    def secret(self, name: str) -> str:
        if self._secrets is None:
            self._secrets = ResolvedSecrets(self._settings.secrets)
        return self._secrets.find(name)

    def pause(self, asked: Pause) -> None:
        if self.is_poll:  # it was executed to be asked for news, and has none but this pause
            self.asked = Completed(output=b"null")
            return
        outcome = paused_outcome(asked, self._settings.payload_max_bytes)
        refuse_pause(self._job, outcome, self.masker)
        if self.asked is None:
            self.asked = outcome


def refuse_pause(job: ClaimedJob, paused: Paused, masker: Masker | None) -> None:
    """Say so if this job cannot pause like that."""
    if masker is not None and masker.is_in(paused.name):
        raise InvalidInput(SECRET_IN_NAME.fault(("name",), what="pause"))
    if job.node is None:
        if paused.deadline is not None or paused.poll is not None:
            raise Permanent(PAUSE_OF_JOB.fault())
    elif Key.parse(job.node.key).part:
        raise Permanent(CANNOT_PAUSE.fault(key=job.node.key))


def before_retry(before: Resumption, failures: int) -> Resumption:
    """What came before, for a job that failed so often since it was put into the queue.

    If it went on from a report that the outside work failed, that work is begun again.
    """
    if not failures or not before.pauses:
        return before
    *kept, last = before.pauses
    if last.report.status is not ReportStatus.FAILED:
        return before
    return replace(before, pauses=tuple(kept))


def stored_call(job: ClaimedJob, codec: Codec) -> tuple[list[Any], dict[str, Any], Resumption]:
    """A call as plain values, and what came before it. What cannot be read never will be."""
    data = codec.decode(job.input)
    try:
        args, kwargs, *more = from_json(data)
        before = msgspec.convert(more[0], Resumption) if more else NOTHING_BEFORE
    except (ValueError, TypeError, RecursionError) as error:
        raise Permanent(INVALID_STORED_INPUT.fault(reason=str(error))) from error
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise Permanent(INVALID_STORED_INPUT.fault(reason="it is not [[...], {...}]"))
    return args, kwargs, before
