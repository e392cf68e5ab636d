"""Connections come and go; whoever uses the store does not notice."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from perdure.errors import InvalidInput, InvalidStoreUrl, StoreError, StoreUnreachable
from perdure.model.job import JobFilter, Progress, Status
from perdure.model.outcome import Completed, Failed
from perdure.store.lifecycle import Transition
from perdure.store.postgres.connection import RETRY_DELAY_MAX_S, growing_delays
from perdure.store.postgres.store import PostgresStore
from tests.backends.postgres.waiting import (
    BY_NAME,
    row_held,
    until_gone,
    until_nobody_waits,
    until_somebody_waits,
)
from tests.conformance.builders import (
    WORKER,
    claim,
    claim_ids,
    claim_one,
    failure,
    hold,
    insert,
    insert_many,
    new_job,
    read,
    settle,
    status_of,
)
from tests.postgres_schemas import with_query
from tests.support.refusal import refused

CUT_ALL = """
SELECT count(pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE application_name = $1
"""


@pytest.fixture
async def named(postgres_url: str, schema: str) -> AsyncIterator[PostgresStore]:
    """A store whose connections can be told from all others."""
    store = PostgresStore(with_query(postgres_url, application_name=schema))
    await store.open()
    yield store
    await store.close()


class TestOpen:
    async def test_fails_at_once_when_nobody_answers(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            store = PostgresStore(f"postgresql://127.0.0.1:{free.getsockname()[1]}/work")

            with pytest.raises(StoreUnreachable, match="Is the server running"):
                await store.open()

    async def test_fails_at_once_when_the_server_stays_silent(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            port = silent.getsockname()[1]
            store = PostgresStore(f"postgresql://127.0.0.1:{port}/work?connect_timeout=1")

            with pytest.raises(StoreUnreachable):
                await store.open()

    async def test_names_a_database_that_is_not_there(self, postgres_server_url):
        base = postgres_server_url.rpartition("/")[0]

        with pytest.raises(StoreUnreachable, match="no_such_database"):
            await PostgresStore(f"{base}/no_such_database").open()

    async def test_shows_no_password(self, postgres_server_url):
        host = postgres_server_url.rpartition("@")[2].rpartition("/")[0]
        store = PostgresStore(f"postgresql://nobody:s3cret@{host}/no_such_database")

        with pytest.raises(StoreUnreachable) as unreachable:
            await store.open()

        assert "s3cret" not in str(unreachable.value)
        assert "s3cret" not in store.url

    async def test_refuses_what_the_driver_cannot_use(self, postgres_url):
        with pytest.raises(InvalidStoreUrl, match="sslmode"):
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

        assert (await read(wired, id)).status is Status.WAITING

    async def test_are_waited_for_while_the_server_restarts_and_logged_once(
        self, private_postgres, caplog
    ):
        caplog.set_level(logging.INFO, "perdure.store")
        store = PostgresStore(private_postgres.url())
        await store.open()
        id = await insert(store)
        private_postgres.stop("immediate")

        reading = [asyncio.create_task(read(store, id)) for _ in range(5)]
        done, _ = await asyncio.wait(reading, timeout=0.3)
        private_postgres.start()

        assert done == set()
        assert [(await task).id for task in reading] == [id] * 5
        logged = Counter(record.getMessage() for record in caplog.records)
        assert logged["lost the connection to the store; trying again until it answers"] == 1
        assert logged["the store answers again"] == 1
        await store.close()

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

    async def test_do_not_make_an_outcome_look_stale(self, wired, line):
        await insert(wired)
        held = await claim_one(wired)
        line.lose_answer_to("lost on the way back")

        status = await settle(wired, held, Completed(output=b'"lost on the way back"'))

        assert status is Status.COMPLETED

    async def test_do_not_bring_a_stale_outcome_back(self, wired, line):
        await insert(wired)
        held = await claim_one(wired)
        await wired.admin.change_jobs(Transition.DISABLE, None, [held.id])
        line.lose_answer_to("lost on the way back")

        status = await settle(wired, held, Completed(output=b'"lost on the way back"'))

        assert status is None
        assert await status_of(wired, held.id) is Status.DISABLED

    async def test_to_a_claim_leave_jobs_that_can_be_given_back(self, wired, line):
        lost, _ = await insert_many(wired, 2)
        line.lose_answer_to(WORKER)

        [second] = (await claim(wired, limit=1)).jobs
        given_back = await wired.jobs.requeue_unknown(WORKER, [second.claim.id])

        assert given_back == 1
        assert await status_of(wired, lost) is Status.WAITING


class TestCancellation:
    async def test_stops_the_statement_and_leaves_the_store_usable(
        self, postgres_url, schema, admin
    ):
        store = PostgresStore(with_query(postgres_url, pool="1"))
        await store.open()
        id = await insert(store)

        async with row_held(admin, schema, id):
            aborting = asyncio.create_task(store.admin.change_jobs(Transition.ABORT, None, [id]))
            await until_somebody_waits(admin, schema)
            aborting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await aborting
            await until_nobody_waits(admin, schema)

        assert await claim_ids(store) == [id]
        await store.close()


class TestValues:
    @pytest.mark.parametrize("text", ["zero \x00 byte", "half \udc80 pair"])
    async def test_that_cannot_be_kept_are_refused(self, store, text):
        with refused("store.unstorable", InvalidInput):
            await insert(store, group=text)

        assert await store.queries.count_jobs(JobFilter()) == 0

    @pytest.mark.parametrize("text", ["zero \x00 byte", "half \udc80 pair"])
    async def test_of_a_body_that_cannot_be_kept_do_not_spoil_the_batch(self, store, text):
        held = await hold(store)
        reason = failure(text)

        await store.jobs.save_progress([(held, Progress(percent=1, message=text))])
        status = await settle(store, held, Failed(failure=reason))

        assert status is Status.FAILED
        assert (await read(store, held.id)).progress.message.startswith(text[:5])
        [attempt] = await store.queries.failed_attempts(held.id)
        assert attempt.failure.message.startswith(text[:5])


class TestClose:
    async def test_refuses_what_comes_later(self, postgres_url):
        store = PostgresStore(postgres_url)
        await store.open()
        await store.close()

        with pytest.raises(StoreError, match="closed"):
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

        with pytest.raises(StoreError, match="may have been done all the same"):
            await inserting

    async def test_leaves_no_connection_behind(self, postgres_url, admin, schema):
        store = PostgresStore(with_query(postgres_url, application_name=schema))
        await store.open()
        store.subscribe(lambda hint: None)
        await asyncio.gather(*(insert(store) for _ in range(8)))

        await store.close()

        await until_gone(admin, schema)


class TestOptions:
    async def test_keep_to_the_pool_given(self, postgres_url, admin, schema):
        url = with_query(postgres_url, application_name=schema, pool="2", listen="off")
        store = PostgresStore(url)
        await store.open()

        await asyncio.gather(*(store.queries.count_jobs(JobFilter()) for _ in range(20)))

        assert 1 <= await admin.fetchval(BY_NAME, schema) <= 2
        await store.close()

    async def test_work_without_prepared_statements(self, postgres_url):
        store = PostgresStore(with_query(postgres_url, statement_cache="0"))
        await store.open()
        id = await insert(store)

        held = await claim_one(store)

        assert held.id == id
        assert await settle(store, held, Completed(output=b"1")) is Status.COMPLETED
        await store.close()
