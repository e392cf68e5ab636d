"""What comes back to the waiter: a typed result, or a typed error with all that is known."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import (
    AsyncJobHandle,
    JobCancelled,
    JobDead,
    JobDisabled,
    JobFailed,
    JobNotFound,
    JobUnsuccessful,
    NoResult,
    PerdureError,
)
from perdure.engine.failures import describe
from perdure.model.outcome import Retried
from perdure.model.payload import from_json
from tests.client.played_worker import MINUTE
from tests.client.tasks import Point, add, echo, mirror
from tests.support.refusal import refused


def chained() -> Exception:
    try:
        try:
            raise KeyError("deep")
        except KeyError as cause:
            raise ValueError("shallow") from cause
    except ValueError as error:
        return error


class TestResult:
    async def test_comes_back_as_it_went_in(self, client, worker):
        values = [0, False, "", [], {}, None, 1.5, "x", {"a": [None]}]
        handles = await client.enqueue_many(echo, values)
        for job in await worker.claim_all():
            [value], _ = from_json(job.input)
            await worker.complete(job, value)

        results = await client.jobs.results(handles, timeout=10)

        assert [(type(each), each) for each in results] == [(type(each), each) for each in values]

    async def test_has_the_type_that_the_task_declares(self, client, worker):
        handle = await client.enqueue(mirror, Point(1, 2))
        await worker.complete(await worker.claim(), {"x": 2, "y": 1})

        assert await handle.result(timeout=10) == Point(2, 1)
        assert await client.jobs.handle(handle.id, mirror).result(timeout=10) == Point(2, 1)

    async def test_is_plain_values_where_no_type_is_known_or_fits(self, client, worker):
        handle: AsyncJobHandle[Any] = await client.enqueue(mirror, Point(1, 2))
        await worker.complete(await worker.claim(), "not a point")

        assert await handle.result(timeout=10) == "not a point"
        assert await client.jobs.handle(handle.id).result(timeout=10) == "not a point"


class TestFailure:
    async def test_comes_back_with_type_message_traceback_and_causes(self, client, worker):
        handle = await client.enqueue(add, 1)
        await worker.fail(await worker.claim(), chained())

        with pytest.raises(JobFailed, match="failed: ValueError: shallow") as caught:
            await handle.result(timeout=10)

        failure = caught.value.failure
        assert failure is not None
        assert (failure.type, failure.message) == ("ValueError", "shallow")
        assert [(cause.type, cause.message) for cause in failure.causes] == [("KeyError", "'deep'")]
        assert 'raise ValueError("shallow")' in caught.value.__notes__[0]
        assert caught.value.job_id == handle.id

    async def test_of_the_last_attempt_says_that_it_is_dead(self, client, worker):
        handle = await client.enqueue(add.options(max_attempts=2), 1)
        await worker.settle(await worker.claim(), Retried(failure=describe(OSError("first"))))
        await worker.bury(await worker.claim(), OSError("second"))

        with refused("job.dead", JobDead, attempt=2, reason="OSError: second"):
            await handle.result(timeout=10)

        history = await handle.attempts()
        assert [(each.attempt, each.failure.message) for each in history] == [
            (1, "first"),
            (2, "second"),
        ]
        assert {each.worker for each in history} == {worker.id}

    async def test_of_an_unknown_job_has_no_history(self, client):
        with pytest.raises(JobNotFound):
            await client.jobs.attempts("nobody")

    async def test_of_a_cancelled_job_is_typed(self, client, worker):
        handle = await client.enqueue(add, 1)
        await handle.cancel()

        with pytest.raises(JobCancelled, match="was cancelled"):
            await handle.result(timeout=10)

    async def test_of_a_disabled_job_says_how_to_go_on(self, client):
        handle = await client.enqueue(add, 1)
        await client.jobs.disable(handle.id)

        with pytest.raises(JobDisabled, match=r"client\.jobs\.enable\("):
            await handle.result(timeout=10)

    async def test_is_caught_by_its_base(self):
        assert issubclass(JobDead, JobFailed)
        assert issubclass(JobFailed, JobUnsuccessful)
        assert issubclass(JobUnsuccessful, PerdureError)


class TestResults:
    async def test_raise_the_first_error(self, client, worker):
        handles = await client.enqueue_many(echo, [1, 2])
        good, bad = await worker.claim_all()
        await worker.complete(good, 1)
        await worker.fail(bad, ValueError("no"))

        with pytest.raises(JobFailed):
            await client.jobs.results(handles, timeout=10)

    async def test_hold_errors_when_asked_to(self, client, worker):
        handles = await client.enqueue_many(echo, [1, 2])
        good, bad = await worker.claim_all()
        await worker.complete(good, 1)
        await worker.fail(bad, ValueError("no"))

        first, second = await client.jobs.results(handles, timeout=10, return_errors=True)

        assert first == 1
        assert isinstance(second, JobFailed)


class TestResultOf:
    async def test_returns_a_completed_result_for_the_same_task_and_input(self, client, worker):
        await client.enqueue(mirror, Point(1, 2))
        await worker.complete(await worker.claim(), {"x": 2, "y": 1})

        assert await client.jobs.find_result(mirror, [Point(1, 2)]) == Point(2, 1)
        assert await client.jobs.find_result(mirror, [], {"point": Point(1, 2)}) == Point(2, 1)

    async def test_returns_the_latest(self, client, worker):
        for value in ("old", "new"):
            await client.enqueue(echo, 1)
            await worker.complete(await worker.claim(), value)

        assert await client.jobs.find_result(echo, [1]) == "new"

    async def test_raises_when_there_is_none(self, client, worker):
        await client.enqueue(echo, 1)
        await worker.fail(await worker.claim(), ValueError())

        with refused("task.no_result", NoResult, task="echo"):
            await client.jobs.find_result(echo, [1])
        assert await client.jobs.find_result(echo, [1], default="nothing") == "nothing"
        assert await client.jobs.find_result(echo, [1], default=None) is None

    async def test_tells_a_result_of_none_from_no_result(self, client, worker):
        await client.enqueue(echo, 1)
        await worker.complete(await worker.claim(), None)

        assert await client.jobs.find_result(echo, [1], default="nothing") is None


class TestRecord:
    async def test_shows_input_and_result(self, client, worker):
        handle = await client.enqueue(add, 1, b=2)
        with refused("job.not_completed", NoResult, job_id=handle.id, status="waiting"):
            _ = (await client.jobs.get(handle.id)).result
        await worker.complete(await worker.claim(), 3)

        record = await client.jobs.get(handle.id)

        assert (record.args, record.kwargs, record.result) == ([1, 2], {}, 3)
        assert (record.worker, record.attempt) == (worker.id, 1)

    async def test_shows_who_holds_it(self, client, worker):
        handle = await client.enqueue(add, 1)
        await worker.claim()

        record = await handle.record()

        assert record.worker == worker.id
        assert record.lease_until is not None
        assert record.started_at is not None
        assert record.lease_until == record.started_at + MINUTE
