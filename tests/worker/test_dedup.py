"""Behaviour 8: a fingerprint is taken while its job lives, and results are found by their input."""

from __future__ import annotations

import pytest

from perdure import NoResult, task
from tests.worker.harness import Gate


async def test_dedup_returns_the_job_that_runs_and_starts_another_once_it_is_done(
    client, start_worker
):
    gate = Gate()

    @task
    async def work() -> str:
        await gate.pass_through()
        return "done"

    await start_worker(work)
    first = await client.enqueue(work.options(fingerprint="one"))
    await gate.reached()
    same = await client.enqueue(work.options(fingerprint="one"))
    gate.open()
    await first.result(10)
    another = await client.enqueue(work.options(fingerprint="one"))

    assert (same.id, same.is_new) == (first.id, False)
    assert another.id != first.id
    assert await another.result(10) == "done"


async def test_dedup_finds_the_result_of_the_same_input(client, start_worker):
    @task
    async def double(number: int) -> int:
        return 2 * number

    await start_worker(double)
    with pytest.raises(NoResult):
        await client.jobs.find_result(double, [4])
    await (await client.enqueue(double, 4)).result(10)

    assert await client.jobs.find_result(double, [4]) == 8
    assert await client.jobs.find_result(double, [], {"number": 4}) == 8
    with pytest.raises(NoResult):
        await client.jobs.find_result(double, [5])
