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
    DuplicateTask,
    InvalidInput,
    InvalidStoreUrl,
    PayloadNotSerialisable,
    PayloadTooLarge,
    Rate,
    StoreError,
    UnknownTask,
    task,
)
from tests.client.tasks import Point, add, echo, for_user, mirror, named

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)
EAST = timezone(timedelta(hours=5))


@task("add")
def another_add(a: int) -> int:
    return a


@task(limits=[Rate(1, per="1s", key=lambda value: value["user"])])
def keyed(value: Any) -> None: ...


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"delay": "-5s"}, "delay='-5s' is not a duration"),
    ({"delay": -5}, "delay=-5 is negative"),
    ({"delay": "soon"}, "delay='soon' is not a duration"),
    ({"delay": "200000d"}, "delay='200000d' is more than 36500 days"),
    ({"deadline": "9999999d"}, "deadline='9999999d' is more than 36500 days"),
    ({"timeout": "9999999d"}, "timeout='9999999d' is more than 36500 days"),
    ({"run_at": datetime.max.replace(tzinfo=UTC)}, "run_at=.* is not a usable moment"),
    ({"run_at": datetime.min.replace(tzinfo=EAST)}, "run_at=.* is not a usable moment"),
    ({"deadline": datetime.max.replace(tzinfo=UTC)}, "deadline=.* between the years 1000 and 9000"),
    ({"run_at": "noon"}, "run_at='noon' is not a datetime"),
    ({"run_at": datetime(2031, 1, 1)}, "run_at=.* needs a time zone"),  # noqa: DTZ001
    ({"run_at": NOON, "delay": "1s"}, "delay and run_at are two answers"),
    ({"deadline": datetime(2031, 1, 1)}, "deadline=.* needs a time zone"),  # noqa: DTZ001
    ({"deadline": 0}, "deadline=0 has passed already"),
    ({"deadline": "1m", "delay": "5m"}, "due after 0:05:00, past its deadline of 0:01:00"),
    ({"deadline": NOON, "run_at": NOON}, "due at .*, past its deadline"),
    ({"max_attempts": 0}, "max_attempts=0 must be a whole number from 1"),
    ({"max_attempts": 1.5}, r"max_attempts=1\.5 must be a whole number"),
    ({"max_attempts": True}, "max_attempts=True must be a whole number"),
    ({"priority": 0}, "priority=0 is out of range: 1"),
    ({"priority": 6}, "priority=6 is out of range: 1"),
    ({"priority": "high"}, "priority='high' must be a whole number"),
    ({"queue": ""}, "queue '' must be a text of 1 to 200 characters"),
    ({"queue": "q" * 201}, "queue 'q+' must be a text"),
    ({"group": "a\x00b"}, "group .* must be a text"),
    ({"group": "half \ud800"}, "group .* must be a text"),
    ({"fingerprint": ""}, "fingerprint '' must be a text"),
    ({"fingerprint": 7}, "fingerprint 7 must be a text"),
    ({"fingerprint": lambda a: None}, "fingerprint None must be a text"),
    ({"fingerprint": lambda a: a["x"]}, "the fingerprint function failed for this input"),
    ({"on_conflict": "ignore"}, "on_conflict='ignore' must be one of 'return', 'raise', 'repl"),
    ({"retries": -1}, r"Retry\(retries=-1\) is not between"),
    ({"retries": "many"}, "Retry.* needs a whole number"),
    ({"timeout": 0}, "timeout=0 must be above zero"),
    ({"tags": "gpu"}, "tags='gpu' must be a list of texts"),
    ({"tags": 5}, "tags=5 must be a list of texts"),
    ({"tags": [5]}, "tag 5 must be a text"),
    ({"kwargs": [1]}, "kwargs=.* must map parameter names to values"),
    ({"fingerprnt": "x"}, "'fingerprnt' is neither a parameter .* mean 'fingerprint'"),
    ({"c": 1}, "'c' is neither a parameter of task 'add' nor an option of enqueue; known"),
]


@pytest.fixture
async def client(memory_url: str) -> AsyncIterator[AsyncClient]:
    """One backend is enough: what is refused here never reaches a store."""
    async with AsyncClient(memory_url, tasks=[add, echo]) as client:
        yield client


class TestEnqueueRefuses:
    @pytest.mark.parametrize("options, message", OPTIONS)
    async def test_a_bad_option(
        self, client: AsyncClient, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InvalidInput, match=message):
            await client.enqueue(add, 1, **options)

        assert await client.count() == 0

    async def test_an_unknown_task_name(self, client: AsyncClient) -> None:
        with pytest.raises(UnknownTask, match="'ad' is not registered here; registered: add, echo"):
            await client.enqueue("ad", 1)

    async def test_what_is_not_a_task(self, client: AsyncClient) -> None:
        with pytest.raises(InvalidInput, match="is not a task; decorate it with @task"):
            await client.enqueue(print, 1)  # type: ignore[arg-type]

    async def test_another_task_of_a_registered_name(self, client: AsyncClient) -> None:
        with pytest.raises(DuplicateTask, match="two different tasks are named 'add'"):
            await client.enqueue(another_add, 1)

    @pytest.mark.parametrize(
        "args, message",
        [
            ((), "task 'add' cannot be called so: missing a required argument: 'a'"),
            ((1, 2, 3), "task 'add' cannot be called so: too many positional arguments"),
            (("one",), "argument 'a' of task 'add': Expected `int`, got `str`"),
        ],
    )
    async def test_arguments_that_do_not_fit(
        self, client: AsyncClient, args: tuple[Any, ...], message: str
    ) -> None:
        with pytest.raises(InvalidInput, match=message):
            await client.enqueue(add, *args)

    async def test_a_value_that_is_not_the_declared_type(self, client: AsyncClient) -> None:
        with pytest.raises(InvalidInput, match="argument 'point' of task 'mirror'"):
            await client.enqueue(mirror, {"x": 1})

    async def test_a_missing_keyword(self, client: AsyncClient) -> None:
        with pytest.raises(InvalidInput, match=r"missing a required .*'queue'"):
            await client.enqueue(named, queue="this is the option")

    @pytest.mark.parametrize("value", [object(), float("nan"), {1: {2: object()}}, "\ud800"])
    async def test_what_cannot_be_serialised(self, client: AsyncClient, value: Any) -> None:
        with pytest.raises(PayloadNotSerialisable, match="the input of task 'echo' cannot be"):
            await client.enqueue(echo, value)

        assert await client.count() == 0

    async def test_a_payload_over_a_mebibyte(self, client: AsyncClient) -> None:
        with pytest.raises(PayloadTooLarge, match="more than the 1048576 allowed"):
            await client.enqueue(echo, "x" * 1024 * 1024)

    async def test_a_limit_key_that_is_no_text(self, client: AsyncClient) -> None:
        with pytest.raises(InvalidInput, match="the key function of Rate returned 7"):
            await client.enqueue(keyed, {"user": 7})
        with pytest.raises(InvalidInput, match="the key function of Rate failed for this input"):
            await client.enqueue(keyed, {})
        with pytest.raises(InvalidInput, match=r"limit key .* must be a text"):
            await client.enqueue(for_user, "\x00")


class TestEnqueueManyRefuses:
    @pytest.mark.parametrize("inputs", ["abc", b"abc", {"a": 1}, 5])
    async def test_what_is_not_a_list_of_inputs(self, client: AsyncClient, inputs: Any) -> None:
        with pytest.raises(InvalidInput, match="must be a list with one entry for each job"):
            await client.enqueue_many(echo, inputs)

    async def test_an_unknown_option(self, client: AsyncClient) -> None:
        with pytest.raises(InvalidInput, match="no option 'prioriti'; did you mean 'priority'"):
            await client.enqueue_many(echo, [1], prioriti=1)  # type: ignore[call-arg]

    async def test_one_fingerprint_for_several_inputs(self, client: AsyncClient) -> None:
        with pytest.raises(InvalidInput, match="one fingerprint for several inputs"):
            await client.enqueue_many(echo, [1, 2], fingerprint="same")

        assert await client.count() == 0


class TestReadsRefuse:
    async def test_an_unknown_status(self, client: AsyncClient) -> None:
        with pytest.raises(InvalidInput, match="status='done' must be one of waiting, scheduled"):
            await client.jobs(status="done")

    @pytest.mark.parametrize("limit", [0, -1, 1001, "all", True])
    async def test_a_bad_limit(self, client: AsyncClient, limit: Any) -> None:
        with pytest.raises(InvalidInput, match=f"limit={limit!r} must be a whole number"):
            await client.jobs(limit=limit)

    async def test_what_is_not_an_id(self, client: AsyncClient) -> None:
        with pytest.raises(InvalidInput, match="job id 7 must be a text"):
            await client.job(7)  # type: ignore[arg-type]

    async def test_what_no_page_ends_with(self, client: AsyncClient) -> None:
        with pytest.raises(InvalidInput, match="after=7 must be the last record of the page"):
            await client.waits(after=7)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="after=7 must be an approval or the id of one"):
            await client.inbox(after=7)  # type: ignore[arg-type]

    async def test_in_few_words_what_is_long_or_deep(self, client: AsyncClient) -> None:
        deep: Any = 0
        for _ in range(10_000):
            deep = [deep]

        with pytest.raises(InvalidInput, match="job id <list> must be a text"):
            await client.job(deep)
        with pytest.raises(InvalidInput) as refused:
            await client.run("x\x00" * 1_000_000)
        assert len(str(refused.value)) < 1_000

    async def test_a_bad_timeout(self, client: AsyncClient) -> None:
        handle = await client.enqueue(add, 1)

        with pytest.raises(InvalidInput, match="timeout=-1 is negative"):
            await handle.result(timeout=-1)


class TestATaskRefuses:
    @pytest.mark.parametrize(
        "settings, message",
        [
            ({"retries": "5"}, "retries='5' must be a Retry or a whole number"),
            ({"retries": 2.5}, r"retries=2\.5 must be a Retry or a whole number"),
            ({"retries": True}, "retries=True must be a Retry or a whole number"),
            ({"retries": -1}, "retries=-1 must be a Retry or a whole number from 0"),
            ({"timeout": 0}, "timeout=0 must be above zero"),
            ({"timeout": "0s"}, "timeout='0s' must be above zero"),
            ({"tags": None}, "tags=None must be a list of texts"),
            ({"tags": "gpu"}, "tags='gpu' must be a list of texts"),
            ({"limits": None}, "limits=None must be a list"),
            ({"limits": Rate(1, per="1s")}, "limits=.* must be a list"),
        ],
    )
    def test_a_bad_setting(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            task(**settings)(lambda: None)

    def test_a_function_without_a_name(self) -> None:
        with pytest.raises(InvalidInput, match="task name None must be a text"):
            task(partial(print, "x"))

    @pytest.mark.parametrize("retries", [0, 5])
    def test_no_number_of_retries(self, retries: int) -> None:
        made = task(retries=retries)(lambda: None).retry

        assert made is not None
        assert made.retries == retries


class TestAClientRefuses:
    @pytest.mark.parametrize(
        "settings, message",
        [
            ({"namespace": ""}, "namespace '' must be a text"),
            ({"namespace": None}, "namespace None must be a text"),
            ({"aging": "0s"}, "aging='0s' must be above zero"),
            ({"aging": "old"}, "aging='old' is not a duration"),
            ({"payload_max_bytes": 0}, "payload_max_bytes=0 must be at least 1"),
            ({"payload_max_bytes": "1MB"}, "payload_max_bytes='1MB' must be a whole number"),
            ({"tasks": None}, "tasks=None must be a list of tasks"),
            ({"tasks": add}, "tasks=<task 'add'> must be a list of tasks"),
            ({"tasks": [print]}, "is not a task; decorate it"),
            ({"tasks": [add, another_add]}, "two different tasks are named 'add'"),
        ],
    )
    def test_a_bad_setting(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            AsyncClient("memory://bad", **settings)
        with pytest.raises(InvalidInput, match=message):
            Client("memory://bad", **settings)

    @pytest.mark.parametrize(
        "url", ["work.db", "mysql://host/db", "", "memory://a?b=c", "mysql://[::1"]
    )
    def test_a_wrong_url(self, url: str) -> None:
        with pytest.raises(InvalidStoreUrl, match="Use memory://name"):
            AsyncClient(url)

    def test_what_is_not_a_store(self) -> None:
        with pytest.raises(InvalidInput, match="5 is not a store; pass a URL"):
            AsyncClient(5)  # type: ignore[arg-type]

    def test_to_be_used_on_two_event_loops(self, memory_url: str) -> None:
        client = AsyncClient(memory_url)
        asyncio.run(client.enqueue(add, 1))

        with pytest.raises(StoreError, match=r"belongs to another event loop.*use Client"):
            asyncio.run(client.enqueue(add, 1))


def test_typed_values_are_equal_after_a_round_trip() -> None:
    assert mirror(Point(1, 2)) == Point(2, 1)
