"""Bad input: a typed error that names the thing, and nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from perdure import (
    AsyncClient,
    Client,
    InvalidInput,
    InvalidStoreUrl,
    PayloadNotSerializable,
    PayloadTooLarge,
    Rate,
    Status,
    StoreError,
    task,
)
from tests.client.flows import add, echo, embed, for_user, mirror, named
from tests.support.refusal import refused

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
EAST = timezone(timedelta(hours=5))


def nothing() -> None: ...


class Double:
    def __call__(self, value: int) -> int:
        return value * 2


@task("add")
def another_add(a: int) -> int:
    return a


@task(limits=[Rate(1, per="1s", key=lambda value: value["user"])])
def keyed(value: Any) -> None: ...


MINUTES = {"due": timedelta(minutes=5), "deadline": timedelta(minutes=1)}

OPTIONS: list[tuple[dict[str, Any], str, Any]] = [
    ({"delay": "-5s"}, "argument.duration", "delay"),
    ({"delay": -5}, "argument.negative", "delay"),
    ({"delay": "soon"}, "argument.duration", "delay"),
    ({"delay": "200000d"}, "argument.range", "delay"),
    ({"deadline": "9999999d"}, "argument.range", "deadline"),
    ({"timeout": "9999999d"}, "argument.range", "timeout"),
    ({"run_at": datetime.max.replace(tzinfo=UTC)}, "argument.range", "run_at"),
    ({"run_at": datetime.min.replace(tzinfo=EAST)}, "argument.range", "run_at"),
    ({"deadline": datetime.max.replace(tzinfo=UTC)}, "argument.range", "deadline"),
    ({"run_at": "noon"}, "argument.type", "run_at"),
    ({"run_at": datetime(2031, 1, 1)}, "argument.naive", "run_at"),  # noqa: DTZ001
    ({"deadline": datetime(2031, 1, 1)}, "argument.naive", "deadline"),  # noqa: DTZ001
    ({"deadline": 0}, "argument.not_positive", "deadline"),
    ({"max_attempts": 0}, "argument.range", "max_attempts"),
    ({"max_attempts": 1.5}, "argument.type", "max_attempts"),
    ({"max_attempts": True}, "argument.type", "max_attempts"),
    ({"priority": 0}, "argument.range", "priority"),
    ({"priority": 6}, "argument.range", "priority"),
    ({"priority": "soonest"}, "argument.choice", "priority"),
    ({"queue": ""}, "argument.name", "queue"),
    ({"queue": "q" * 201}, "argument.name", "queue"),
    ({"group": "a\x00b"}, "argument.name", "group"),
    ({"group": "half \ud800"}, "argument.name", "group"),
    ({"fingerprint": ""}, "argument.name", "fingerprint"),
    ({"fingerprint": 7}, "argument.name", "fingerprint"),
    ({"fingerprint": lambda a: None}, "argument.name", "fingerprint"),
    ({"on_conflict": "ignore"}, "argument.choice", "on_conflict"),
    ({"timeout": 0}, "argument.not_positive", "timeout"),
    ({"tags": "gpu"}, "argument.type", "tags"),
    ({"tags": 5}, "argument.type", "tags"),
    ({"run_at": NOON, "delay": "1s"}, "argument.exclusive", {"names": ("delay", "run_at")}),
    ({"deadline": "1m", "delay": "5m"}, "job.due_after_deadline", MINUTES),
    (
        {"deadline": NOON, "run_at": NOON},
        "job.due_after_deadline",
        {"due": NOON, "where": ("deadline",)},
    ),
    (
        {"fingerprint": lambda a: a["x"]},
        "job.function_failed",
        {"function": "fingerprint function"},
    ),
    ({"tags": [5]}, "argument.name", {"name": "tags[0]", "where": ("tags", 0)}),
    ({"retries": -1}, "argument.range", {"name": "retries", "where": ("retries",)}),
    ({"retries": "many"}, "argument.type", {"name": "retries", "where": ("retries",)}),
    (
        {"fingerprnt": "x"},
        "argument.unknown",
        {"name": "fingerprnt", "nearest": ("fingerprint",), "known": ()},
    ),
]

ARGUMENTS: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"c": 1}, "task.unknown_argument", {"name": "c", "task": "add", "known": ("a", "b")}),
    ({"delay": "5m"}, "task.option_as_argument", {"name": "delay", "task": "add"}),
    ({"connection": 1}, "task.unknown_argument", {"name": "connection"}),
    ({"kwargs": {"a": 1}}, "task.unknown_argument", {"name": "kwargs"}),
]

NOT_CALLS: list[tuple[tuple[Any, ...], str, dict[str, Any]]] = [
    (("ad", 1), "task.unknown", {"name": "ad", "known": ("add", "echo")}),
    ((print, 1), "task.not_a_task", {"value": repr(print)}),
    ((another_add, 1), "task.duplicate", {"name": "add"}),
    ((add,), "task.invalid_call", {"task": "add"}),
    ((add, 1, 2, 3), "task.invalid_call", {"task": "add"}),
    ((add, "one"), "task.invalid_argument", {"task": "add", "name": "a"}),
    ((mirror, {"x": 1}), "task.invalid_argument", {"task": "mirror", "name": "point"}),
    ((named.options(queue="an option"),), "task.invalid_call", {"task": "named"}),
]


@pytest.fixture
async def client(memory_url: str) -> AsyncIterator[AsyncClient]:
    """One backend is enough: what is refused here never reaches a store."""
    async with AsyncClient(memory_url, tasks=[add, echo]) as client:
        yield client


class TestEnqueueRefuses:
    @pytest.mark.parametrize("options, code, args", OPTIONS)
    async def test_a_bad_option(self, client, options, code, args):
        args = {"name": args, "where": (args,)} if isinstance(args, str) else args
        with refused(code, InvalidInput, **args):
            await client.enqueue(add.options(**options), 1)
        assert await client.jobs.count() == 0

    @pytest.mark.parametrize("keywords, code, args", ARGUMENTS)
    async def test_a_keyword_that_is_no_parameter(self, client, keywords, code, args):
        with refused(code, InvalidInput, **args):
            await client.enqueue(add, 1, **keywords)
        with refused(code, InvalidInput, **args):
            await client.enqueue_many(add, [1], kwargs=keywords)
        assert await client.jobs.count() == 0

    @pytest.mark.parametrize("call, code, args", NOT_CALLS)
    async def test_what_is_no_call_of_a_task(self, client, call, code, args):
        called, *positional = call
        with refused(code, InvalidInput, **args):
            await client.enqueue(called, *positional)

    async def test_a_context(self, client):
        with refused("task.context_given", InvalidInput, name="ctx", task="embed"):
            await client.enqueue(embed, "x", ctx=None)  # type: ignore[arg-type]

    @pytest.mark.parametrize("value", [object(), float("nan"), {1: {2: object()}}, "\ud800"])
    async def test_what_cannot_be_serialised(self, client, value):
        with refused("payload.not_serializable", PayloadNotSerializable):
            await client.enqueue(echo, value)
        assert await client.jobs.count() == 0

    async def test_a_payload_over_a_mebibyte(self, client):
        with refused("payload.too_large", PayloadTooLarge):
            await client.enqueue(echo, "x" * 1024 * 1024)

    async def test_a_limit_key_that_is_no_text(self, client):
        with refused("limit.invalid_key", InvalidInput):
            await client.enqueue(keyed, {"user": 7})
        with refused("job.function_failed", InvalidInput, function="key function of Rate"):
            await client.enqueue(keyed, {})
        with refused("argument.name", name="limit key"):
            await client.enqueue(for_user, "\x00")


class TestEnqueueManyRefuses:
    @pytest.mark.parametrize(
        "name, value",
        [
            *(("inputs", x) for x in ("abc", b"abc", {"a": 1}, 5)),
            ("kwargs", [1]),
            ("kwargs", {1: 1}),
        ],
    )
    async def test_what_are_not_inputs_or_keyword_arguments(self, client, name, value):
        with refused("argument.type", InvalidInput, name=name, where=(name,)):
            await client.enqueue_many(add, **{"inputs": [1], name: value})

    async def test_one_fingerprint_for_several_inputs(self, client):
        with refused("job.shared_fingerprint", InvalidInput):
            await client.enqueue_many(echo.options(fingerprint="same"), [1, 2])
        assert await client.jobs.count() == 0


class TestReadsRefuse:
    async def test_an_unknown_status(self, client):
        with refused("argument.choice", InvalidInput, name="status", choices=tuple(Status)):
            await client.jobs.list(status="done")

    @pytest.mark.parametrize("limit", [0, -1, 1001, "all", True])
    async def test_a_bad_limit(self, client, limit):
        code = "argument.range" if type(limit) is int else "argument.type"
        with refused(code, InvalidInput, name="limit"):
            await client.jobs.list(limit=limit)

    async def test_each_with_the_path_to_it(self, client):
        for refuse, where, label in (
            (client.jobs.get(""), ("id",), "job id"),
            (client.jobs.get(7), ("id",), "job id"),
            (client.runs.get(""), ("id",), "run id"),
            (client.queues.pause(""), ("queue",), "queue"),
        ):
            with refused("argument.name", InvalidInput, where=where, name=label):
                await refuse
        with refused("argument.name", InvalidInput, where=("tags", 1), name="tags[1]"):
            add.options(tags=["a", ""])

    async def test_what_no_page_ends_with(self, client):
        with refused("argument.cursor", InvalidInput, list="waits.list", value="7"):
            await client.waits.list(cursor=7)  # type: ignore[arg-type]
        with refused("argument.cursor", InvalidInput, list="approvals.list", value="'x'"):
            await client.approvals.list(cursor="x")

    async def test_in_few_words_what_is_long_or_deep(self, client):
        deep: Any = 0
        for _ in range(10_000):
            deep = [deep]

        with refused("argument.name", name="job id", value="[(((((((((...,),),),),),),),),)]"):
            await client.jobs.get(deep)
        with refused("argument.name", InvalidInput, name="run id") as caught:
            await client.runs.get("x\x00" * 1_000_000)
        assert len(str(caught.value)) < 1_000

    async def test_a_bad_timeout(self, client):
        handle = await client.enqueue(add, 1)
        with refused("argument.negative", InvalidInput, name="timeout"):
            await handle.result(timeout=-1)


class TestATaskRefuses:
    @pytest.mark.parametrize(
        "settings, code",
        [
            ({"retries": "5"}, "argument.type"),
            ({"retries": 2.5}, "argument.type"),
            ({"retries": True}, "argument.type"),
            ({"retries": -1}, "argument.range"),
            ({"timeout": 0}, "argument.not_positive"),
            ({"timeout": "0s"}, "argument.not_positive"),
            ({"isolation": "cgroup"}, "argument.choice"),
            ({"tags": None}, "argument.type"),
            ({"tags": "gpu"}, "argument.type"),
            ({"limits": None}, "argument.type"),
            ({"limits": Rate(1, per="1s")}, "argument.type"),
        ],
    )
    def test_a_bad_setting(self, settings, code):
        [name] = settings
        with refused(code, InvalidInput, name=name, where=(name,)):
            task(**settings)(nothing)
        with refused("argument.type", InvalidInput, name="limits[1]", value="5"):
            task(limits=[Rate(1, per="1s"), 5])(nothing)  # type: ignore[list-item]

    def test_what_is_not_a_function(self):
        with refused("task.not_a_function", InvalidInput, value="5"):
            task()(5)  # type: ignore[call-overload]

    @pytest.mark.parametrize("function", [lambda x: x, partial(int, base=2), Double()])
    def test_what_has_no_name(self, function):
        """Finding 29: a lambda was accepted as the task ``<lambda>``, as was any other one."""
        for decorate in (task, task()):
            with refused("task.unnamed", InvalidInput, where=("name",)):
                decorate(function)
        assert task("double")(function).name == task(name="double")(function).name == "double"

    @pytest.mark.parametrize("retries", [0, 5])
    def test_no_number_of_retries(self, retries):
        made = task(retries=retries)(nothing).retry
        assert made is not None
        assert made.retries == retries


class TestAClientRefuses:
    @pytest.mark.parametrize(
        "settings, code, args",
        [
            ({"tasks": [print]}, "task.not_a_task", {"value": repr(print)}),
            ({"tasks": [add, another_add]}, "task.duplicate", {"name": "add"}),
            ({"namespace": ""}, "argument.name", "namespace"),
            ({"namespace": None}, "argument.name", "namespace"),
            ({"aging": "old"}, "argument.duration", "aging"),
            ({"aging": "0s"}, "argument.not_positive", "aging"),
            ({"payload_max_bytes": 0}, "argument.range", "payload_max_bytes"),
            ({"payload_max_bytes": "1MB"}, "argument.type", "payload_max_bytes"),
            ({"tasks": None}, "argument.type", "tasks"),
            ({"tasks": add}, "argument.type", "tasks"),
        ],
    )
    def test_a_bad_setting(self, settings, code, args):
        args = {"name": args, "where": (args,)} if isinstance(args, str) else args
        for client in (AsyncClient, Client):
            with refused(code, InvalidInput, **args):
                client("memory://bad", **settings)

    @pytest.mark.parametrize(
        "url", ["work.db", "mysql://host/db", "", "memory://a?b=c", "mysql://[::1"]
    )
    def test_a_wrong_url(self, url):
        with refused("store.invalid_url", InvalidStoreUrl):
            AsyncClient(url)

    def test_what_is_not_a_store(self):
        with refused("argument.type", InvalidInput, name="store", value="5"):
            AsyncClient(5)  # type: ignore[arg-type]

    def test_to_be_used_on_two_event_loops(self, memory_url):
        client = AsyncClient(memory_url)
        asyncio.run(client.enqueue(add, 1))
        with refused("client.other_loop", StoreError, url=memory_url):
            asyncio.run(client.enqueue(add, 1))
