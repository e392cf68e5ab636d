"""Wake-ups that cross processes: LISTEN and NOTIFY, gathered, signed, and back after an outage."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.model.hint import Hint, HintType
from perdure.model.run import RunStatus
from perdure.store.postgres.store import PostgresStore
from perdure.store.postgres.wakeups import (
    GATHER_S,
    NAMES_MAX,
    PAYLOAD_MAX_BYTES,
    channel_of,
    merge,
    read_message,
    signature,
    write_message,
)
from perdure.testing.contract.builders import (
    PARTITION,
    RUN,
    commit_next,
    insert,
    insert_many,
    submit,
)
from tests.support.stores import postgres_at

CUT_ALL = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1"
)
ANYTHING = {Hint(type=found_type) for found_type in HintType}
INSERT_ELSEWHERE = """
import asyncio, sys
from perdure.store.postgres.store import PostgresStore
from perdure.testing.contract.builders import insert

async def main():
    store = PostgresStore(sys.argv[1])
    await store.open()
    await insert(store)
    await store.close()

asyncio.run(main())
"""


def heard_by_others(payload: str) -> list[Hint]:
    return read_message(payload, "somebody else")


class Ear:
    """What one handle hears, in order."""

    def __init__(self, store: PostgresStore) -> None:
        self._heard: asyncio.Queue[Hint] = asyncio.Queue()
        store.subscribe(self._heard.put_nowait)

    async def next(self) -> Hint:
        async with asyncio.timeout(10):
            return await self._heard.get()

    async def hears_anything(self) -> None:
        """LISTEN took effect: the listener has to poll."""
        assert {await self.next() for _ in ANYTHING} == ANYTHING

    @property
    def is_silent(self) -> bool:
        return self._heard.empty()


class Wiretap:
    """Everything that is sent on the store's channel."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        self._channel = channel_of(schema)
        self.payloads: asyncio.Queue[str] = asyncio.Queue()

    async def start(self) -> None:
        await self._connection.add_listener(
            self._channel, lambda *args: self.payloads.put_nowait(args[3])
        )

    async def next(self) -> str:
        async with asyncio.timeout(10):
            return await self.payloads.get()


@pytest.fixture
async def tap(admin: Any, schema: str) -> Wiretap:
    tap = Wiretap(admin, schema)
    await tap.start()
    return tap


@pytest.fixture
async def named(postgres_url: str, schema: str) -> AsyncIterator[PostgresStore]:
    async with postgres_at(postgres_url, application_name=schema) as store:
        yield store


class TestRuns:
    """A notification for each step would cost more than the steps."""

    async def test_notify_other_processes_of_status_changes_and_not_of_each_step(self, store, tap):
        await submit(store)
        assert heard_by_others(await tap.next()) == [
            Hint(type=HintType.RUN, names=frozenset({RUN}))
        ]

        for _ in range(5):
            await commit_next(store)
        await commit_next(store, status=RunStatus.WAITING)

        assert heard_by_others(await tap.next()) == [
            Hint(type=HintType.RUN, names=frozenset({RUN}))
        ]
        assert tap.payloads.empty()

    async def test_notify_this_process_of_each_step(self, store):
        await submit(store)
        ear = Ear(store)
        await ear.hears_anything()
        await commit_next(store)
        assert await ear.next() == Hint(type=HintType.RUN, names=frozenset({RUN}))


class TestListening:
    async def test_hears_of_jobs_inserted_by_another_process(self, store, postgres_url):
        ear = Ear(store)
        await ear.hears_anything()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", INSERT_ELSEWHERE, postgres_url
        )
        assert await ear.next() == Hint(type=HintType.READY, names=frozenset({PARTITION.text}))
        assert await process.wait() == 0

    async def test_receives_each_hint_of_its_own_process_once(self, store, tap):
        ear = Ear(store)
        await ear.hears_anything()
        await insert(store)
        await tap.next()
        assert (await ear.next()).type is HintType.READY
        assert ear.is_silent

    async def test_hears_a_handle_that_spells_the_place_differently(self, store, postgres_url):
        ear = Ear(store)
        await ear.hears_anything()
        async with postgres_at(postgres_url.replace("127.0.0.1", "localhost")) as other:
            await insert(other)
            assert (await ear.next()).type is HintType.READY

    async def test_ignores_what_others_say_on_its_channel(self, store, admin, schema):
        ear = Ear(store)
        await ear.hears_anything()
        for payload in ("", "not json", "{}", '{"sender": 1, "hints": []}'):
            await admin.execute("SELECT pg_notify($1, $2)", channel_of(schema), payload)
        await insert(store)
        assert (await ear.next()).type is HintType.READY

    async def test_comes_back_after_the_server_ended_its_connection(self, named, admin, schema):
        ear = Ear(named)
        await ear.hears_anything()
        assert await admin.fetchval(CUT_ALL, schema) > 0
        await ear.hears_anything()
        ready = write_message({HintType.READY: {"partition"}}, "somebody else")
        await admin.execute("SELECT pg_notify($1, $2)", channel_of(schema), ready)
        assert await ear.next() == Hint(type=HintType.READY, names=frozenset({"partition"}))

    async def test_can_be_turned_off(self, postgres_url, admin, schema):
        async with postgres_at(postgres_url, listen="off", application_name=schema) as store:
            ear = Ear(store)

            await insert(store)

            assert (await ear.next()).type is HintType.READY
            queries = "SELECT query FROM pg_stat_activity WHERE application_name = $1"
            assert not any("LISTEN" in row[0] for row in await admin.fetch(queries, schema))


class TestSending:
    async def test_sends_the_first_at_once_and_gathers_what_follows(self, store, tap):
        loop = asyncio.get_running_loop()
        begin = loop.time()

        for _ in range(100):
            await insert(store)
        spent = loop.time() - begin
        await store.close()

        first = await tap.next()
        assert read_message(first, "") == [
            Hint(type=HintType.READY, names=frozenset({PARTITION.text}))
        ]
        assert tap.payloads.qsize() <= spent / GATHER_S + 2

    async def test_merges_hints_of_one_type(self, store, tap):
        await store._session.connections.fetch("SELECT 1")
        store._session.publish(Hint(type=HintType.CHANGED, names=frozenset("a")))
        store._session.publish(Hint(type=HintType.CHANGED, names=frozenset("b")))
        store._session.publish(Hint(type=HintType.SCHEDULED))

        hints = read_message(await tap.next(), "")

        assert set(hints) == {
            Hint(type=HintType.CHANGED, names=frozenset("ab")),
            Hint(type=HintType.SCHEDULED),
        }

    async def test_continues_after_the_server_ended_its_connection(self, named, admin, schema, tap):
        await insert(named)
        await tap.next()
        await admin.fetchval(CUT_ALL, schema)
        await insert(named)
        assert await tap.next()

    async def test_is_not_waited_for_by_who_writes(self, store, admin, schema):
        # Held back like a NOTIFY behind another database's: the insert must not notice.
        async with store._session.wakeups._turn:
            async with asyncio.timeout(5):
                await insert_many(store, 3)

    async def test_is_finished_before_closing(self, postgres_url, tap):
        async with postgres_at(postgres_url) as store:
            await insert(store)
        assert await tap.next()


class TestMessages:
    def test_are_read_as_they_were_written(self):
        hints = [
            Hint(type=HintType.READY, names=frozenset({"a", "b"})),
            Hint(type=HintType.CHANGED),
        ]
        assert read_message(write_message(merge({}, hints), "them"), "us") == hints

    def test_of_this_process_are_ignored(self):
        message = write_message(merge({}, [Hint(type=HintType.READY)]), signature("here"))
        assert read_message(message, signature("here")) == []

    def test_name_nothing_when_there_is_too_much_to_name(self):
        names = frozenset(str(number) for number in range(NAMES_MAX + 1))
        merged = merge({}, [Hint(type=HintType.CHANGED, names=names)])
        assert read_message(write_message(merged, ""), "us") == [Hint(type=HintType.CHANGED)]

    def test_stay_nameless_once_they_are(self):
        some = Hint(type=HintType.READY, names=frozenset({"partition"}))
        merged = merge({}, [some, Hint(type=HintType.READY), some])
        assert merged == {HintType.READY: None}

    def test_fit_into_a_notification(self):
        names = frozenset(f"{number:03}" + "é" * 200 for number in range(NAMES_MAX))
        merged = merge({}, [Hint(type=HintType.READY, names=names)])
        message = write_message(merged, "")
        assert len(message.encode()) <= PAYLOAD_MAX_BYTES
        assert read_message(message, "us") == [Hint(type=HintType.READY)]
