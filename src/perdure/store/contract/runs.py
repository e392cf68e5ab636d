"""Submitting runs, and committing the steps by which they advance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from perdure.model.event import StoredEvent
from perdure.model.ids import RunId
from perdure.model.job import Claim
from perdure.model.run import CommitAnswer, LoadedRun, NewRun, RunCommit, StoredStep, Submitted
from perdure.model.value import Value

DEFINITION_FRESH = timedelta(days=1)
"""Shorter than pruning keeps unused definitions, by more than any submission takes."""


class EventsAfter(Value):
    """A run to load: its events after ``number``, or from its snapshot if that is None."""

    namespace: str
    id: RunId
    number: int | None = None


class EventsBefore(Value):
    """A run whose log is read backward: the events before ``number``; None: all of them."""

    namespace: str
    id: RunId
    number: int | None = None


class RunStore(Protocol):
    """Submits, commits and loads runs.

    A job of a run (``NewJob.node``) is claimed, renewed, requeued and taken over like any other.
    Its row is deleted with its outcome. Its crashes are counted in ``ClaimedJob.crashes``, but the
    store does not dead-letter it: its run decides.
    """

    @abstractmethod
    async def submit(self, run: NewRun) -> Submitted:
        """Add a run with its first events, its jobs, waits and children, all or none.

        - An existing id in the namespace raises ``RunExists`` ("fail"), returns that run and
          writes nothing ("use_existing"), or replaces that run with all its rows, taking its jobs
          from their workers ("replace"). It is created later than that run, even if the clock has
          not moved: the time distinguishes the two.
        - Of concurrent submissions of one id, exactly one is new.
        - A run with a ``cooldown`` is added as skipped, without starting anything, if a run of its
          flow with one started, or completed, less than that ago. Child runs and skipped runs do
          not count. Of concurrent submissions, exactly one starts.
        - A queued run with ``max_running`` and no time of its own gets a rank; its ``run:start`` is
          due while there is a place for it (see ``commit``).
        - A submission retried after a lost response counts once: it neither conflicts with nor
          replaces itself.
        - ``needs_definition`` raises ``UnknownFlow``, and writes nothing, unless the definition is
          stored and was used within ``DEFINITION_FRESH``: save it again, then submit again. So no
          definition is pruned while a run of it is being added.
        """

    @abstractmethod
    async def commit(
        self, commits: Sequence[RunCommit], partitions: Sequence[str] = ()
    ) -> CommitAnswer:
        """Write one step of each run, each all or none; a refused one does not stop the others.

        - CONFLICT, and nothing written, when the run's last event is not the expected one or the
          run is unknown; STALE, and nothing written, when a settled claim is not current; the
          answer names those claims.
        - Events are numbered after the expected one. The run gets the status and, if ended, its end
          time; a retried run is no longer ended.
        - Ends: the job leaves the queue. Continues: the same row takes the new job's partition,
          priority, input, policy and key under the same claim and lease, as if just started:
          attempt 1, no failures, no progress. Repeats: as a retried job.
        - New jobs and children are inserted, waits opened and closed. Opening a wait whose key is
          open replaces it, but keeps the time when it was first opened.
        - Drops and clears delete jobs, claimed ones too (a hint names their ids), and end waits,
          except that the wait for a child becomes due. Jobs and waits that the same commit settles,
          inserts or opens are not affected.
        - Holds parks jobs as paused, revoking claims and refunding the attempt, and keeps waits
          from becoming due, until False restores them.
        - A new version goes into the partitions of the run's jobs.
        - The end of a child makes its parent's wait due immediately.
        - A run with ``max_running`` holds a place of its flow and key from its start to its end. It
          starts only if fewer are held, and no other that is queued has a lower rank and no place;
          the answer is FULL otherwise, and it stays queued, with a rank, and is not due.
        - A commit with a ``place`` makes the ``run:start`` of those due that are next and have one.
        - A snapshot replaces the stored one.
        - REFUSED, with ``InvalidInput`` and nothing written, when a job has a time that some
          backend could not read back.
        - ``sticky``: the jobs that it inserts, continues or retries wait for ``worker``, or else
          for the last worker of the run's commits, from when they are ready; but not if that worker
          is not live, and suspects not at all. ``release_sticky`` ends it.
        - A commit retried with its token after a lost response counts once.
        - Answers the lowest rank that waits in ``partitions``, as of this write.
        """

    @abstractmethod
    async def load(self, runs: Sequence[EventsAfter]) -> list[LoadedRun | None]:
        """Load runs for decisions, in the order requested; None for a run that does not exist.

        - Without a number: the snapshot if there is one, and the events after it.
        - With a number: the events after it, and no snapshot.
        - One consistent view of each run: its number is that of the last event.
        """

    @abstractmethod
    async def latest_events(
        self, runs: Sequence[EventsBefore], limit: int
    ) -> list[list[StoredEvent]]:
        """Up to ``limit`` events of each run, the latest first, without their values.

        - In the order requested; empty for a run that does not exist.
        """

    @abstractmethod
    async def event_values(
        self, namespace: str, run: RunId, numbers: Sequence[int]
    ) -> dict[int, bytes]:
        """The values of these events; events without one are omitted."""

    @abstractmethod
    async def save_definition(self, namespace: str, flow: str, version: str, data: bytes) -> None:
        """Store a flow's definition; a stored one counts as used now."""

    @abstractmethod
    async def get_definition(self, namespace: str, flow: str, version: str) -> bytes | None: ...

    @abstractmethod
    async def save_step(self, claim: Claim, owner: str, step: StoredStep) -> None:
        """Store a step's result under a name, unless it has one already.

        - Raises ``ClaimLost``, and writes nothing, when the claim is not current.
        """

    @abstractmethod
    async def load_steps(self, owner: str) -> list[StoredStep]: ...
