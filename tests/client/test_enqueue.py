"""Enqueueing: what a call becomes, and what of it a worker gets."""

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    AsyncClient,
    FingerprintTaken,
    InvalidInput,
    JobNotFound,
    PayloadTooLarge,
    PerdureError,
    Retry,
    Status,
    StoreError,
    task,
)
from perdure.model.payload import from_json
from perdure.model.retry import decode_policy
from tests.client.counted_store import CountedStore
from tests.client.tasks import Point, add, echo, embed, for_user, mirror, named
from tests.support.refusal import refused


class TestEnqueue:
    async def test_hands_the_call_to_a_worker(self, client, worker):
        handle = await client.enqueue(add, 1, b=2)

        job = await worker.claim()
        assert job.claim.id == handle.id
        assert (job.partition.task, job.partition.queue) == ("add", "default")
        assert from_json(job.input) == [[1, 2], {}]
        assert handle.is_new

    async def test_takes_a_registered_task_by_name(self, client, worker):
        await client.enqueue("embed", "hello")

        job = await worker.claim()
        assert (job.partition.task, job.partition.queue, job.partition.tags) == (
            "embed",
            "embeddings",
            ("gpu",),
        )

    async def test_keeps_every_option(self, client, worker):
        handle = await client.enqueue(
            add.options(
                fingerprint="one",
                group="run-1",
                deadline="1h",
                max_attempts=4,
                priority=5,
                queue="slow",
                retries=Retry(2, first="3s"),
                timeout="10s",
                tags=["big", "arm"],
            ),
            1,
        )

        record = await client.jobs.get(handle.id)
        assert (record.fingerprint, record.group, record.priority) == ("one", "run-1", 5)
        assert (record.queue, record.tags, record.max_attempts) == ("slow", ("arm", "big"), 4)
        assert record.deadline_at == record.created_at + timedelta(hours=1)
        policy = decode_policy((await worker.claim()).policy or b"")
        assert policy.retry == Retry(2, first="3s")
        assert policy.timeout == timedelta(seconds=10)

    async def test_passes_a_parameter_with_the_name_of_an_option_in_kwargs(self, client):
        handle = await client.enqueue(named.options(queue="other"), queue="mine", text="t")

        record = await client.jobs.get(handle.id)
        assert record.queue == "other"
        assert record.kwargs == {"queue": "mine", "text": "t"}

    async def test_stores_typed_values(self, client):
        handle = await client.enqueue(mirror, Point(1, 2))

        assert (await client.jobs.get(handle.id)).args == [{"x": 1, "y": 2}]

    async def test_computes_limit_keys_from_the_input(self, client, worker):
        await client.enqueue(for_user, user="ann", text="x")

        assert (await worker.claim()).partition.keys == ("user:ann",)

    async def test_opens_the_store_on_first_use(self, store_url):
        client = AsyncClient(store_url)

        handle = await client.enqueue(add, 1)

        assert await handle.status() is Status.WAITING
        await client.close()

    async def test_is_refused_once_the_client_is_closed(self, store):
        client = await AsyncClient(store).open()
        await client.close()

        with refused("client.closed", StoreError):
            await client.enqueue(add, 1)

    async def test_shares_one_insert_when_many_enqueue_at_once(self, store):
        counted = CountedStore(store)
        # Even memory takes a moment here, as every other store does.
        counted.after["jobs.insert"] = lambda: asyncio.sleep(0)
        async with AsyncClient(counted.as_store()) as client:
            handles = await asyncio.gather(*(client.enqueue(add, n) for n in range(100)))

            # The first goes alone, the others gather while it is being written.
            assert counted.calls["jobs.insert"] <= 2
            assert [(await client.jobs.get(each.id)).args for each in handles[::33]] == [
                [0],
                [33],
                [66],
                [99],
            ]

    async def test_does_not_fail_its_neighbours(self, client):
        await client.enqueue(add.options(fingerprint="taken"), 1)

        outcomes = await asyncio.gather(
            client.enqueue(add, 2),
            client.enqueue(add.options(fingerprint="taken", on_conflict="fail"), 3),
            client.enqueue(add, 4),
            return_exceptions=True,
        )

        assert [type(outcome).__name__ for outcome in outcomes] == [
            "AsyncJobHandle",
            "FingerprintTaken",
            "AsyncJobHandle",
        ]

    def test_reserves_no_parameter_names(self):
        parameters = inspect.signature(AsyncClient.enqueue).parameters.values()

        assert not [each for each in parameters if each.kind is each.KEYWORD_ONLY]

    async def test_takes_parameters_that_are_called_like_options(self, client):
        @task
        def send(task: str, self: str, kwargs: int, delay: int, connection: str) -> None: ...

        given: dict[str, Any] = {
            "task": "t",
            "self": "s",
            "kwargs": 1,
            "delay": 2,
            "connection": "c",
        }
        handle = await client.enqueue(send.options(delay="1h"), **given)

        assert (await client.jobs.get(handle.id)).args == list(given.values())


class TestEnqueueMany:
    async def test_makes_a_job_of_each_input_in_order(self, client):
        handles = await client.enqueue_many(echo.options(group="g"), ["a", ["b"], {"c": 1}, ("d",)])

        records = [await client.jobs.get(handle.id) for handle in handles]
        assert [record.args for record in records] == [["a"], [["b"]], [{"c": 1}], ["d"]]
        assert {record.group for record in records} == {"g"}
        assert [handle.id for handle in handles] == sorted(handle.id for handle in handles)

    async def test_spreads_a_tuple_over_the_parameters(self, client):
        [handle] = await client.enqueue_many(add, [(1, 2)])

        assert (await client.jobs.get(handle.id)).args == [1, 2]

    async def test_gives_kwargs_to_every_call(self, client):
        handles = await client.enqueue_many(add, [1, 2], kwargs={"b": 9})

        assert [(await client.jobs.get(each.id)).args for each in handles] == [[1, 9], [2, 9]]

    async def test_writes_nothing_when_one_input_is_bad(self, client):
        with pytest.raises(InvalidInput) as refusal:
            await client.enqueue_many(add, [1, 2, "three"])

        [fault] = refusal.value.faults
        assert fault.where[:2] == ("inputs", 2)
        assert refusal.value.as_data()["faults"][0]["where"] == fault.where
        assert await client.jobs.count() == 0

    async def test_says_which_input_is_too_large(self, store):
        async with AsyncClient(store, payload_max_bytes=100) as client:
            with pytest.raises(PayloadTooLarge) as refusal:
                await client.enqueue_many(echo, ["a", "b" * 200])

            assert [fault.where for fault in refusal.value.faults] == [("inputs", 1)]
            assert str(refusal.value).startswith("inputs.1: ")
            assert await client.jobs.count() == 0

    async def test_writes_nothing_when_the_store_refuses_one(self, client):
        await client.enqueue(add.options(fingerprint="2"), 2)

        with pytest.raises(FingerprintTaken, match="is live with fingerprint '2'"):
            await client.enqueue_many(add.options(fingerprint=str, on_conflict="fail"), [1, 2, 3])

        assert await client.jobs.count() == 1

    async def test_takes_a_fingerprint_for_each_input(self, client):
        old = await client.enqueue(add.options(fingerprint="2"), 2)

        handles = await client.enqueue_many(add.options(fingerprint=str), [1, 2])

        assert handles[1].id == old.id
        assert [handle.is_new for handle in handles] == [True, False]

    async def test_takes_no_inputs(self, client):
        assert await client.enqueue_many(add, []) == []

    async def test_is_one_insert(self, store):
        counted = CountedStore(store)
        async with AsyncClient(counted.as_store()) as client:
            await client.enqueue_many(add, range(3_000))

            assert counted.calls["jobs.insert"] == 1
            assert await client.jobs.count(status="waiting") == 3_000


class TestCodec:
    async def test_writes_and_reads_payloads_through_it(self, store, worker):
        async with AsyncClient(store, codec=Reversed()) as client:
            handle = await client.enqueue(add, 1)

            job = await worker.claim()
            assert job.input == b"]}{,]1[["
            assert (await client.jobs.get(handle.id)).args == [1]

    async def test_says_so_when_a_payload_needs_another(self, store, client):
        async with AsyncClient(store, codec=Reversed()) as other:
            handle = await other.enqueue(add, 1)

        record = await client.jobs.get(handle.id)
        with refused("payload.unreadable", PerdureError):
            _ = record.args


class TestPayloadMaxBytes:
    async def test_bounds_the_input(self, store):
        async with AsyncClient(store, payload_max_bytes=20) as client:
            await client.enqueue(echo, "short")

            with pytest.raises(PayloadTooLarge, match="the input of task 'echo' has 28 bytes"):
                await client.enqueue(echo, "longer than that...")


class TestJob:
    async def test_is_not_found_under_an_unknown_id(self, client):
        with refused("job.not_found", JobNotFound, job_id="nobody"):
            await client.jobs.get("nobody")


class Reversed:
    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


def test_a_task_is_still_a_function():
    assert add(1, 2) == 3
    assert inspect.iscoroutinefunction(embed.function)
    value: Any = echo("x")
    assert value == "x"
