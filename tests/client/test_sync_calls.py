"""Sync methods: they encode values on the caller's thread, and pass every argument on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from perdure import (
    Client,
    Flow,
    JobQueue,
    NodeNotWaiting,
    PayloadTooLarge,
    QueuedJob,
    ResultTimeout,
    RunHandle,
    RunTimeout,
)
from perdure.operations.catalog import OPERATIONS
from tests.client.flows import keep
from tests.client.people import outside
from tests.client.tasks import Point, add, echo, mirror

asking = Flow("asking").wait_for_signal("answer").then(keep).build()
deciding = Flow("deciding").approve("Refund?", name="review", form={"type": "object"}).build()


class Watched:
    """A value that notes the thread on which it is encoded."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()

    def model_dump(self, mode: str) -> dict[str, int]:
        self.threads.add(threading.current_thread())
        return {"a": 1}


@pytest.fixture
def client(memory_url: str) -> Iterator[Client]:
    with Client(memory_url, tasks=[add, echo], flows=[asking, deciding, outside]) as client:
        yield client


@pytest.fixture
def queue(client: Client) -> Iterator[JobQueue]:
    with JobQueue(client.store_url) as queue:
        yield queue


def answered(client: Client) -> RunHandle[Any]:
    run = client.submit(asking)
    run.signal("answer")
    return run


def report(client: Client, **content: Any) -> None:
    with suppress(NodeNotWaiting):  # nobody has handed it over yet
        client.runs.report(client.submit(outside).id, "hand_over", **content)


ENCODING: dict[str, Callable[[Client, Any], Any]] = {
    "enqueue": lambda client, value: client.enqueue(echo, value),
    "enqueue_many": lambda client, value: client.enqueue_many(echo, [value]),
    "submit": lambda client, value: client.submit(asking, value),
    "run": lambda client, value: with_timeout(client, value),
    "jobs.enqueue": lambda client, value: client.jobs.enqueue(echo, [value]),
    "jobs.enqueue_many": lambda client, value: client.jobs.enqueue_many(echo, [value]),
    "jobs.find_result": lambda client, value: client.jobs.find_result(echo, [value], default=0),
    "runs.submit": lambda client, value: client.runs.submit(asking, value),
    "runs.signal": lambda client, value: client.runs.signal(
        client.submit(asking).id, "answer", value
    ),
    "runs.broadcast": lambda client, value: client.runs.broadcast("answer", value),
    "runs.report result": lambda client, value: report(client, status="completed", result=value),
    "runs.report progress": lambda client, value: report(client, progress=value),
    "runs.fork": lambda client, value: client.runs.fork(
        answered(client).id, patch={"answer": value}
    ),
    "approvals.decide": lambda client, value: client.approvals.decide(
        f"{client.submit(deciding).id}:review", "approve", data=value
    ),
    "schedules.save of a flow": lambda client, value: client.schedules.save(
        "nightly", asking, every="1h", input=value
    ),
    "schedules.save of a task": lambda client, value: client.schedules.save(
        "nightly", echo, every="1h", args=[value]
    ),
    "handle.signal": lambda client, value: client.submit(asking).signal("answer", value),
    "handle.fork": lambda client, value: answered(client).fork(patch={"answer": value}),
}


def with_timeout(client: Client, value: Any) -> None:
    with pytest.raises(RunTimeout):
        client.run(asking, value, timeout=0.001)


class TestCallersThread:
    @pytest.mark.parametrize("name", ENCODING)
    def test_encodes_values(self, client, name):
        value = Watched()

        ENCODING[name](client, value)

        assert value.threads == {threading.current_thread()}

    def test_encodes_payloads_and_results_of_the_queue(self, queue):
        payload, result = Watched(), Watched()

        queue.enqueue("convert", payload)
        queue.ack(claimed(queue), result)

        assert payload.threads == result.threads == {threading.current_thread()}

    def test_is_where_every_operation_encodes_that_takes_values(self):
        """One that is new here and takes values has to be listed above."""
        values = {"args", "data", "input", "inputs", "kwargs", "patch", "payload", "progress"}
        taking = {
            name for name, each in OPERATIONS.items() if not values.isdisjoint(each.parameters)
        }

        listed = {name.split(" ")[0] for name in ENCODING}
        assert taking == {name for name in listed if name in OPERATIONS}


class TestArguments:
    """Of the methods that are written by hand; the others pass on whatever they are given."""

    def test_of_clients_reach_the_client(self, memory_url):
        with Client(
            memory_url,
            namespace="shop",
            tasks=[add],
            flows=[asking],
            on_conflict="use_existing",
            aging="1m",
            payload_max_bytes=10,
            codec=Reversed(),
        ) as client:
            run = client.submit("asking", 12, id="a")

            assert client.namespace == "shop"
            assert client.submit("asking", 12, id="a").is_new is False
            assert client.task("add") is add
            assert run.events()[0].details["aging_ms"] == 60_000
            with pytest.raises(PayloadTooLarge):
                client.submit("asking", "x" * 10)
        with Client(memory_url, namespace="shop") as plain:
            assert plain.runs.get("a").events[0].value == 21  # without the codec

    def test_of_queues_reach_the_queue(self, memory_url):
        with JobQueue(
            memory_url, namespace="shop", payload_max_bytes=10, codec=Reversed()
        ) as queue:
            id = queue.enqueue("convert", 1)

            assert queue.namespace == "shop"
            assert queue.get_job(id).args == [1]
            with pytest.raises(PayloadTooLarge):
                queue.enqueue("convert", "x" * 10)

    def test_of_submissions_reach_the_run(self, client):
        first = client.submit(asking, {"n": 1}, id="a")

        assert first.events()[0].value == {"n": 1}
        assert client.submit(asking, 2, id="a", on_conflict="use_existing").is_new is False
        with pytest.raises(RunTimeout):
            client.run(asking, 2, id="a", on_conflict="use_existing", timeout=0.001)
        with pytest.raises(RunTimeout):
            client.run(asking, 2, id="b", timeout=0.001)
        assert client.runs.get("b").events[0].value == 2

    def test_of_many_calls_reach_each_job(self, client):
        [one] = client.enqueue_many(add, [1], kwargs={"b": 2})
        [two] = client.jobs.enqueue_many("add", [1], {"b": 3}, {"queue": "slow"})

        assert one.record().args == [1, 2]
        record = client.jobs.get(two.id)
        assert (record.args, record.queue) == ([1, 3], "slow")

    def test_of_forks_reach_the_new_run(self, client):
        forked = answered(client).fork(after="answer", patch={"answer": "no"}, new_id="b", by="ann")

        assert (forked.id, forked.is_new) == ("b", True)
        assert forked.outputs()["answer"] == "no"
        origins = [each.details.get("origin") for each in forked.events()]
        assert [each["by"] for each in origins if each is not None] == ["ann"]

    def test_of_waits_end_them(self, client):
        job = client.enqueue(add, 1)

        with pytest.raises(ResultTimeout):
            job.result(0.001)
        with pytest.raises(ResultTimeout):
            client.jobs.results([job], timeout=0.001)
        [error] = client.jobs.results([job], timeout=0.001, return_errors=True)
        assert isinstance(error, ResultTimeout)
        with pytest.raises(RunTimeout):
            client.submit(asking).result(0.001)

    def test_of_handles_give_results_their_type(self, client, queue):
        id = client.enqueue(mirror, Point(1, 2)).id
        queue.ack(claimed(queue), {"x": 2, "y": 1})

        assert client.jobs.handle(id, mirror).result(10) == Point(2, 1)
        assert client.jobs.handle(id).result(10) == {"x": 2, "y": 1}


class Reversed:
    """A codec whose values read differently without it."""

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


def claimed(queue: JobQueue) -> QueuedJob:
    job = queue.dequeue("worker")
    assert job is not None
    return job
