"""On any sequence of operations a store agrees with memory, which is the specification."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from perdure.clock import ManualClock
from perdure.errors import PerdureError
from perdure.model.job import Claimed, Expired, JobFilter, StatusChange, TakenOver
from perdure.model.run import (
    CommitAnswer,
    CommitResult,
    FlowCount,
    RunFilter,
    StoredStep,
    Wait,
    WaitFilter,
    WaitType,
)
from perdure.store.contract import EventsAfter, Store
from perdure.store.memory.store import MemoryStore
from perdure.testing.contract.operations.jobs import (
    StoreCall,
    clear,
    random_operations,
    random_run_operations,
    random_schedule_operations,
)
from perdure.testing.contract.operations.schedules import contents_of_schedules
from perdure.testing.contract.operations.workload import NAMESPACES, Do, Workload

SEQUENCES = 16
OPERATIONS_EACH = 60


@pytest.mark.parametrize(
    "draw", [random_operations, random_run_operations, random_schedule_operations]
)
async def test_agrees_with_memory_on_any_sequence_of_operations(
    store: Store, clock: ManualClock, draw: Callable[[Random, int], list[StoreCall]]
) -> None:
    """The same sequences in every run; ``PERDURE_TEST_SEED`` chooses others to search further."""
    first = int(os.environ.get("PERDURE_TEST_SEED", "0"))
    for seed in range(first, first + SEQUENCES):
        sequence = draw(Random(seed), OPERATIONS_EACH)
        difference = await first_difference(store, clock, sequence)
        if difference is not None:
            sequence = await shortened(store, clock, sequence)
            difference = await first_difference(store, clock, sequence)
            calls = "\n".join(f"{each.name} {each.arguments}" for each in sequence)
            pytest.fail(f"after\n{calls}\n{difference}")


async def first_difference(
    subject: Store, clock: ManualClock, sequence: list[StoreCall]
) -> str | None:
    """Do the same to the subject and to memory until they disagree."""
    await clear(subject, clock)
    memory = MemoryStore("memory://", clock)
    workload = Workload(clock)
    for operation in sequence:
        do = operation.prepare(workload)
        expected, answered = await answer_of(do, memory), await answer_of(do, subject)
        if answered != expected:
            return f"memory and {subject.url} answered {differing(expected, answered)}"
    expected, found = await contents_of(memory, workload), await contents_of(subject, workload)
    for name in expected:
        if found[name] != expected[name]:
            difference = differing(expected[name], found[name])
            return f"{name} in memory and in {subject.url}: {difference}"
    return None


async def shortened(
    subject: Store, clock: ManualClock, sequence: list[StoreCall]
) -> list[StoreCall]:
    """Leave out every operation that the difference does not need."""
    for index in reversed(range(len(sequence))):
        shorter = sequence[:index] + sequence[index + 1 :]
        if await first_difference(subject, clock, shorter) is not None:
            sequence = shorter
    return sequence


async def answer_of(do: Do, store: Store) -> Any:
    """What an operation answered; where several reasons refuse it, any of them may be named."""
    try:
        return comparable(await do(store))
    except PerdureError as error:
        return type(error)


async def contents_of(store: Store, workload: Workload) -> dict[str, Any]:
    """Everything that can be read from a store."""
    ids = [job.id for job in workload.jobs]
    contents: dict[str, Any] = {
        "jobs": [await store.queries.get_job(None, id) for id in ids],
        "states": await store.queries.job_states(ids),
        "history": [await store.queries.failed_attempts(id) for id in ids],
        "listed": await store.queries.list_jobs(JobFilter(), 1000),
        "depth": await store.admin.queue_stats(None),
        "paused": await store.admin.paused_queues(None),
        "workers": await store.queries.workers(None),
        "results": [
            await store.queries.find_result(
                job.namespace, job.partition.task, job.input_hash, job.input
            )
            for job in workload.jobs
        ],
    }
    for namespace in NAMESPACES:
        contents[f"{namespace} poll"] = await store.maintenance.poll(namespace)
        contents[f"{namespace} depth"] = await store.admin.queue_stats(namespace)
        contents[f"{namespace} count"] = await store.queries.count_jobs(
            JobFilter(namespace=namespace)
        )
        contents[f"{namespace} group"] = await store.queries.list_jobs(
            JobFilter(namespace=namespace, group="run-1"), 1000
        )
    contents |= await contents_of_runs(store, workload) | await contents_of_schedules(store)
    return {name: comparable(value) for name, value in contents.items()}


async def contents_of_runs(store: Store, workload: Workload) -> dict[str, Any]:
    contents: dict[str, Any] = {
        "runs": await store.queries.get_runs(workload.runs),
        "live flows": await store.admin.live_flows(None),
        "steps": {owner: await store.runs.load_steps(owner) for owner in sorted(workload.owners)},
        "node jobs": [await store.queries.get_job(None, id) for id in workload.node_jobs],
        "node history": [await store.queries.failed_attempts(id) for id in workload.node_jobs],
    }
    for number in (None, 0):
        wanted = [EventsAfter(namespace=place, id=id, number=number) for place, id in workload.runs]
        contents[f"loaded from {number}"] = await store.runs.load(wanted)
    for place, id in workload.runs:
        contents[f"{place} {id} jobs"] = await store.queries.run_jobs(place, id)
        contents[f"{place} {id} waits"] = await store.queries.run_waits(place, id)
    for place in NAMESPACES:
        filter = RunFilter(namespace=place)
        contents[f"{place} runs"] = await store.queries.list_runs(filter, 1000)
        contents[f"{place} runs counted"] = await store.queries.count_runs(filter)
        contents[f"{place} due"] = await store.maintenance.due_waits(place, 1000)
    for found_type in (None, *WaitType):
        contents[f"{found_type} waits"] = await store.queries.list_waits(
            WaitFilter(type=found_type), 1000
        )
    return contents


def differing(expected: Any, found: Any) -> str:
    """Only what is not the same, since contents are large."""
    pairs: list[tuple[Any, tuple[Any, Any]]]
    match expected, found:
        case (list(), list()) if len(expected) == len(found):
            pairs = list(enumerate(zip(expected, found, strict=True)))
        case (dict(), dict()) if expected.keys() == found.keys():
            pairs = [(key, (expected[key], found[key])) for key in expected]
        case _:
            return f"\n{expected}\nand\n{found}"
    return "; ".join(f"{key}: {differing(*pair)}" for key, pair in pairs if pair[0] != pair[1])


def comparable(value: Any) -> Any:
    """The value, sorted where order is free."""
    match value:
        case list() if value and isinstance(value[0], StatusChange | TakenOver | Expired):
            return sorted((comparable(each) for each in value), key=lambda each: str(each["id"]))
        case list() if value and isinstance(value[0], Wait | FlowCount | StoredStep):
            return sorted((comparable(each) for each in value), key=str)
        case CommitResult():
            return value.state, sorted(claim.id for claim in value.stale)
        case CommitAnswer():
            if not value.results:
                return None  # nothing was asked
            rank = value.most_urgent_rank
            return [comparable(value.results), rank and round(rank, 3), value.now]
        case list() | tuple():
            return [comparable(each) for each in value]
        case dict():
            return {key: comparable(each) for key, each in value.items()}
        case Claimed() if value.jobs:
            # Whether a limit is also said to open matters only to those who got nothing.
            return comparable(value.jobs)
        case msgspec.Struct():
            fields = value.__struct_fields__
            return {name: comparable(getattr(value, name)) for name in fields}
        case _:
            return value
