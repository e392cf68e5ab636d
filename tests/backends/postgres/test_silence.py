"""A connection that takes everything and answers nothing, as through a proxy that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.errors import StoreError
from perdure.model.hint import Hint, HintType
from perdure.model.job import JobFilter, Status
from perdure.model.outcome import Completed
from perdure.store.lifecycle import Transition
from perdure.store.postgres import connection as connections
from perdure.store.postgres import wakeups
from perdure.store.postgres.session import statements_in
from perdure.store.postgres.store import PostgresStore
from perdure.store.postgres.wakeups import channel_of, write_message
from tests.backends.postgres.line import Line
from tests.backends.postgres.test_wakeups import Ear
from tests.backends.postgres.waiting import row_held, until_nobody_waits, until_somebody_waits
from tests.conformance.builders import hold, insert, new_job, read, settle, status_of
from tests.postgres_schemas import with_query
from tests.support.refusal import refused

SOON_S = 10.0


@pytest.fixture
async def wired(line: Line) -> AsyncIterator[PostgresStore]:
    """A store at the end of the wire that does not wait for long."""
    store = PostgresStore(with_query(line.url, answer_timeout="1"))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def patient(line: Line) -> AsyncIterator[PostgresStore]:
    """A store at the end of the wire that waits for as long as it does by default."""
    store = PostgresStore(line.url)
    await store.open()
    yield store
    await store.close()


class TestASilentConnection:
    async def test_is_replaced_when_an_answer_is_due(self, wired, line):
        id = await insert(wired)
        line.silence()

        async with asyncio.timeout(SOON_S):
            job = await read(wired, id)

        assert job.status is Status.WAITING

    async def test_does_not_double_what_may_have_been_done(self, wired, line):
        held = await hold(wired)
        line.silence_from("lost on the way")

        async with asyncio.timeout(SOON_S):
            status = await settle(wired, held, Completed(output=b'"lost on the way"'))

        assert status is Status.COMPLETED

    async def test_leaves_no_locks_behind_in_the_middle_of_a_transaction(self, wired, line):
        job = new_job(fingerprint="once", on_conflict="raise")
        line.silence_from("COMMIT")

        async with asyncio.timeout(SOON_S):
            [inserted] = await wired.jobs.insert([job])

        assert inserted.is_new
        assert await wired.queries.count_jobs(JobFilter()) == 1

    async def test_does_not_hold_up_whoever_gives_up_earlier(self, patient, line):
        line.silence_from("COMMIT")
        inserting = asyncio.create_task(
            patient.jobs.insert([new_job(fingerprint="once", on_conflict="raise")])
        )
        await line.went_silent.wait()
        inserting.cancel()

        done, _ = await asyncio.wait([inserting], timeout=SOON_S)

        assert done
        assert inserting.cancelled()

    async def test_does_not_hold_up_a_close(self, line):
        store = PostgresStore(line.url)
        await store.open()
        line.silence()
        reading = asyncio.create_task(store.queries.count_jobs(JobFilter()))
        while store._session.connections._idle:  # noqa: ASYNC110 (until the read has its connection)
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])

        async with asyncio.timeout(SOON_S):
            await store.close()

        assert reading.cancelled()


class TestAStatementThatIsNeverAnswered:
    async def test_ends_and_says_that_it_may_have_been_done(
        self,
        wired,
        admin,
        schema,
        monkeypatch,
    ):
        monkeypatch.setattr(connections, "BUSY_TRIES", 2)
        id = await insert(wired)

        async with row_held(admin, schema, id):
            with refused("store.outcome_unknown", StoreError, reason="no answer within 1 s"):
                await wired.admin.change_jobs(Transition.ABORT, None, [id])
            await until_nobody_waits(admin, schema)  # the server was told to stop

        assert await status_of(wired, id) is Status.WAITING


class TestMigrating:
    async def test_waits_for_others_longer_than_for_answers(self, postgres_url, schema, admin):
        await admin.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        store = PostgresStore(with_query(postgres_url, answer_timeout="1"))
        async with admin.transaction():
            await admin.fetch(statements_in(schema)["lock_migrations"], schema)
            opening = asyncio.create_task(store.open())
            await until_somebody_waits(admin, "pg_advisory_xact_lock")
            await asyncio.sleep(1.2)  # in real time: longer than the limit, which is the server's
            assert not opening.done()
        await opening

        assert await store.queries.count_jobs(JobFilter()) == 0
        await store.close()


class TestAFrozenTransaction:
    async def test_is_ended_by_the_server_and_done_again(self, postgres_url, admin):
        store = PostgresStore(with_query(postgres_url, answer_timeout="1"))
        await store.open()
        tries = 0

        async def work(connection: Any, is_repeated: bool) -> bool:
            nonlocal tries
            tries += 1
            async with connection.transaction():
                await connection.fetch("SELECT 1")
                if tries == 1:
                    await asyncio.sleep(1.5)  # as a process that is stopped; the server's time
                await connection.fetch("SELECT 1")
            return is_repeated

        assert await store._session.connections.run(work)
        assert tries == 2
        await store.close()


class TestWakeups:
    async def test_come_back_when_their_connection_went_silent(
        self,
        line,
        admin,
        schema,
        monkeypatch,
    ):
        monkeypatch.setattr(wakeups, "HEARTBEAT_S", 0.1)
        monkeypatch.setattr(wakeups, "ANSWER_TIMEOUT_S", 0.5)
        store = PostgresStore(line.url)
        await store.open()
        ear = Ear(store)
        await ear.hears_anything()

        line.silence()
        await ear.hears_anything()
        ready = write_message({HintType.READY: {"partition"}}, "somebody else")
        await admin.execute("SELECT pg_notify($1, $2)", channel_of(schema), ready)

        assert await ear.next() == Hint(type=HintType.READY, names=frozenset({"partition"}))
        await store.close()
