"""Lost connections are replaced without the caller noticing."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure import AsyncClient, Flow
from perdure.errors import InvalidInput, InvalidStoreUrl, StoreError, StoreUnreachable
from perdure.model.hint import Hint, HintType
from perdure.model.ids import JobId
from perdure.model.job import JobFilter, Progress, Status
from perdure.model.outcome import Completed, Failed
from perdure.model.run import RunStatus
from perdure.store.lifecycle import Transition
from perdure.store.postgres import connection as connections
from perdure.store.postgres import wakeups
from perdure.store.postgres.connection import RETRY_DELAY_MAX_S, growing_delays
from perdure.store.postgres.session import statements_in
from perdure.store.postgres.store import PostgresStore
from perdure.store.postgres.wakeups import channel_of, write_message
from perdure.testing.contract.builders import (
    NAMESPACE,
    WORKER,
    claim,
    claim_ids,
    claim_new,
    claim_one,
    failure,
    insert,
    insert_many,
    new_job,
    read_job,
    settle,
    status_of,
)
from perdure.worker.log_setup import PlainLines
from tests.backends.postgres.line import (
    BY_NAME,
    Line,
    row_held,
    until_blocked,
    until_gone,
    until_unblocked,
)
from tests.backends.postgres.test_wakeups import Ear
from tests.postgres_schemas import with_query
from tests.support.refusal import refused
from tests.support.stores import postgres_at

CUT_ALL = """
SELECT count(pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE application_name = $1
"""


@pytest.fixture
async def named(postgres_url: str, schema: str) -> AsyncIterator[PostgresStore]:
    """A store with recognizable connections."""
    async with postgres_at(postgres_url, application_name=schema) as store:
        yield store


class TestOpen:
    async def test_fails_at_once_without_an_answer(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            store = PostgresStore(f"postgresql://127.0.0.1:{free.getsockname()[1]}/work")
            with refused("store.unreachable", StoreUnreachable):
                await store.open()

    async def test_fails_at_once_when_the_server_stays_silent(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            port = silent.getsockname()[1]
            store = PostgresStore(f"postgresql://127.0.0.1:{port}/work?connect_timeout=1")
            with pytest.raises(StoreUnreachable):
                await store.open()

    async def test_waits_for_a_server_that_is_starting(self, postgres_url):
        """Finding 38: during crash recovery, a worker exited instead of waiting."""
        async with Line(postgres_url) as line:
            line.start_after(2)
            async with postgres_at(line.url):
                assert line.accepted == 3

    async def test_names_a_database_that_is_not_there(self, postgres_server_url):
        base = postgres_server_url.rpartition("/")[0]
        with pytest.raises(StoreUnreachable, match="no_such_database"):  # as PostgreSQL says
            await PostgresStore(f"{base}/no_such_database").open()

    async def test_shows_no_password(self, postgres_server_url):
        host = postgres_server_url.rpartition("@")[2].rpartition("/")[0]
        store = PostgresStore(f"postgresql://nobody:s3cret@{host}/no_such_database")
        with pytest.raises(StoreUnreachable) as unreachable:
            await store.open()
        assert "s3cret" not in str(unreachable.value)
        assert "s3cret" not in store.url

    async def test_refuses_what_the_driver_cannot_use(self, postgres_url):
        with pytest.raises(InvalidStoreUrl, match="sslmode"):  # as asyncpg says
            await PostgresStore(with_query(postgres_url, sslmode="perhaps")).open()


class TestLostConnections:
    async def test_are_replaced_when_the_server_ends_them(self, named, admin, schema):
        ids = await insert_many(named, 3)
        assert await admin.fetchval(CUT_ALL, schema) > 0
        taken = await claim_ids(named)
        assert taken == ids

    async def test_are_replaced_when_the_wire_is_cut(self, wired, line):
        id = await insert(wired)
        line.cut()
        assert (await read_job(wired, id)).status is Status.WAITING

    async def test_are_waited_for_while_the_server_restarts_and_logged_once(
        self, private_postgres, caplog
    ):
        caplog.set_level(logging.INFO, "perdure.store")
        async with postgres_at(private_postgres.url()) as store:
            id = await insert(store)
            private_postgres.stop("immediate")

            reading = [asyncio.create_task(read_job(store, id)) for _ in range(5)]
            done, _ = await asyncio.wait(reading, timeout=0.3)
            private_postgres.start()

            assert done == set()
            assert [(await task).id for task in reading] == [id] * 5
            logged = Counter(record.getMessage() for record in caplog.records)
            assert logged["lost the connection to the store; trying again until it answers"] == 1
            assert logged["the store answers again"] == 1
            shown = [PlainLines(is_coloured=False).format(record) for record in caplog.records]
            assert all(f"  store={store.url}" in line for line in shown)

    def test_are_tried_again_after_growing_capped_delays(self):
        delays = [delay for delay, _ in zip(growing_delays(), range(50), strict=False)]
        assert delays[0] <= 0.05
        assert RETRY_DELAY_MAX_S / 2 <= max(delays) <= RETRY_DELAY_MAX_S
        assert len(set(delays)) == len(delays)


class TestLostAnswers:
    async def test_do_not_double_an_insert(self, wired, line):
        job = new_job(input=b'"lost on the way back"')
        line.lose_answer_to("lost on the way back")
        [inserted] = await wired.jobs.insert([job])
        assert inserted.is_new
        assert await wired.queries.count_jobs(JobFilter()) == 1

    async def test_do_not_turn_an_insert_into_a_conflict_with_itself(self, wired, line):
        job = new_job(fingerprint="once", on_conflict="raise", input=b'"lost on the way back"')
        line.lose_answer_to("COMMIT")
        [inserted] = await wired.jobs.insert([job])
        assert inserted.is_new
        assert inserted.id == job.id

    async def test_do_not_turn_a_pause_of_a_queue_into_a_second_one(self, wired, line):
        line.lose_answer_to("lost on the way back")
        assert await wired.admin.pause_queue(NAMESPACE, "mail", "lost on the way back")
        line.lose_answer_to("DELETE FROM")
        assert await wired.admin.resume_queue(NAMESPACE, "mail")
        assert not await wired.admin.resume_queue(NAMESPACE, "mail")

    async def test_do_not_make_an_outcome_look_stale(self, wired, line):
        await insert(wired)
        held = await claim_one(wired)
        line.lose_answer_to("lost on the way back")
        status = await settle(wired, held, Completed(output=b'"lost on the way back"'))
        assert status is Status.COMPLETED

    async def test_do_not_restore_a_stale_outcome(self, wired, line):
        await insert(wired)
        held = await claim_one(wired)
        await wired.admin.change_jobs(Transition.DISABLE, None, [held.id])
        line.lose_answer_to("lost on the way back")
        status = await settle(wired, held, Completed(output=b'"lost on the way back"'))
        assert status is None
        assert await status_of(wired, held.id) is Status.DISABLED

    async def test_to_a_claim_leave_jobs_that_can_be_requeued(self, wired, line):
        lost, _ = await insert_many(wired, 2)
        line.lose_answer_to(WORKER)
        [second] = (await claim(wired, limit=1)).jobs
        given_back = await wired.jobs.requeue_unknown(WORKER, [second.claim.id])
        assert given_back == 1
        assert await status_of(wired, lost) is Status.WAITING


@pytest.fixture
async def no_unhandled_errors():
    """Nothing is left to be reported when garbage is collected."""
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    yield
    gc.collect()
    await asyncio.sleep(0)
    assert unhandled == []


async def abort_and_give_up(store: PostgresStore, id: JobId, admin: Any, schema: str) -> None:
    """Cancel a call that waits for a row."""
    aborting = asyncio.create_task(store.admin.change_jobs(Transition.ABORT, None, [id]))
    await until_blocked(admin, schema)
    aborting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await aborting
    await until_unblocked(admin, schema)


class TestCancellation:
    async def test_stops_the_statement_and_leaves_the_store_usable(
        self, postgres_url, schema, admin
    ):
        async with postgres_at(postgres_url, pool="1") as store:
            id = await insert(store)

            async with row_held(admin, schema, id):
                await abort_and_give_up(store, id, admin, schema)

            assert await claim_ids(store) == [id]

    async def test_keeps_the_connection_and_leaves_no_errors_behind(
        self, postgres_url, schema, admin, no_unhandled_errors
    ):
        """Finding 38: of the statement, and of a connection that is being made."""
        async with postgres_at(postgres_url, pool="1", application_name=schema) as store:
            backends = "SELECT pid FROM pg_stat_activity WHERE application_name = $1"
            before = await admin.fetch(backends, schema)
            id = await insert(store)
            async with row_held(admin, schema, id):
                for _ in range(5):
                    await abort_and_give_up(store, id, admin, schema)
                    assert await status_of(store, id) is Status.WAITING

            assert before[0] in await admin.fetch(backends, schema)

    async def test_of_a_transaction_leaves_a_connection_that_can_start_another(
        self, postgres_url, schema, admin
    ):
        """Finding 38: the cancelled call kept its connection, here the only one."""
        store = PostgresStore(with_query(postgres_url, pool="1"))
        async with AsyncClient(store) as client:
            run = await client.submit(Flow("waits").wait_for_signal("go").build(), id="a")
            async with admin.transaction():
                await admin.execute(f"SELECT FROM {schema}.runs WHERE id = 'a' FOR UPDATE")
                cancelling = asyncio.create_task(run.cancel())
                await until_blocked(admin, schema)
                cancelling.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await cancelling
            await run.cancel()
            assert (await run.record()).status is RunStatus.CANCELLED

    async def test_of_a_connection_that_is_being_made_leaves_no_errors_behind(
        self, postgres_url, no_unhandled_errors
    ):
        """Finding 38: "Future exception was never retrieved" was logged for each such call."""
        async with postgres_at(postgres_url) as store:
            calls = [asyncio.create_task(store.now()) for _ in range(5)]
            for turns, call in enumerate(calls):
                for _ in range(turns):
                    await asyncio.sleep(0)
                call.cancel()
            await asyncio.wait(calls)
        calls.clear()


class TestValues:
    @pytest.mark.parametrize("text", ["zero \x00 byte", "half \udc80 pair"])
    async def test_that_cannot_be_kept_are_refused(self, store, text):
        with refused("store.unstorable", InvalidInput):
            await insert(store, group=text)
        assert await store.queries.count_jobs(JobFilter()) == 0

    @pytest.mark.parametrize("text", ["zero \x00 byte", "half \udc80 pair"])
    async def test_of_a_body_that_cannot_be_kept_do_not_spoil_the_batch(self, store, text):
        held = await claim_new(store)
        reason = failure(text)

        await store.jobs.save_progress([(held, Progress(percent=1, message=text))])
        status = await settle(store, held, Failed(failure=reason))

        assert status is Status.FAILED
        assert (await read_job(store, held.id)).progress.message.startswith(text[:5])
        [attempt] = await store.queries.failed_attempts(held.id)
        assert attempt.failure.message.startswith(text[:5])


class TestClose:
    async def test_refuses_what_comes_later(self, postgres_url):
        store = PostgresStore(postgres_url)
        await store.open()
        await store.close()
        with refused("store.closed", StoreError):
            await store.queries.count_jobs(JobFilter())

    async def test_does_not_say_that_nothing_was_written_when_the_answer_was_lost(
        self, wired, line
    ):
        line.lose_answer_to("lost on the way back")
        connections = wired._session.connections

        inserting = asyncio.create_task(insert(wired, input=b'"lost on the way back"'))
        while connections._idle:  # noqa: ASYNC110 (until the insert has its connection)
            await asyncio.sleep(0)
        await connections.close()

        with refused("store.outcome_unknown", StoreError):
            await inserting

    async def test_leaves_no_connection_behind(self, postgres_url, admin, schema):
        async with postgres_at(postgres_url, application_name=schema) as store:
            store.subscribe(lambda hint: None)
            await asyncio.gather(*(insert(store) for _ in range(8)))
        await until_gone(admin, schema)


class TestOptions:
    async def test_keep_to_the_pool_given(self, postgres_url, admin, schema):
        url = with_query(postgres_url, application_name=schema, pool="2", listen="off")
        async with postgres_at(url) as store:
            await asyncio.gather(*(store.queries.count_jobs(JobFilter()) for _ in range(20)))
            assert 1 <= await admin.fetchval(BY_NAME, schema) <= 2

    async def test_work_without_prepared_statements(self, postgres_url):
        async with postgres_at(postgres_url, statement_cache="0") as store:
            id = await insert(store)
            held = await claim_one(store)
            assert held.id == id
            assert await settle(store, held, Completed(output=b"1")) is Status.COMPLETED


# A connection that takes everything and answers nothing, as through a proxy that hangs.


SOON_S = 10.0


@pytest.fixture
async def wired(line: Line) -> AsyncIterator[PostgresStore]:
    """A store at the end of the wire that does not wait for long."""
    async with postgres_at(line.url, answer_timeout="1") as store:
        yield store


@pytest.fixture
async def patient(line: Line) -> AsyncIterator[PostgresStore]:
    """A store at the end of the wire that waits for as long as it does by default."""
    async with postgres_at(line.url) as store:
        yield store


class TestASilentConnection:
    async def test_is_replaced_when_an_answer_is_due(self, wired, line):
        id = await insert(wired)
        line.silence()
        async with asyncio.timeout(SOON_S):
            job = await read_job(wired, id)
        assert job.status is Status.WAITING

    async def test_does_not_double_what_may_have_been_done(self, wired, line):
        held = await claim_new(wired)
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

    async def test_does_not_hold_up_callers_that_give_up_earlier(self, patient, line):
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
        self, wired, admin, schema, monkeypatch
    ):
        monkeypatch.setattr(connections, "BUSY_TRIES", 2)
        id = await insert(wired)
        async with row_held(admin, schema, id):
            with refused("store.outcome_unknown", StoreError, reason="no answer within 1 s"):
                await wired.admin.change_jobs(Transition.ABORT, None, [id])
            await until_unblocked(admin, schema)  # the server cancelled it
        assert await status_of(wired, id) is Status.WAITING


class TestMigrating:
    async def test_waits_for_others_longer_than_for_answers(self, postgres_url, schema, admin):
        await admin.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        store = PostgresStore(with_query(postgres_url, answer_timeout="1"))
        async with admin.transaction():
            await admin.fetch(statements_in(schema)["lock_migrations"], schema)
            opening = asyncio.create_task(store.open())
            await until_blocked(admin, "pg_advisory_xact_lock")
            await asyncio.sleep(1.2)  # in real time: longer than the limit, which is the server's
            assert not opening.done()
        await opening

        assert await store.queries.count_jobs(JobFilter()) == 0
        await store.close()


class TestAFrozenTransaction:
    async def test_is_ended_by_the_server_and_done_again(self, postgres_url, admin):
        async with postgres_at(postgres_url, answer_timeout="1") as store:
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


class TestWakeups:
    async def test_are_requeued_when_their_connection_went_silent(
        self, line, admin, schema, monkeypatch
    ):
        monkeypatch.setattr(wakeups, "HEARTBEAT_S", 0.1)
        monkeypatch.setattr(wakeups, "ANSWER_TIMEOUT_S", 0.5)
        async with postgres_at(line.url) as store:
            ear = Ear(store)
            await ear.hears_anything()

            line.silence()
            await ear.hears_anything()
            ready = write_message({HintType.READY: {"partition"}}, "somebody else")
            await admin.execute("SELECT pg_notify($1, $2)", channel_of(schema), ready)

            assert await ear.next() == Hint(type=HintType.READY, names=frozenset({"partition"}))
