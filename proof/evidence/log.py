"""The evidence log: what tasks and clients experienced, recorded outside the store.

One line of JSON each, appended by one ``write`` call, so that a line exists once the call has
returned even if the process is killed right after. Any number of processes may share a file. Each
line starts with a newline: one truncated by a full disk corrupts no other.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perdure import clock
from perdure.model.client_event import ClientEvent
from perdure.model.job import DEFAULT_NAMESPACE, ClaimedJob
from perdure.model.value import Value

if TYPE_CHECKING:
    from perdure.tasks.context import BaseContext

NONCE_PATTERN = rb"wit-[0-9a-f]{32}"


class BodyStarted(Value, tag="began", omit_defaults=True):
    """A task started. ``nonce`` identifies this execution; the task includes it in its output."""

    nonce: str
    at: float
    namespace: str
    job: str
    epoch: int
    attempt: int
    task: str
    worker: str
    idempotency_key: str
    run: str = ""
    key: str = ""
    flow: str = ""
    """Name and version of the flow, for a job of a run."""
    limits: tuple[str, ...] = ()
    """The limit keys that it counts under while it runs."""


class BodyEnded(Value, tag="ended", omit_defaults=True):
    nonce: str
    at: float
    error: str = ""
    """The type of its exception; empty if it returned."""
    is_signed: bool = False
    """Whether the task read the nonce, so that its output has it."""


class Accepted(Value, tag="accepted", omit_defaults=True):
    """``submit`` or ``enqueue`` returned: from here on the work must not be lost."""

    at: float
    namespace: str
    run: str = ""
    job: str = ""


class Refused(Value, tag="refused", omit_defaults=True):
    """A call raised, and must not have started anything."""

    at: float
    namespace: str
    errors: tuple[str, ...]
    """The type of the error, and its base types."""
    run: str = ""
    job: str = ""


class CommandSent(Value, tag="command", omit_defaults=True):
    """An action on a run: ``signal``, ``decide``, ``report``, ``cancel`` …

    Without a run, on a job, whose id is the key.
    """

    at: float
    namespace: str
    command: str
    run: str
    key: str = ""
    """The node or signal."""
    by: str = ""
    nonce: str = ""
    """Included in the payload, by which its event is found."""
    errors: tuple[str, ...] = ()
    """Why it was refused, as in ``Refused``."""


class EndSeen(Value, tag="end_seen", omit_defaults=True):
    """A client saw how a run or job ended: from here on that is final."""

    at: float
    namespace: str
    status: str
    run: str = ""
    job: str = ""


class EventSeen(Value, tag="event", omit_defaults=True):
    """A client got an event of a job or a run. ``follower`` is the same after a restart."""

    at: float
    namespace: str
    follower: str
    name: str
    """The event's type."""
    event_at: datetime
    cursor: str
    run: str = ""
    job: str = ""
    node: str = ""


class Requeued(Value, tag="requeued"):
    """A stopping worker requeued a job unfinished."""

    at: float
    job: str
    attempt: int


Line = BodyStarted | BodyEnded | Accepted | Refused | CommandSent | EndSeen | EventSeen | Requeued

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


class Execution:
    """One execution of a task, as recorded."""

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce
        self.is_signed = False

    @property
    def nonce(self) -> str:
        """The nonce for the task's output. A task that signs its output must do so every time."""
        self.is_signed = True
        return self._nonce


class EvidenceLog:
    """Writes to one file. Cheap to create: tasks in child processes create their own."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        namespace: str = DEFAULT_NAMESPACE,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.path = Path(path)
        self.namespace = namespace
        # One clock for all processes of this machine: Linux counts it from boot.
        self._now = now or clock.monotonic
        self._file: int | None = None
        self._pid = 0

    @contextmanager
    def execution(self, ctx: BaseContext, limits: Sequence[str] = ()) -> Iterator[Execution]:
        """Wraps a whole task: records that it started, and that it ended."""
        # Epochs are not part of the public context.
        with self.work_on(ctx._job, ctx.worker, ctx.idempotency_key, limits) as execution:
            yield execution

    @contextmanager
    def work_on(
        self, job: ClaimedJob, worker: str, idempotency_key: str, limits: Sequence[str] = ()
    ) -> Iterator[Execution]:
        """Wraps the work on a claimed job: records that it started, and that it ended."""
        execution = Execution(new_nonce())
        self._append(
            BodyStarted(
                nonce=execution._nonce,
                at=self._now(),
                namespace=job.namespace,
                job=job.claim.id,
                epoch=job.claim.epoch,
                attempt=job.attempt,
                task=job.partition.task,
                worker=worker,
                idempotency_key=idempotency_key,
                run="" if job.node is None else job.node.run,
                key="" if job.node is None else job.node.key,
                flow=job.partition.flow,
                limits=(*job.partition.keys, *limits),
            )
        )
        error = ""
        try:
            yield execution
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            self._append(
                BodyEnded(
                    nonce=execution._nonce,
                    at=self._now(),
                    error=error,
                    is_signed=execution.is_signed,
                )
            )

    def accepted(self, *, run: str = "", job: str = "") -> None:
        self._append(Accepted(at=self._now(), namespace=self.namespace, run=run, job=job))

    def refused(self, error: BaseException, *, run: str = "", job: str = "") -> None:
        errors = types_of(error)
        self._append(
            Refused(at=self._now(), namespace=self.namespace, errors=errors, run=run, job=job)
        )

    def command_sent(
        self,
        command: str,
        run: str,
        key: str = "",
        *,
        nonce: str = "",
        by: str = "",
        error: BaseException | None = None,
    ) -> None:
        errors = () if error is None else types_of(error)
        self._append(
            CommandSent(
                at=self._now(),
                namespace=self.namespace,
                command=command,
                run=run,
                key=key,
                by=by,
                nonce=nonce,
                errors=errors,
            )
        )

    def saw_end(self, status: str, *, run: str = "", job: str = "") -> None:
        """Record that a client got a result, or learned that there will be none."""
        line = EndSeen(at=self._now(), namespace=self.namespace, status=status, run=run, job=job)
        self._append(line)

    def saw_event(self, follower: str, event: ClientEvent) -> None:
        self._append(
            EventSeen(
                at=self._now(),
                namespace=event.namespace,
                follower=follower,
                name=event.type,
                event_at=event.at,
                cursor=event.cursor,
                run=event.run or "",
                job=event.job or "",
                node=event.node or "",
            )
        )

    def requeued(self, job: str, attempt: int) -> None:
        """Record ``AttemptRequeued`` of a worker."""
        self._append(Requeued(at=self._now(), job=job, attempt=attempt))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, line: Line) -> None:
        if self._file is None or self._pid != os.getpid():
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._pid = os.getpid()
        os.write(self._file, b"\n%b\n" % _encoder.encode(line))


class MemoryEvidenceLog(EvidenceLog):
    """An evidence log in memory, for a single process."""

    def __init__(
        self, namespace: str = DEFAULT_NAMESPACE, now: Callable[[], float] | None = None
    ) -> None:
        super().__init__(os.devnull, namespace, now)
        self.lines: list[Line] = []

    def _append(self, line: Line) -> None:
        self.lines.append(line)


def new_nonce() -> str:
    return f"wit-{secrets.token_hex(16)}"


def types_of(error: BaseException) -> tuple[str, ...]:
    return tuple(each.__name__ for each in type(error).__mro__ if each is not object)


def read_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, Line | None]]:
    """The numbered lines of a log; None for a truncated one."""
    with open(path, "rb") as file:
        for number, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                yield number, _decoder.decode(text)
            except msgspec.MsgspecError:
                yield number, None
