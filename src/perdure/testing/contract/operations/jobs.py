"""Random operations on jobs, as data that can be applied to any store.

An operation names jobs and claims by their number in the :class:`Workload`, so that it means the
same on every store and stays meaningful when earlier operations are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter
from random import Random
from typing import Any

from msgspec.structs import replace

from perdure.clock import ManualClock, new_id
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import FINISHED, JobFilter, NewJob, Progress, Status
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Outcome,
    Parked,
    Requeued,
    Retried,
    Settlement,
)
from perdure.model.partition import Partition, with_suspicion
from perdure.model.value import Value
from perdure.store import lifecycle
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.testing.contract.builders import (
    AGING,
    LEASE,
    MINUTE,
    SECOND,
    failure,
    new_job,
    worker_info,
)
from perdure.testing.contract.operations.runs import RUN_OFTEN, RUN_PREPARE, RUN_SELDOM, clear_runs
from perdure.testing.contract.operations.schedules import (
    SCHEDULE_OFTEN,
    SCHEDULE_PREPARE,
    SCHEDULE_SELDOM,
    clear_schedules,
)
from perdure.testing.contract.operations.workload import (
    INCARNATIONS,
    LIMIT,
    NAMESPACES,
    RULES,
    SUSPICIONS,
    WORKERS,
    Do,
    Draw,
    Workload,
)

PARTITIONS = (
    Partition(queue="mail", task="send"),
    Partition(queue="mail", task="bounce", tags=("gpu",)),
    Partition(queue="default", task="send", keys=("user-7",)),
)
OUTCOMES: tuple[Outcome, ...] = (
    Completed(output=b"1"),
    Retried(failure=failure("at once")),
    Retried(failure=failure("later"), delay=20 * SECOND, hold_off=15 * SECOND),
    Retried(failure=failure("not now"), is_snoozed=True, hold_off=MINUTE),
    Retried(failure=failure("429"), delay=40 * SECOND, closes_limit="mailer"),
    Failed(failure=failure("for good")),
    DeadLettered(failure=failure("too often")),
    Cancelled(failure=failure("cleaned up")),
    Cancelled(),
    Requeued(),
    Requeued(delay=20 * SECOND),
    Parked(),
)


class StoreCall(Value):
    """A call to make on each store. ``prepare`` is called once, and returns what does it."""

    name: str
    arguments: tuple[Any, ...]

    def prepare(self, workload: Workload) -> Do:
        prepared: Do = _PREPARE[self.name](workload, *self.arguments)
        return prepared


def _insert(workload: Workload, drawn: list[NewJob]) -> Do:
    jobs = [replace(job, id=JobId(new_id())) for job in drawn]
    workload.jobs += jobs
    return lambda store: store.jobs.insert(jobs)


def _insert_late(workload: Workload, drawn: list[NewJob]) -> Do:
    # Not remembered: where two jobs of a call are to be refused, either may be named.
    jobs = [replace(job, id=JobId(new_id()), fingerprint=None) for job in drawn]
    jobs[-1] = replace(jobs[-1], deadline=0 * SECOND)
    return lambda store: store.jobs.insert(jobs)


def _insert_again(workload: Workload, numbers: frozenset[int]) -> Do:
    jobs = [workload.jobs[number % len(workload.jobs)] for number in numbers if workload.jobs]
    return lambda store: store.jobs.insert(jobs)


def _claim(workload: Workload, drawn: ClaimRequest) -> Do:
    async def claim(store: Store) -> Any:
        claimed = await store.jobs.claim(drawn)
        workload.claims += [job.claim for job in claimed.jobs if job.claim not in workload.claims]
        return claimed

    return claim


def _work(workload: Workload, drawn: ClaimRequest, outcome: Outcome) -> Do:
    async def work(store: Store) -> Any:
        claimed = await store.jobs.claim(drawn)
        claims = [job.claim for job in claimed.jobs]
        return await store.jobs.settle(
            [Settlement(claim=claim, outcome=outcome) for claim in claims]
        ), claimed

    return work


def _settle(
    workload: Workload,
    numbers: frozenset[int],
    outcome: Outcome,
    is_hidden: bool,
    percent: int | None,
) -> Do:
    progress = None if percent is None else Progress(percent=percent, message="settled")
    settlements = [
        Settlement(claim=claim, outcome=outcome, progress=progress, is_hidden=is_hidden)
        for claim in workload.claims_of(numbers)
    ]
    return lambda store: store.jobs.settle(settlements)


def _renew(workload: Workload, worker: WorkerId, numbers: frozenset[int]) -> Do:
    claims = workload.claims_of(numbers)
    return lambda store: store.jobs.renew(worker, claims, LEASE)


def _save_progress(workload: Workload, numbers: frozenset[int], percent: int) -> Do:
    latest = Progress(percent=percent, message="under way", details={"percent": percent})
    progress = [(claim, latest) for claim in workload.claims_of(numbers)]
    return lambda store: store.jobs.save_progress(progress)


def _requeue_unknown(
    workload: Workload, worker: WorkerId, known: frozenset[int], incarnation: int | None
) -> Do:
    ids = workload.ids(known)
    return lambda store: store.jobs.requeue_unknown(worker, ids, incarnation)


def _register(workload: Workload, worker: WorkerId, incarnation: int | None, starts: bool) -> Do:
    info = worker_info(id=worker, incarnation=incarnation)
    return lambda store: store.maintenance.register_worker(info, starts=starts)


def _move_start(workload: Workload, numbers: frozenset[int], within: timedelta) -> Do:
    claims = workload.claims_of(numbers)

    async def move(store: Store) -> list[bool]:
        return [await store.jobs.move_start(claim, within) for claim in claims]

    return move


def _operate(
    workload: Workload, change: lifecycle.Transition, namespace: str | None, numbers: frozenset[int]
) -> Do:
    ids = workload.ids(numbers)
    return lambda store: store.admin.change_jobs(change, namespace, ids)


def _change_group(workload: Workload, change: lifecycle.Transition, namespace: str) -> Do:
    return lambda store: store.admin.change_jobs(change, namespace, group="run-1")


def _prune_limits(workload: Workload, namespace: str, idle: timedelta) -> Do:
    async def prune(store: Store) -> None:
        # How many keys are kept without effect is up to each backend.
        await store.maintenance.prune_limits(namespace, idle, LIMIT)

    return prune


def _advance(workload: Workload, seconds: int) -> Do:
    workload.clock.advance(seconds * SECOND)
    return lambda store: store.now()


def _call(workload: Workload, method: str, *arguments: Any) -> Do:
    return lambda store: attrgetter(method)(store)(*arguments)


_PREPARE: dict[str, Callable[..., Do]] = {
    "insert": _insert,
    "insert late": _insert_late,
    "insert again": _insert_again,
    "claim": _claim,
    "work": _work,
    "settle": _settle,
    "renew": _renew,
    "save progress": _save_progress,
    "requeue unknown": _requeue_unknown,
    "register": _register,
    "move start": _move_start,
    "operate": _operate,
    "change group": _change_group,
    "prune limits": _prune_limits,
    "advance": _advance,
    "call": _call,
    **RUN_PREPARE,
    **SCHEDULE_PREPARE,
}

OPERATORS = (
    lifecycle.Transition.ABORT,
    lifecycle.Transition.DISABLE,
    lifecycle.Transition.ENABLE,
    lifecycle.Transition.RETRY,
    lifecycle.Transition.RESUME,
)


def random_operations(random: Random, count: int) -> list[StoreCall]:
    """A sequence that begins with jobs, so that the rest finds something to do."""
    first = [StoreCall(name="insert", arguments=_insert_arguments(random)) for _ in range(3)]
    return first + [_random_operation(random, _DRAWS) for _ in range(count - len(first))]


def random_run_operations(random: Random, count: int) -> list[StoreCall]:
    """The same with runs, and now and then something else beside them."""
    first = [_random_operation(random, RUN_OFTEN[:1]) for _ in range(3)]
    return first + [_random_operation(random, _RUN_DRAWS) for _ in range(count - len(first))]


def random_schedule_operations(random: Random, count: int) -> list[StoreCall]:
    """Those on schedules and flows that cool down, among those on runs and jobs."""
    first = [_random_operation(random, SCHEDULE_OFTEN[:1]) for _ in range(3)]
    return first + [_random_operation(random, _SCHEDULE_DRAWS) for _ in range(count - len(first))]


def _random_operation(random: Random, draws: Sequence[Draw]) -> StoreCall:
    name, *arguments = random.choice(draws)(random)
    return StoreCall(name=name, arguments=tuple(arguments))


def _insert_arguments(random: Random) -> tuple[Any, ...]:
    return ([_new_job(random) for _ in range(random.randint(1, 4))],)


def _new_job(random: Random) -> NewJob:
    choice = random.choice
    return new_job(
        namespace=_namespace(random),
        partition=choice(PARTITIONS),
        priority=choice([1, 3, 5]),
        aging=AGING,
        delay=choice([0, 0, 0, 15]) * SECOND,
        deadline=choice([None, None, None, 45 * SECOND]),
        group=choice([None, "run-1"]),
        fingerprint=choice([None, None, None, "once", "twice"]),
        on_conflict=choice(["return", "return", "raise", "replace", "replace"]),
        max_attempts=choice([None, 3]),
        input=choice([b"{}", b'"a"']),
        input_hash=choice([1, 2]),
    )


def _claim_request(random: Random) -> ClaimRequest:
    return ClaimRequest(
        namespace=_namespace(random),
        worker=random.choice(WORKERS),
        partitions=[
            PartitionClaim(
                partition=with_suspicion(partition.text, suspicion),
                queue=partition.queue,
                rules=random.choice(RULES),
            )
            for partition in random.sample(PARTITIONS, random.randint(1, 3))
            for suspicion in random.sample(SUSPICIONS, random.randint(1, 3))
        ],
        is_alone=random.random() < 0.5,
        incarnation=random.choice(INCARNATIONS),
        limit=random.choice([1, 2, 9]),
        lease=random.choice([LEASE, 10 * SECOND]),
    )


def _namespace(random: Random) -> str:
    return random.choice([*[NAMESPACES[0]] * 4, NAMESPACES[1]])


def _numbers(random: Random) -> frozenset[int]:
    reach = random.choice([4, 10, 40])
    return frozenset(random.choices(range(reach), k=random.randint(1, 5)))


def _keep(random: Random) -> dict[Status, timedelta]:
    statuses = random.sample(sorted(FINISHED), random.randint(1, 4))
    return {status: random.choice([0, 30]) * SECOND for status in statuses}


_OFTEN: tuple[Draw, ...] = (
    lambda random: ("insert", *_insert_arguments(random)),
    lambda random: ("claim", _claim_request(random)),
    lambda random: (
        "settle",
        _numbers(random),
        random.choice(OUTCOMES),
        random.choice([False, False, True]),
        random.choice([None, 12]),
    ),
    lambda random: ("work", _claim_request(random), random.choice(OUTCOMES)),
    lambda random: ("advance", random.choice([1, 5, 15, 30])),
    lambda random: (
        "operate",
        random.choice(OPERATORS),
        random.choice([None, *NAMESPACES]),
        _numbers(random),
    ),
)
_SELDOM: tuple[Draw, ...] = (
    lambda random: ("insert late", *_insert_arguments(random)),
    lambda random: ("insert again", _numbers(random)),
    lambda random: ("renew", random.choice(WORKERS), _numbers(random)),
    lambda random: ("save progress", _numbers(random), random.randint(0, 100)),
    lambda random: (
        "requeue unknown",
        random.choice(WORKERS),
        _numbers(random),
        random.choice(INCARNATIONS),
    ),
    lambda random: ("move start", _numbers(random), random.choice([0, 10]) * SECOND),
    lambda random: ("change group", random.choice(OPERATORS), random.choice(NAMESPACES)),
    lambda random: ("call", "admin.pause_queue", random.choice(NAMESPACES), "mail", "ann"),
    lambda random: ("call", "admin.resume_queue", random.choice(NAMESPACES), "mail"),
    lambda random: ("call", "maintenance.promote_due", _namespace(random), LIMIT),
    lambda random: (
        "call",
        "maintenance.take_over_expired",
        _namespace(random),
        LIMIT,
    ),
    lambda random: ("call", "maintenance.expire_deadlines", _namespace(random), LIMIT),
    lambda random: (
        "call",
        "maintenance.prune_jobs",
        _namespace(random),
        _keep(random),
        LIMIT,
    ),
    lambda random: ("prune limits", _namespace(random), random.choice([0, 30]) * SECOND),
    lambda random: (
        "call",
        "maintenance.acquire_lease",
        "maintenance",
        random.choice(WORKERS),
        LEASE,
    ),
    lambda random: (
        "call",
        "maintenance.take_over_former",
        _namespace(random),
        random.choice(WORKERS),
        random.choice([1, 2]),
        LIMIT,
    ),
    lambda random: (
        "register",
        random.choice(WORKERS),
        random.choice(INCARNATIONS),
        random.random() < 0.5,
    ),
    lambda random: (
        "call",
        "maintenance.remove_worker",
        random.choice(WORKERS),
        random.choice(INCARNATIONS),
    ),
    lambda random: ("call", "maintenance.prune_workers", NAMESPACES[0], 20 * SECOND),
    lambda random: ("call", "maintenance.poll", random.choice(NAMESPACES)),
)
_DRAWS = _OFTEN * 4 + _SELDOM
_RUN_DRAWS = RUN_OFTEN * 8 + RUN_SELDOM * 2 + _SELDOM + _OFTEN
_SCHEDULE_DRAWS = SCHEDULE_OFTEN * 10 + SCHEDULE_SELDOM * 2 + RUN_OFTEN * 2 + RUN_SELDOM + _OFTEN


async def clear(store: Store, clock: ManualClock) -> None:
    """Leave nothing behind that another sequence of operations could meet."""
    clock.advance(60 * MINUTE)  # every lease, window and closed limit is over
    for namespace in NAMESPACES:
        await store.admin.resume_queue(namespace, "mail")
        await store.maintenance.take_over_expired(namespace, 1000)
    await clear_schedules(store)
    await clear_runs(store)
    for worker in WORKERS:
        for incarnation in INCARNATIONS:
            await store.maintenance.remove_worker(worker, incarnation)
    unfinished = [
        job.id
        for job in await store.queries.list_jobs(JobFilter(), 1000)
        if job.status not in FINISHED
    ]
    await store.admin.change_jobs(lifecycle.Transition.ABORT, None, unfinished)
    clock.advance(MINUTE)
    for namespace in NAMESPACES:
        await store.maintenance.prune_jobs(namespace, dict.fromkeys(FINISHED, timedelta(0)), 1000)
