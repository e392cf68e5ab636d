"""What a sequence of random operations has written so far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from random import Random
from typing import Any

from perdure.clock import ManualClock
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import Claim, NewJob
from perdure.model.limit import LimitRule
from perdure.model.partition import UNSUSPECTED, Suspicion
from perdure.model.run import RunCommit
from perdure.store.contract import Store
from perdure.testing.contract.builders import SECOND

NAMESPACES = ("team-a", "team-b")
WORKERS = (WorkerId("worker-1"), WorkerId("worker-2"))
INCARNATIONS = (None, 1, 2)
RULES: tuple[tuple[LimitRule, ...], ...] = (
    (),
    (),
    (LimitRule(key="mailer", live_max=2),),
    (LimitRule(key="mailer", starts_max=3, window=20 * SECOND),),
    (LimitRule(key="smtp", spacing=10 * SECOND), LimitRule(key="mailer", live_max=3)),
)
SUSPICIONS = (
    UNSUSPECTED,
    Suspicion(crashes=1),
    Suspicion(crashes=2),
    Suspicion(crashes=2, alone=1),
)
LIMIT = 100

Do = Callable[[Store], Awaitable[Any]]
Draw = Callable[[Random], tuple[Any, ...]]


class Workload:
    """The results of the calls so far that later ones refer to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.jobs: list[NewJob] = []
        self.claims: list[Claim] = []
        self.runs: list[tuple[str, RunId]] = []
        self.commits: list[list[RunCommit]] = []
        self.tokens = count(1)
        self.node_jobs: list[JobId] = []
        self.node_claims: list[tuple[str, RunId, Claim]] = []
        self.owners: set[str] = set()
        """Of steps."""

    def ids(self, numbers: frozenset[int]) -> list[JobId]:
        """Some of the jobs ever inserted, the youngest under the lowest numbers."""
        jobs = self.jobs[::-1]
        return list(dict.fromkeys(jobs[number % len(jobs)].id for number in numbers if jobs))

    def claims_of(self, numbers: frozenset[int]) -> list[Claim]:
        """Some of the claims ever made, current or stale, one for each job."""
        claims = self.claims[::-1]
        chosen = [claims[number % len(claims)] for number in numbers if claims]
        return list({claim.id: claim for claim in chosen}.values())
