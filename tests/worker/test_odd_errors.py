"""Exceptions whose own code fails: the attempt ends all the same, and its slot is free."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Flow, JobFailed, Retry, RetryLater, task


class Evasive(Exception):
    """Has every attribute one asks for, and gives none."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no {name} for you")


class Closed(Exception):
    """Cannot even be asked for what every exception has."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(f"no {name} for you")


class Mute(Exception):
    """Ends whoever tries to read it."""

    def __str__(self) -> str:
        raise SystemExit("not a word")

    __repr__ = __str__


class Unfinished(RetryLater):
    """Forgot to call what sets its attributes."""

    def __init__(self) -> None:
        pass


ODD: dict[str, type[Exception]] = {
    each.__name__: each for each in (Evasive, Closed, Mute, Unfinished)
}


@task(name="work")
async def work_async(odd: str) -> None:
    raise ODD[odd]


@task(name="work")
def work_sync(odd: str) -> None:
    raise ODD[odd]


@task(name="work", isolation="process")
def work_in_process(odd: str) -> None:
    raise ODD[odd]


@pytest.mark.parametrize(
    "work", [work_async, work_sync, work_in_process], ids=lambda it: it.__name__
)
async def test_retries_an_error_that_cannot_be_read_ends_its_attempt(client, start_worker, work):
    worker = await start_worker(work, concurrency=1)
    for odd in ODD:
        with pytest.raises(JobFailed) as caught:
            await (await client.enqueue(work, odd)).result(15)
        assert caught.value.failure is not None
        assert caught.value.failure.type == f"{__name__}.{odd}"

    assert worker.worker.stats().running == 0


async def test_retries_follow_the_policy_if_an_error_can_at_least_be_told_apart(
    client, start_worker
):
    tries: list[str] = []

    @task(retries=Retry(1, first=0))
    async def work(odd: str) -> str:
        tries.append(odd)
        if len(tries) == 1:
            raise ODD[odd]
        return "done"

    await start_worker(work)

    assert await (await client.enqueue(work, "Mute")).result(10) == "done"


@task
async def cancel_oneself(value: int) -> int:
    """Returns, but has asked for its own end before."""
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    return value


@task
async def cancel_oneself_later(value: int) -> int:
    """Leaves a timer behind that cancels whatever its task does by then."""
    current = asyncio.current_task()
    assert current is not None
    asyncio.get_running_loop().call_soon(current.cancel)
    return value


@pytest.mark.parametrize("work", [cancel_oneself, cancel_oneself_later], ids=lambda it: it.__name__)
async def test_a_body_that_cancels_its_task_too_late_counts(client, start_worker, work):
    flow = Flow("twice").then(work, name="a").then(work, name="b").build()
    await start_worker(work, flows=[flow])

    assert await (await client.enqueue(work, 1)).result(10) == 1
    assert await (await client.submit(flow, 2)).result(10) == 2
