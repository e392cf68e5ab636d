"""What was asked for in a history, and by whom it was accepted."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from perdure.errors import PerdureError
from proof.evidence.log import MemoryEvidenceLog

IDS = tuple(f"order-{number}" for number in range(8))
"""Ids that callers choose, so that they meet. One may be that of several runs in turn."""


def may_be_replaced(run: str | None) -> bool:
    """Whether another run may come to have the id; a child goes with its parent."""
    return run is not None and run.partition("/")[0] in IDS


@dataclass
class Asked:
    """Kept outside the store, so that what the store says can be compared with it."""

    witness: MemoryEvidenceLog
    runs: list[str] = field(default_factory=list)
    """Runs that a client was told are durable."""
    jobs: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    """Runs that somebody asked to cancel, whether or not it was heard."""
    forked: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    """Ids of runs that another may have taken the place of."""
    aborted: set[str] = field(default_factory=set)
    """Jobs that a client was told are aborted."""
    revived: set[str] = field(default_factory=set)
    """Jobs that somebody asked to try again, whether or not it was heard."""

    def accepted_run(self, id: str) -> None:
        self.runs.append(id)
        self.witness.accepted(run=id)

    def accepted_job(self, id: str) -> None:
        self.jobs.append(id)
        self.witness.accepted(job=id)

    def saw_result(self, run: str) -> None:
        """Somebody got the result of a run, which is final then."""
        if not may_be_replaced(run):
            self.witness.saw_end("completed", run=run)

    @asynccontextmanager
    async def act(
        self, act: str, run: str, key: str = "", *, nonce: str = "", by: str = ""
    ) -> AsyncIterator[list[str]]:
        """Around something that is done to a run, so that it is known what was answered.

        Gives a list, for reasons why the answer says neither that it was done nor that it was not.
        """
        error: PerdureError | None = None
        unclear: list[str] = []
        try:
            yield unclear
        except PerdureError as raised:
            error = raised
            raise
        except CancelledError:
            unclear.append("nobody waited for the answer")
            raise
        finally:
            if not may_be_replaced(run) and not unclear:
                self.witness.acted(act, run, key, nonce=nonce, by=by, error=error)
