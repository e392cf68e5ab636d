"""Random operations on runs and their waits, as data that can be applied to any store.

They join those on jobs: an operation names runs, claims and commits by number, so that it means
the same on every store and stays meaningful when earlier operations are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from perdure.clock import new_id
from perdure.model.event import NewEvent, Parent
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import Claim, NewJob, NodeRef
from perdure.model.outcome import Retried
from perdure.model.partition import Partition, with_suspicion
from perdure.model.run import (
    ENDED,
    Continues,
    Finishes,
    NewRun,
    NewWait,
    NodeSettlement,
    OnExisting,
    Retries,
    RunCommit,
    RunFilter,
    RunStatus,
    Snapshot,
    StoredStep,
    WaitFilter,
    WaitType,
)
from perdure.model.value import Value
from perdure.store import lifecycle
from perdure.store.contract import ClaimRequest, EventsAfter, PartitionClaim, Store
from perdure.testing.contract.builders import AGING, LEASE, SECOND, failure
from perdure.testing.contract.operations.workload import (
    LIMIT,
    NAMESPACES,
    RULES,
    SUSPICIONS,
    WORKERS,
    Do,
    Draw,
    Workload,
)

# Waits


NAMES = ("paid", "sent")
DECIDERS: tuple[tuple[str, ...], ...] = ((), ("ann",), ("bob", "ann"), ('{"a\\b",}', "ann"))


def page_waits(workload: Workload, filter: WaitFilter, limit: int) -> Do:
    async def page(store: Store) -> list[Any]:
        """Keys, so that their order counts; in one namespace, where no two are alike."""
        found: list[Any] = []
        wanted = replace(filter, namespace=filter.namespace or NAMESPACES[0])
        while waits := await store.queries.list_waits(wanted, limit):
            found += [[wait.run, wait.key] for wait in waits]
            last = waits[-1]
            wanted = replace(wanted, after=(last.opened_at, last.run, last.key))
        return found

    return page


def drawn_wait(random: Random, key: str) -> tuple[NewWait, int | None]:
    """What is waited for, and in how many seconds it is due, if that is to be said as a time."""
    found_type = random.choice(
        [found_type for found_type in WaitType if found_type is not WaitType.CHILD]
    )
    seconds = random.choice([None, 0, 10, 30])
    wait = NewWait(
        key=key,
        type=found_type,
        name=random.choice(NAMES),
        delay=None if seconds is None else seconds * SECOND,
        deciders=random.choice(DECIDERS),
        detail=random.choice([b"", b"\x00\xff", b'{"form":{}}']),
    )
    return wait, random.choice([None, None, None, -5, 20])


def drawn_filter(random: Random) -> WaitFilter:
    return WaitFilter(
        namespace=random.choice([None, *NAMESPACES]),
        run=random.choice([None, None, None, *RunId("run-0"), RunId("run-1")]),
        type=random.choice([None, *WaitType]),
        name=random.choice([None, None, *NAMES]),
        deciders=random.choice([None, None, *DECIDERS]),
    )


# Runs


RUNS = tuple(RunId(f"run-{number}") for number in range(4))
KEYS = ("a", "b", "c[0]", "c[1]")
NODE_PARTITIONS = tuple(
    Partition(queue=queue, task="pack", flow=f"orders@{version}")
    for queue in ("mail", "default")
    for version in ("v1", "v2")
)
HOWS = ("ends", "continues", "continues", "repeats")
LIVE = (RunStatus.RUNNING, RunStatus.WAITING)
REPEATS = (
    Retried(failure=failure("at once")),
    Retried(failure=failure("later"), delay=20 * SECOND, hold_off=15 * SECOND),
    Retried(failure=failure("429"), delay=5 * SECOND, is_snoozed=True, closes_limit="mailer"),
)


class Starts(Value):
    """What a run or a commit starts: keys and delays in seconds, and what differs besides."""

    jobs: tuple[tuple[str, Partition, int, int], ...] = ()
    """Key, partition, priority, delay."""
    waits: tuple[tuple[NewWait, int | None], ...] = ()
    """What is waited for, and in how many seconds from the workload's now it is due as a time."""
    children: tuple[tuple[str, RunStatus], ...] = ()


class Step(Value):
    """A commit on one run; ``late`` is how far it is from the run's last event."""

    run: int
    late: int
    events: int
    status: RunStatus
    settles: tuple[tuple[int, str, Partition], ...]
    """Which of the run's claims, how, and in which partition it continues."""
    starts: Starts
    close_waits: tuple[str, ...] = ()
    cancel_keys: tuple[str, ...] = ()
    cancel_all: bool = False
    suspend: bool | None = None
    version: str | None = None
    snapshot: bool = False


def _submit(
    workload: Workload, place: int, starts: Starts, on_existing: OnExisting, status: str
) -> Do:
    namespace, id = _place(place)
    run = random_run(workload, namespace, id, starts, RunStatus(status), on_existing=on_existing)
    return lambda store: store.runs.submit(run)


def _commit(workload: Workload, steps: tuple[Step, ...], partitions: tuple[str, ...]) -> Do:
    commits: list[RunCommit] = []
    distinct = {_known(workload, step.run): step for step in steps if workload.runs}
    drafts = [(place, step, _draft(workload, place, step)) for place, step in distinct.items()]
    if all(step.events for step in distinct.values()):
        # One without events is distinct from a repeated one only until the next.
        workload.commits.append(commits)

    async def commit(store: Store) -> Any:
        if not commits:
            for (namespace, id), step, make in drafts:
                run = (await store.queries.get_runs([(namespace, id)]))[0]
                commits.append(make((run.number if run else 0) + step.late))
        # Whether jobs that go with a step are still seen waiting by it is a matter of moments.
        return await store.runs.commit(
            commits, () if any(map(_takes_away, commits)) else partitions
        )

    return commit


def _takes_away(commit: RunCommit) -> bool:
    parts = (commit.cancel_keys, commit.cancel_all, commit.suspend is not None, commit.version)
    return any(parts)


def _commit_again(workload: Workload, number: int) -> Do:
    commits = workload.commits[-1 - number % len(workload.commits)] if workload.commits else []
    return lambda store: store.runs.commit(commits)


def _claim_nodes(workload: Workload, request: ClaimRequest) -> Do:
    async def claim(store: Store) -> Any:
        claimed = await store.jobs.claim(request)
        for job in claimed.jobs:
            assert job.node is not None
            entry = (job.namespace, job.node.run, job.claim)
            if entry not in workload.node_claims:
                workload.node_claims.append(entry)
        return claimed

    return claim


def _work_on_nodes(
    workload: Workload, request: ClaimRequest, hows: tuple[str, ...], partition: Partition
) -> Do:
    """Claim, and settle at once what was claimed, each run in one step."""
    token, data = next(workload.tokens), new_id().encode()
    claim = _claim_nodes(workload, request)

    def then(number: int, run: RunId) -> Finishes | Continues | Retries:
        key = KEYS[number % len(KEYS)]
        new = _node_job(workload, request.namespace, run, key, partition, 2, 0)
        return _then(hows[number % len(hows)], number, new)

    async def work(store: Store) -> Any:
        claimed = await claim(store)
        by_run: dict[RunId, list[NodeSettlement]] = {}
        for number, job in enumerate(claimed.jobs):
            run = job.node.run
            settlement = NodeSettlement(claim=job.claim, job_outcome=then(number, run))
            by_run.setdefault(run, []).append(settlement)
        commits = []
        for run, settlements in by_run.items():
            known = (await store.queries.get_runs([(request.namespace, run)]))[0]
            assert known is not None, "its job was there"
            commits.append(
                RunCommit(
                    namespace=request.namespace,
                    run=run,
                    expected=known.number,
                    token=token,
                    events=(NewEvent(data=data),),
                    status=RunStatus.RUNNING,
                    settlements=tuple(settlements),
                )
            )
        return claimed, await store.runs.commit(commits, [partition.text])

    return work


def _then(how: str, number: int, new: NewJob) -> Finishes | Continues | Retries:
    match how:
        case "ends":
            return Finishes()
        case "continues":
            return Continues(job=new)
        case _:
            return Retries(outcome=REPEATS[number % len(REPEATS)])


def _renew_nodes(workload: Workload, worker: WorkerId) -> Do:
    claims = list({claim.id: claim for _, _, claim in workload.node_claims[-6:]}.values())
    return lambda store: store.jobs.renew(worker, claims, LEASE)


def _operate_on_nodes(workload: Workload, change: lifecycle.Transition, number: int) -> Do:
    ids = [workload.node_jobs[-1 - number % len(workload.node_jobs)]] if workload.node_jobs else []
    return lambda store: store.admin.change_jobs(change, None, ids)


def _save_step(workload: Workload, number: int, name: str) -> Do:
    if not workload.node_claims:
        return lambda store: store.now()
    _, run, claim = workload.node_claims[-1 - number % len(workload.node_claims)]
    owner = f"{run}:{claim.id}"
    workload.owners.add(owner)
    value = new_id().encode()
    return lambda store: store.runs.save_step(claim, owner, StoredStep(name=name, value=value))


def _load(workload: Workload, number: int | None) -> Do:
    wanted = [EventsAfter(namespace=space, id=id, number=number) for space, id in workload.runs]
    return lambda store: store.runs.load(wanted)


def _prune_runs(workload: Workload, namespace: str, seconds: int) -> Do:
    async def prune(store: Store) -> None:
        # Whether children count among the runs removed is each backend's own affair.
        await store.maintenance.prune_runs(namespace, dict.fromkeys(ENDED, seconds * SECOND), LIMIT)

    return prune


RUN_PREPARE: dict[str, Callable[..., Do]] = {
    "submit": _submit,
    "commit": _commit,
    "commit again": _commit_again,
    "claim nodes": _claim_nodes,
    "work on nodes": _work_on_nodes,
    "renew nodes": _renew_nodes,
    "operate on nodes": _operate_on_nodes,
    "save step": _save_step,
    "load": _load,
    "page waits": page_waits,
    "prune runs": _prune_runs,
}


def _place(number: int) -> tuple[str, RunId]:
    return NAMESPACES[number % 7 == 6], RUNS[number % len(RUNS)]


def _known(workload: Workload, number: int) -> tuple[str, RunId]:
    """One of the runs ever submitted, the youngest under the lowest numbers."""
    return workload.runs[-1 - number % len(workload.runs)]


def random_run(
    workload: Workload, namespace: str, id: RunId, starts: Starts, status: RunStatus, **changes: Any
) -> NewRun:
    if (namespace, id) not in workload.runs:
        workload.runs.append((namespace, id))
    return NewRun(
        id=id,
        namespace=namespace,
        flow="orders",
        version="v1",
        status=status,
        events=(NewEvent(data=new_id().encode(), value=b"input"),),
        summary=new_id().encode(),
        **_started(workload, namespace, id, starts),
        **changes,
    )


def _started(workload: Workload, namespace: str, run: RunId, starts: Starts) -> dict[str, Any]:
    waits = [
        wait if seconds is None else replace(wait, due_at=workload.clock() + seconds * SECOND)
        for wait, seconds in starts.waits
    ]
    children = []
    for key, status in starts.children:
        child = RunId(f"{run}/{key}~{new_id()}")
        parent = Parent(run=run, key=key)
        children.append(random_run(workload, namespace, child, Starts(), status, parent=parent))
        waits.append(NewWait(key=key, type=WaitType.CHILD, name=child))
    return {
        "jobs": tuple(
            _node_job(workload, namespace, run, key, partition, priority, seconds)
            for key, partition, priority, seconds in starts.jobs
        ),
        "waits": tuple({wait.key: wait for wait in waits}.values()),
        "children": tuple(children),
    }


def _node_job(
    workload: Workload,
    namespace: str,
    run: RunId,
    key: str,
    partition: Partition,
    priority: int,
    seconds: int,
) -> NewJob:
    id = JobId(new_id())
    workload.node_jobs.append(id)
    return NewJob(
        id=id,
        namespace=namespace,
        partition=partition,
        priority=priority,
        aging=AGING,
        input=f'[["{key}"],{{}}]'.encode(),
        input_hash=7,
        delay=seconds * SECOND,
        node=NodeRef(run=run, key=key),
    )


def _draft(workload: Workload, place: tuple[str, RunId], step: Step) -> Callable[[int], RunCommit]:
    """The commit, but for the event that it expects."""
    namespace, run = place
    started = _started(workload, namespace, run, step.starts)
    settlements = _settlements(workload, place, step)
    token = next(workload.tokens)
    events = tuple(
        NewEvent(data=new_id().encode(), value=b"output" if number % 2 else None)
        for number in range(step.events)
    )
    return lambda expected: RunCommit(
        namespace=namespace,
        run=run,
        expected=expected,
        token=token,
        events=events,
        status=step.status,
        settlements=settlements,
        close_waits=step.close_waits,
        cancel_keys=step.cancel_keys,
        cancel_all=step.cancel_all,
        suspend=step.suspend,
        version=step.version,
        snapshot=Snapshot(number=expected, data=b"snapshot") if step.snapshot else None,
        **started,
    )


def _settlements(
    workload: Workload, place: tuple[str, RunId], step: Step
) -> tuple[NodeSettlement, ...]:
    mine = [claim for *owner, claim in workload.node_claims if tuple(owner) == place]
    chosen: dict[JobId, NodeSettlement] = {}
    for number, how, partition in step.settles:
        if not mine:
            break
        claim: Claim = mine[-1 - number % len(mine)]
        new = _node_job(workload, *place, KEYS[number % len(KEYS)], partition, 2, 0)
        then = _then(how, number, new)
        chosen[claim.id] = NodeSettlement(claim=claim, job_outcome=then)
    return tuple(chosen.values())


# How they are drawn


def drawn_starts(random: Random) -> Starts:
    jobs, waits = random.choice([0, 1, 2]), random.choice([0, 0, 1, 2])
    return Starts(
        jobs=tuple(
            (
                random.choice(KEYS),
                random.choice(NODE_PARTITIONS),
                random.randint(1, 5),
                random.choice([0, 0, 0, 15]),
            )
            for _ in range(jobs)
        ),
        waits=tuple(drawn_wait(random, key) for key in random.sample(KEYS, waits)),
        children=tuple(
            (key, random.choice([*LIVE, *LIVE, RunStatus.FAILED]))
            for key in random.sample(KEYS, random.choice([0, 0, 0, 1]))
        ),
    )


def _step(random: Random) -> Step:
    suspend = random.choice([None] * 6 + [True, False])
    version = random.choice([None] * 9 + ["v2"])
    # A step that pauses its run or moves it to another version starts nothing.
    is_alone = suspend is True or version is not None
    status = random.choice([*LIVE] * 4 + [RunStatus.FAILED, RunStatus.COMPLETED])
    settles = tuple(
        (random.randint(0, 9), random.choice(HOWS), random.choice(NODE_PARTITIONS))
        for _ in range(0 if is_alone else random.choice([0, 1, 1, 2]))
    )
    return Step(
        run=random.randint(0, 5),
        late=random.choice([0] * 9 + [-1, 1]),
        events=random.choice([1, 1, 1, 2, 0]),
        status=RunStatus.PAUSED if suspend else status,
        settles=settles,
        starts=Starts() if is_alone else drawn_starts(random),
        close_waits=tuple(random.sample(KEYS, random.choice([0, 0, 1, 2]))),
        cancel_keys=tuple(random.sample(KEYS, random.choice([0, 0, 0, 1, 2]))),
        cancel_all=random.choice([False] * 7 + [True]),
        suspend=suspend,
        version=version,
        snapshot=random.choice([False] * 5 + [True]),
    )


def _request(random: Random) -> ClaimRequest:
    return ClaimRequest(
        namespace=NAMESPACES[random.random() < 0.2],
        worker=random.choice(WORKERS),
        partitions=[
            PartitionClaim(
                partition=with_suspicion(partition.text, suspicion),
                queue=partition.queue,
                rules=random.choice(RULES),
            )
            for partition in random.sample(NODE_PARTITIONS, random.randint(2, 4))
            for suspicion in random.sample(SUSPICIONS, random.randint(1, 3))
        ],
        is_alone=random.random() < 0.5,
        limit=random.choice([1, 2, 9]),
        lease=random.choice([LEASE, 10 * SECOND]),
    )


def _submit_arguments(random: Random) -> tuple[Any, ...]:
    policies = ["fail", "use_existing", "replace"]
    return random.randint(0, 9), drawn_starts(random), random.choice(policies), random.choice(LIVE)


def _commit_arguments(random: Random) -> tuple[Any, ...]:
    partitions = tuple(partition.text for partition in random.sample(NODE_PARTITIONS, 2))
    return tuple(_step(random) for _ in range(random.choice([1, 1, 1, 2, 3]))), partitions


RUN_OFTEN: tuple[Draw, ...] = (
    lambda random: ("submit", *_submit_arguments(random)),
    lambda random: ("commit", *_commit_arguments(random)),
    lambda random: ("commit", *_commit_arguments(random)),
    lambda random: ("claim nodes", _request(random)),
    lambda random: ("claim nodes", _request(random)),
    lambda random: (
        "work on nodes",
        _request(random),
        tuple(random.choices(HOWS, k=3)),
        random.choice(NODE_PARTITIONS),
    ),
    lambda random: ("advance", random.choice([1, 5, 15, 30])),
)
RUN_SELDOM: tuple[Draw, ...] = (
    lambda random: ("commit again", random.randint(0, 3)),
    lambda random: ("renew nodes", random.choice(WORKERS)),
    lambda random: (
        "operate on nodes",
        random.choice(
            [
                lifecycle.Transition.ABORT,
                lifecycle.Transition.DISABLE,
                lifecycle.Transition.RESUME,
                lifecycle.Transition.RETRY,
            ]
        ),
        random.randint(0, 5),
    ),
    lambda random: ("save step", random.randint(0, 5), random.choice(["weigh", "label"])),
    lambda random: ("load", random.choice([None, 0, 2])),
    lambda random: ("prune runs", NAMESPACES[0], random.choice([0, 30])),
    lambda random: ("call", "maintenance.due_waits", random.choice(NAMESPACES), LIMIT),
    lambda random: ("call", "queries.list_waits", drawn_filter(random), LIMIT),
    lambda random: ("page waits", drawn_filter(random), random.choice([1, 2, 3])),
    lambda random: ("call", "jobs.requeue_unknown", random.choice(WORKERS), []),
    lambda random: (
        "call",
        "maintenance.promote_due",
        random.choice(NAMESPACES),
        LIMIT,
    ),
    lambda random: (
        "call",
        "maintenance.take_over_expired",
        random.choice(NAMESPACES),
        LIMIT,
    ),
    lambda random: ("call", "maintenance.poll", random.choice(NAMESPACES)),
    lambda random: ("call", "admin.live_flows", random.choice([None, *NAMESPACES])),
)


async def clear_runs(store: Store) -> None:
    """End all runs, with all that is theirs, and remove them."""
    tokens = iter(range(-1, -100_000, -1))
    unended = await store.queries.list_runs(RunFilter(is_ended=False), 10_000)
    await store.runs.commit(
        [
            RunCommit(
                namespace=run.namespace,
                run=run.id,
                expected=run.number,
                token=next(tokens),
                events=(),
                status=RunStatus.CANCELLED,
                cancel_all=True,
            )
            for run in unended
        ]
    )
    for namespace in NAMESPACES:
        await store.maintenance.prune_runs(namespace, dict.fromkeys(ENDED, 0 * SECOND), 10_000)
