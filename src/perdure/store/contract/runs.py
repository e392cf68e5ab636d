"""Runs: how they are submitted, and the one way in which they advance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from perdure.model.event import StoredEvent
from perdure.model.ids import RunId
from perdure.model.job import Claim
from perdure.model.run import CommitAnswer, LoadedRun, NewRun, RunCommit, StoredStep, Submitted
from perdure.model.value import Value


class EventsAfter(Value):
    """A run to load: its events after ``number``, or from its snapshot if that is None."""

    namespace: str
    id: RunId
    number: int | None = None


class EventsBefore(Value):
    """A run whose log is read from its end: the events before ``number``; None: all of them."""

    namespace: str
    id: RunId
    number: int | None = None


class RunStore(Protocol):
    """Runs: how they begin, and the one way in which they go on.

    A job of a run (``NewJob.node``) is claimed, renewed, requeued and taken over as any other.
    It leaves the queue with its outcome, and never stays as a finished one; how often it crashed
    its workers is counted, and told by ``ClaimedJob.crashes``, but the store does not bury it.
    """

    @abstractmethod
    async def submit(self, run: NewRun) -> Submitted:
        """Add a run with its first events, its jobs, waits and children, all or none.

        - An id that is taken in the namespace raises ``RunExists`` ("fail"), yields that run and
          writes nothing ("use_existing"), or makes room: that run's jobs are taken away and all
          that is kept of it is replaced ("replace").
        - However many submit one id at once, one of them is new.
        - A run with a ``cooldown`` is added as skipped, without anything that it would start,
          when a run of its flow with one began, or was completed, less than that ago. Children and
          skipped runs do not count. However many are submitted at once, one of them begins.
        - A submission whose answer was lost, and that is tried again, counts once: it neither
          conflicts with itself nor takes its own place.
        """

    @abstractmethod
    async def commit(
        self, commits: Sequence[RunCommit], partitions: Sequence[str] = ()
    ) -> CommitAnswer:
        """Write one step of each run, each all or none; one does not stop the others.

        - CONFLICT, and nothing written, when the run's last event is not the expected one or the
          run is unknown; STALE, and nothing written, when a settled claim is not current; the
          answer names those claims.
        - Events are numbered on from the expected one. The run takes the status, and an ended one
          its time; one that is retried is no longer ended.
        - Ends: the job leaves the queue. Continues: the same row takes the new job's partition,
          priority, input, policy and key under the same claim and lease, as if just started:
          attempt 1, no failures, no progress. Repeats: as a retried job.
        - New jobs and children are inserted, waits opened and closed. A wait that is opened
          where one is open takes its place, but keeps the time when it was first opened.
        - Drops and clears take jobs away, from their holders too (a hint names their ids), remove
          them, and end waits, but a child's becomes due at once. What the same commit settles,
          inserts or opens is not touched by its own drops and clears.
        - Holds parks jobs as paused, taking held ones from their holders, with their attempt
          back, and keeps waits from becoming due; until False puts them back in their place.
        - A new version goes into the partitions of the run's jobs.
        - The end of a child makes the wait of its parent due at once.
        - A snapshot replaces the one that is kept.
        - A time of a job that some backend could not read back raises ``InvalidInput``, and nothing
          of the batch is written.
        - A commit repeated with its token after a lost answer is done, and counts once.
        - Answers the lowest rank that waits in ``partitions``, as of this write.
        """

    @abstractmethod
    async def load(self, runs: Sequence[EventsAfter]) -> list[LoadedRun | None]:
        """What a worker needs to decide, in the order asked; None for a run that is not there.

        - Without a number: the snapshot if there is one, and the events after it.
        - With a number: the events after it, and no snapshot.
        - One consistent view of each run: its number is that of the last event.
        """

    @abstractmethod
    async def latest_events(
        self, runs: Sequence[EventsBefore], limit: int
    ) -> list[list[StoredEvent]]:
        """Up to ``limit`` events of each run, the latest first, without their values.

        - In the order asked; none for a run that is not there.
        """

    @abstractmethod
    async def event_values(
        self, namespace: str, run: RunId, numbers: Sequence[int]
    ) -> dict[int, bytes]:
        """The values of these events; events without one are left out."""

    @abstractmethod
    async def save_definition(self, namespace: str, flow: str, version: str, data: bytes) -> None:
        """Keep a flow's definition; a version that is known already is left as it is."""

    @abstractmethod
    async def get_definition(self, namespace: str, flow: str, version: str) -> bytes | None: ...

    @abstractmethod
    async def save_step(self, claim: Claim, owner: str, step: StoredStep) -> None:
        """Keep a result under a name; the first one stays.

        - Raises ``ClaimLost``, and writes nothing, when the claim is not current.
        """

    @abstractmethod
    async def load_steps(self, owner: str) -> list[StoredStep]: ...
