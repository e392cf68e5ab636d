"""What was asked for in a history, and by whom it was accepted."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.testing.check.witness import HeardWitness


@dataclass
class Asked:
    """Kept outside the store, so that what the store says can be compared with it."""

    witness: HeardWitness
    runs: list[str] = field(default_factory=list)
    """Runs that a client was told are durable."""
    jobs: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    """Runs that somebody asked to cancel, whether or not it was heard."""
    replaced: set[str] = field(default_factory=set)
    """Ids of runs that another may have taken the place of."""
    acted_on: set[str] = field(default_factory=set)
    """Jobs that somebody stopped, held up or started anew."""

    def accepted_run(self, id: str) -> None:
        self.runs.append(id)
        self.witness.accepted(run=id)

    def accepted_job(self, id: str) -> None:
        self.jobs.append(id)
        self.witness.accepted(job=id)
