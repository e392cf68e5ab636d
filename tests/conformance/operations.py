"""Random operations on a store, as data: drawn by Hypothesis, done to any store.

An operation names jobs and claims by their number in the :class:`Scene`, so that it means the
same on every store and stays meaningful when Hypothesis leaves out the operations before it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.clock import ManualClock, new_id
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import FINISHED, Claim, JobFilter, NewJob, Progress
from perdure.model.lane import Lane
from perdure.model.limit import LimitRule
from perdure.model.outcome import (
    Buried,
    Cancelled,
    Completed,
    Failed,
    GivenBack,
    Outcome,
    Released,
    Retried,
    Settlement,
)
from perdure.model.value import Value
from perdure.store.contract import ClaimRequest, LaneRequest, Store
from tests.conformance.builders import AGING, LEASE, MINUTE, SECOND, failure, new_job, worker_info

NAMESPACES = ("team-a", "team-b")
WORKERS = (WorkerId("worker-1"), WorkerId("worker-2"))
LANES = (
    Lane(queue="mail", task="send"),
    Lane(queue="mail", task="bounce", tags=("gpu",)),
    Lane(queue="default", task="send", keys=("user-7",)),
)
RULES: tuple[tuple[LimitRule, ...], ...] = (
    (),
    (LimitRule(key="mailer", live_max=2),),
    (LimitRule(key="mailer", starts_max=3, window=MINUTE),),
    (LimitRule(key="smtp", spacing=10 * SECOND), LimitRule(key="mailer", live_max=3)),
)
OUTCOMES: tuple[Outcome, ...] = (
    Completed(output=b"1"),
    Retried(failure=failure("at once")),
    Retried(failure=failure("later"), delay=20 * SECOND, hold_off=15 * SECOND),
    Retried(failure=failure("not now"), is_postponed=True, hold_off=MINUTE),
    Retried(failure=failure("429"), delay=40 * SECOND, closes_limit="mailer"),
    Failed(failure=failure("for good")),
    Buried(failure=failure("too often")),
    Cancelled(failure=failure("cleaned up")),
    Cancelled(),
    GivenBack(),
    Released(),
)


class Scene:
    """What the operations so far have brought about, as far as later ones refer to it."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.jobs: list[NewJob] = []
        self.claims: list[Claim] = []

    def ids(self, numbers: frozenset[int]) -> list[JobId]:
        jobs = self.jobs
        return list(dict.fromkeys(jobs[number % len(jobs)].id for number in numbers if jobs))

    def claims_of(self, numbers: frozenset[int]) -> list[Claim]:
        """Some of the claims ever made, current or stale, one for each job."""
        claims = self.claims
        chosen = [claims[number % len(claims)] for number in numbers if claims]
        return list({claim.id: claim for claim in chosen}.values())


Do = Callable[[Store], Awaitable[Any]]


class Operation(Value):
    """One act. ``prepare`` is called once, and what it returns is done to each store."""

    name: str
    arguments: tuple[Any, ...]

    def prepare(self, scene: Scene) -> Do:
        prepared: Do = _PREPARE[self.name](scene, *self.arguments)
        return prepared


def _insert(scene: Scene, drawn: list[NewJob]) -> Do:
    jobs = [replace(job, id=JobId(new_id())) for job in drawn]
    scene.jobs += jobs
    return lambda store: store.insert_jobs(jobs)


def _insert_again(scene: Scene, numbers: frozenset[int]) -> Do:
    jobs = [scene.jobs[number % len(scene.jobs)] for number in numbers if scene.jobs]
    return lambda store: store.insert_jobs(jobs)


def _claim(scene: Scene, drawn: ClaimRequest) -> Do:
    async def claim(store: Store) -> Any:
        claimed = await store.claim_jobs(drawn)
        scene.claims += [job.claim for job in claimed.jobs if job.claim not in scene.claims]
        return claimed

    return claim


def _settle(
    scene: Scene, numbers: frozenset[int], outcome: Outcome, is_dropped: bool, percent: int | None
) -> Do:
    progress = None if percent is None else Progress(percent=percent, message="settled")
    settlements = [
        Settlement(claim=claim, outcome=outcome, progress=progress, is_dropped=is_dropped)
        for claim in scene.claims_of(numbers)
    ]
    return lambda store: store.settle_jobs(settlements)


def _renew(scene: Scene, worker: WorkerId, numbers: frozenset[int]) -> Do:
    claims = scene.claims_of(numbers)
    return lambda store: store.renew_leases(worker, claims, LEASE)


def _save_progress(scene: Scene, numbers: frozenset[int], percent: int) -> Do:
    latest = Progress(percent=percent, message="under way", details={"percent": percent})
    progress = [(claim, latest) for claim in scene.claims_of(numbers)]
    return lambda store: store.save_progress(progress)


def _give_back(scene: Scene, worker: WorkerId, known: frozenset[int]) -> Do:
    ids = scene.ids(known)
    return lambda store: store.give_back_unknown(worker, ids)


def _operate(scene: Scene, method: str, namespace: str | None, numbers: frozenset[int]) -> Do:
    ids = scene.ids(numbers)
    return lambda store: getattr(store, method)(namespace, ids)


def _close_limit(scene: Scene, namespace: str, seconds: int) -> Do:
    until = scene.clock() + seconds * SECOND
    return lambda store: store.close_limit(namespace, "mailer", until)


def _advance(scene: Scene, seconds: int) -> Do:
    scene.clock.advance(seconds * SECOND)
    return lambda store: store.now()


def _call(scene: Scene, method: str, *arguments: Any) -> Do:
    return lambda store: getattr(store, method)(*arguments)


_PREPARE: dict[str, Callable[..., Do]] = {
    "insert": _insert,
    "insert again": _insert_again,
    "claim": _claim,
    "settle": _settle,
    "renew": _renew,
    "save progress": _save_progress,
    "give back": _give_back,
    "operate": _operate,
    "close limit": _close_limit,
    "advance": _advance,
    "call": _call,
}

_numbers = st.frozensets(st.integers(0, 9), min_size=1, max_size=4)
_namespaces = st.sampled_from(NAMESPACES)
_workers = st.sampled_from(WORKERS)
_queues = st.sampled_from(["mail", "default"])

_new_jobs = st.builds(
    lambda **drawn: new_job(aging=AGING, **drawn),
    namespace=_namespaces,
    lane=st.sampled_from(LANES),
    priority=st.integers(1, 5),
    delay=st.sampled_from([0 * SECOND, 0 * SECOND, 15 * SECOND]),
    deadline=st.sampled_from([None, None, 45 * SECOND, 0 * SECOND]),
    group=st.sampled_from([None, "run-1"]),
    fingerprint=st.sampled_from([None, None, "once", "twice"]),
    on_conflict=st.sampled_from(["return", "raise", "replace"]),
    max_attempts=st.sampled_from([None, 3]),
    input=st.sampled_from([b"{}", b'"a"']),
    input_hash=st.integers(1, 2),
)
_requests = st.builds(
    ClaimRequest,
    namespace=_namespaces,
    worker=_workers,
    lanes=st.lists(
        st.builds(
            lambda lane, rules: LaneRequest(lane=lane.text, queue=lane.queue, rules=rules),
            st.sampled_from(LANES),
            st.sampled_from(RULES),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda lane: lane.lane,
    ),
    limit=st.integers(1, 5),
    lease=st.sampled_from([LEASE, 10 * SECOND]),
)


def _drawn(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Operation]:
    return st.tuples(*arguments).map(lambda drawn: Operation(name=name, arguments=drawn))


def _called(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Operation]:
    return _drawn("call", st.just(method), *arguments)


_limit = st.just(100)
_keep = st.dictionaries(
    st.sampled_from(sorted(FINISHED)), st.sampled_from([0 * SECOND, 30 * SECOND])
)

_inserts = _drawn("insert", st.lists(_new_jobs, min_size=1, max_size=4))
_claims = _drawn("claim", _requests)
_settles = _drawn(
    "settle",
    _numbers,
    st.sampled_from(OUTCOMES),
    st.sampled_from([False, False, True]),
    st.sampled_from([None, 12]),
)
_advances = _drawn("advance", st.sampled_from([1, 5, 16, 31]))
_operators = _drawn(
    "operate",
    st.sampled_from(["abort_jobs", "disable_jobs", "enable_jobs", "retry_jobs", "resume_jobs"]),
    st.sampled_from([None, *NAMESPACES]),
    _numbers,
)

operations = st.lists(
    st.one_of(
        # More often what brings jobs to life, so that the others find something to do.
        *(_inserts, _inserts, _claims, _claims, _settles, _settles, _advances, _operators),
        _drawn("insert again", _numbers),
        _drawn("renew", _workers, _numbers),
        _drawn("save progress", _numbers, st.integers(0, 100)),
        _drawn("give back", _workers, _numbers),
        _drawn("close limit", _namespaces, st.integers(1, 60)),
        _called("abort_group", _namespaces, st.just("run-1")),
        _called("pause_queue", _namespaces, _queues, st.sampled_from([None, "ann"])),
        _called("resume_queue", _namespaces, _queues),
        _called("promote_due", _limit),
        _called("take_over_expired", _limit, st.integers(1, 3)),
        _called("expire_deadlines", _limit),
        _called("prune_jobs", _keep, _limit),
        _called("lead", st.just("housekeeping"), _workers, st.just(LEASE)),
        _called("register_worker", _workers.map(lambda id: worker_info(id=id))),
        _called("remove_worker", _workers),
        _called("prune_workers", st.just(timedelta(seconds=20))),
        _called("survey", _namespaces),
    ),
    min_size=3,
    max_size=30,
)


async def clear(store: Store, clock: ManualClock) -> None:
    """Leave nothing behind that another sequence of operations could meet."""
    clock.advance(60 * MINUTE)  # every lease, window and closed limit is over
    for namespace in NAMESPACES:
        for queue in ("mail", "default"):
            await store.resume_queue(namespace, queue)
    await store.take_over_expired(1000, 1)
    for worker in WORKERS:
        await store.remove_worker(worker)
    unfinished = [
        job.id for job in await store.list_jobs(JobFilter(), 1000) if job.status not in FINISHED
    ]
    await store.abort_jobs(None, unfinished)
    clock.advance(MINUTE)
    await store.prune_jobs(dict.fromkeys(FINISHED, timedelta(0)), 1000)
