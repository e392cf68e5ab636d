"""Enqueueing: what a call becomes, what of it a worker gets, when, and how often."""

from __future__ import annotations

import asyncio
import inspect
import tomllib
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import perdure
from perdure import (
    AsyncClient,
    Client,
    FingerprintTaken,
    Flow,
    InvalidFlow,
    PayloadTooLarge,
    PerdureError,
    Retry,
    Status,
    StoreError,
    Worker,
    errors,
    task,
)
from perdure.cli.target import TargetCode, load
from perdure.clock import new_id
from perdure.errors import InvalidInput
from perdure.model.ids import JobId
from perdure.model.job import NewJob
from perdure.model.partition import Partition
from perdure.model.payload import from_json
from perdure.model.retry import decode_policy
from perdure.tasks.calls import (
    JobDefaults,
    JobMaker,
    Storing,
    defaults_of,
    job_template,
    may_be_refused,
    payload_job,
)
from perdure.tasks.task import Task
from tests.client.flows import Point, add, echo, embed, for_user, mirror, named
from tests.client.harness import CountedStore
from tests.support.codecs import Reversed
from tests.support.public_names import PUBLIC
from tests.support.refusal import refused

# The pure part of enqueueing: from a task, a call and its options to a job.


MINUTE = timedelta(minutes=1)
NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)


def template(task: Task[..., Any] = add, **options: Any) -> NewJob:
    return job_template(defaults_of(task, "team-a", MINUTE), task.options(**options).settings)


def made(task: Task[..., Any], *args: Any, kwargs: dict[str, Any] | None = None) -> NewJob:
    maker = JobMaker(task, template(task))
    return maker.job(JobId(new_id()), args, kwargs or {}, Storing())


class TestJobTemplate:
    def test_takes_what_the_task_says(self):
        job = template(embed)
        assert job.partition == Partition(queue="embeddings", task="embed", tags=("gpu",))
        assert (job.namespace, job.aging, job.priority) == ("team-a", MINUTE, 2)
        assert job.policy is None

    def test_prefers_what_the_options_say(self):
        job = template(embed, queue="other", priority=5, tags=[])
        assert (job.partition.queue, job.partition.tags, job.priority) == ("other", (), 5)

    def test_takes_none_for_not_given(self):
        assert template(embed, queue=None, priority=None, tags=None, delay=None) == template(embed)

    def test_reads_moments_as_utc(self):
        elsewhere = NOON.astimezone(timezone(timedelta(hours=9)))
        job = template(run_at=elsewhere, deadline=elsewhere + MINUTE)
        assert (job.run_at, job.deadline_at) == (NOON, NOON + MINUTE)
        assert job.run_at is not None
        assert job.run_at.tzinfo is UTC


class TestJobMaker:
    def test_stores_equal_calls_equally(self):
        calls = [made(add, 1, 2), made(add, 1, kwargs={"b": 2}), made(add, kwargs={"b": 2, "a": 1})]
        assert {(job.input, job.input_hash) for job in calls} == {
            (b"[[1,2],{}]", calls[0].input_hash)
        }

    def test_distinguishes_tasks_and_inputs(self):
        hashes = {made(add, 1).input_hash, made(add, 2).input_hash, made(embed, "1").input_hash}
        assert len(hashes) == 3
        assert all(0 <= each < 2**63 for each in hashes)

    def test_leaves_the_context_to_the_worker(self):
        assert made(embed, "hello").input == b'[["hello"],{}]'

    def test_keeps_keyword_only_arguments_by_name(self):
        assert made(named, kwargs={"queue": "q"}).input == b'[[],{"queue":"q"}]'

    def test_gives_equal_keys_one_partition(self):
        maker = JobMaker(for_user, template(for_user))
        jobs = [maker.job(JobId("x"), (user,), {}, Storing()) for user in ("ann", "bob", "ann")]
        assert [job.partition.keys for job in jobs] == [("user:ann",), ("user:bob",), ("user:ann",)]
        assert jobs[0].partition is jobs[2].partition


class TestPayloadJob:
    def test_is_a_call_with_one_argument(self):
        defaults = JobDefaults(namespace="n", aging=MINUTE, task="start", max_attempts=3)
        job = payload_job(JobId("x"), defaults, {"run": 1}, {"priority": 1}, Storing())
        assert job.input == b'[[{"run":1}],{}]'
        assert (job.partition.task, job.priority, job.max_attempts) == ("start", 1, 3)


class TestMayBeRefused:
    @pytest.mark.parametrize(
        "options, expected",
        [
            ({}, False),
            ({"fingerprint": "x"}, False),
            ({"fingerprint": "x", "on_conflict": "replace"}, False),
            ({"fingerprint": "x", "on_conflict": "fail"}, True),
            ({"on_conflict": "fail"}, False),
            ({"deadline": "1m"}, True),
            ({"deadline": NOON}, True),
        ],
    )
    def test_by_reasons_that_neighbours_do_not_share(self, options, expected):
        assert may_be_refused(template(**options)) is expected


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

    @pytest.mark.parametrize(
        "task, inputs, kwargs, stored",
        [
            (add, [(1, 2)], {}, [[1, 2]]),
            (add, [1, 2], {"b": 9}, [[1, 9], [2, 9]]),
            (mirror, [Point(1, 2)], {}, [[{"x": 1, "y": 2}]]),
        ],
    )
    async def test_spreads_tuples_and_kwargs_over_the_parameters(
        self, client, task, inputs, kwargs, stored
    ):
        handles = await client.enqueue_many(task, inputs, kwargs=kwargs)
        assert [(await client.jobs.get(each.id)).args for each in handles] == stored

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
        with refused("job.fingerprint_taken", FingerprintTaken, fingerprint="2"):
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


class TestDeclaredTask:
    def test_a_task_is_still_a_function(self):
        assert add(1, 2) == 3
        assert inspect.iscoroutinefunction(embed.function)
        value: Any = echo("x")
        assert value == "x"


# Dedup: a fingerprint is unique among the live jobs of its queue.


class TestFingerprint:
    async def test_returns_the_live_job_by_default(self, client):
        first = await client.enqueue(add.options(fingerprint="one"), 1)
        second = await client.enqueue(add.options(fingerprint="one"), 1)
        assert second.id == first.id
        assert (first.is_new, second.is_new) == (True, False)
        assert await client.jobs.count() == 1

    async def test_may_be_made_from_the_input(self, client):
        handle = await client.enqueue(add.options(fingerprint=lambda a, b: f"{a}+{b}"), 1, b=2)
        assert (await client.jobs.get(handle.id)).fingerprint == "1+2"


# Time as the caller sets it: delay, run_at, deadline.


HOUR = timedelta(hours=1)


async def test_times_may_be_moments_in_any_time_zone(client, clock):
    at = (clock() + HOUR).astimezone(timezone(timedelta(hours=5)))
    handle = await client.enqueue(add.options(run_at=at, deadline=clock() + 2 * HOUR), 1)
    record = await client.jobs.get(handle.id)
    assert (record.status, record.ready_at) == (Status.SCHEDULED, at)
    assert record.deadline_at == clock() + 2 * HOUR


@task(queue="files", priority=2)
def fetch(delay: int, queue: str = "own") -> str:
    return f"{delay} {queue}"


class TestATaskWithOptions:
    def test_leaves_the_task_as_it_is(self):
        later = fetch.options(delay="5m")
        assert fetch.settings.delay == timedelta(0)
        assert later.settings.delay == timedelta(minutes=5)
        assert (later.base, later.name, fetch.base) == (fetch, "fetch", fetch)
        assert later(3) == "3 own"

    def test_adds_to_the_options_that_it_has(self):
        settings = fetch.options(delay="5m", priority=1).options(priority=4).settings
        assert (settings.delay, settings.priority) == (timedelta(minutes=5), 4)

    def test_checks_options_together(self):
        with refused("job.due_after_deadline", InvalidInput):
            fetch.options(delay="5m").options(deadline="1m")

    def test_refuses_a_misspelled_option(self):
        with refused("argument.unknown", InvalidInput, name="prioriti", nearest=("priority",)):
            fetch.options(prioriti=1)  # type: ignore[call-arg]


class TestIsRefused:
    @pytest.mark.parametrize(
        "place",
        [
            lambda task: Worker("memory://", tasks=[task]),
            lambda task: AsyncClient("memory://", tasks=[task]),
            lambda task: Client("memory://", tasks=[task]),
            lambda task: Flow.from_yaml("flow: a\nnodes:\n  one: {task: fetch}", tasks=[task]),
        ],
        ids=["worker", "async client", "client", "yaml"],
    )
    def test_where_no_job_is_made_of_it(self, place):
        with refused("task.has_options", InvalidInput, task="fetch", options=("delay",)):
            place(fetch.options(delay="5m"))

    def test_as_a_node(self):
        with pytest.raises(InvalidFlow) as caught:
            Flow("order").then(fetch.options(delay="5m")).build()
        assert "task.has_options" in [fault.code for fault in caught.value.faults]

    def test_by_result_of(self, memory_url):
        with Client(memory_url) as client, refused("task.has_options", InvalidInput, task="add"):
            client.jobs.find_result(add.options(queue="slow"), [1])


class TestDiscovery:
    def test_takes_it_for_the_task(self, tmp_path, monkeypatch):
        source = (
            "from perdure import task\n"
            "@task\ndef fetch(): ...\n"
            "fast = fetch.options(priority=1)\nslow = fetch.options(queue='slow')\n"
        )
        (tmp_path / "with_options.py").write_text(source, encoding="utf-8")
        monkeypatch.chdir(tmp_path)

        for target in ("with_options", "with_options:fast"):
            code = load(target)
            assert isinstance(code, TargetCode)
            [found] = code.tasks
            assert (found.name, found.base) == ("fetch", found)


ROOT = Path(__file__).parents[2]


class TestPublicNames:
    """What can be imported from the package."""

    def test_every_public_name_is_there(self):
        assert [name for name in PUBLIC if not hasattr(perdure, name)] == []

    def test_only_classes_functions_and_constants_of_ours_are_public(self):
        assert [name for name in PUBLIC if isinstance(getattr(perdure, name), ModuleType)] == []
        assert {"Client", "task", "CONTEXT"} <= set(dir(perdure))

    def test_the_names_of_the_contract_are_public(self):
        named = "task Retry RetryLater Permanent Context Client AsyncClient Worker Concurrency Rate"
        assert set(named.split()) <= set(PUBLIC)

    def test_only_these_errors_are_not_public(self):
        raised_on_workers_only = {
            "WorkerCrashed",
            "ProcessCrashed",
            "ValueMissing",
            "LongEvaluation",
        }
        raised_by_tools = {"NotFaked", "NotSettled", "StoreInUse", "StoreNotEmpty", "InvalidExport"}
        tree = {
            name
            for name, value in vars(errors).items()
            if isinstance(value, type)
            and issubclass(value, errors.PerdureError)
            and not name.startswith("_")
        }

        assert tree - set(PUBLIC) == raised_on_workers_only | raised_by_tools

    def test_the_version_is_that_of_the_project(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        assert perdure.__version__ == project["project"]["version"]
