"""The store at ``postgresql://…``: shared by all processes that can reach the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import asyncpg

from perdure.clock import Clock
from perdure.errors import StoreError, StoreUnreachable
from perdure.model.graph import Graph
from perdure.model.job import Inserted, NewJob
from perdure.model.run import NewRun, Submitted
from perdure.store.contract import CONTRACT_NUMBER, Store
from perdure.store.postgres.address import parse_address
from perdure.store.postgres.admin import PostgresAdmin
from perdure.store.postgres.audit import PostgresAudit
from perdure.store.postgres.borrowed import (
    insert_awaiting,
    insert_blocking,
    submit_awaiting,
    submit_blocking,
)
from perdure.store.postgres.connection import Connection
from perdure.store.postgres.jobs import PostgresJobs
from perdure.store.postgres.live import PostgresLive
from perdure.store.postgres.maintenance import PostgresMaintenance
from perdure.store.postgres.migrations import migrate, require_postgres
from perdure.store.postgres.queries import PostgresQueries
from perdure.store.postgres.runs import PostgresRuns
from perdure.store.postgres.schedules import PostgresSchedules
from perdure.store.postgres.session import Session
from perdure.store.postgres.transfer import PostgresTransfer
from perdure.store.wakeups import HintTypes, Listener


class PostgresStore(Store):
    """A handle on the tables in one schema of one database.

    Options of the URL: ``schema`` (default perdure), ``pool`` (maximum connections), ``listen=off``
    (poll only), ``statement_cache=0`` (for PgBouncer in transaction mode), ``connect_timeout`` in
    seconds, and those of libpq. Without a ``clock``, the database's counts.
    """

    contract_number = CONTRACT_NUMBER

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._given_url = url
        session = Session(parse_address(url), clock)
        self._session = session
        self.jobs = PostgresJobs(session)
        self.runs = PostgresRuns(session)
        self.queries = PostgresQueries(session)
        self.admin = PostgresAdmin(session)
        self.maintenance = PostgresMaintenance(session)
        self.schedules = PostgresSchedules(session)
        self.live = PostgresLive(session)
        self.transfer = PostgresTransfer(session)
        self.audit = PostgresAudit(session)

    @property
    def url(self) -> str:
        return self._session.address.url

    async def open(self) -> None:
        await self._session.connections.open()
        self._session.wakeups.reopen()

        async def work(connection: Connection, _: bool) -> None:
            await migrate(connection, self._session.address)

        try:
            await self._session.connections.run(work)
        except BaseException as error:
            await self.close()
            # Only the server's own errors: a schema mismatch has a better message.
            if type(error) is StoreError or isinstance(error, asyncpg.PostgresError):
                raise StoreUnreachable(
                    url=self.url, reason=str(error.__cause__ or error)
                ) from error
            raise

    async def require(self) -> None:
        await require_postgres(self._session.address)

    async def close(self) -> None:
        await self._session.wakeups.close()
        await self._session.connections.close()

    def clone(self) -> PostgresStore:
        return PostgresStore(self._given_url, self._session.clock)

    async def now(self) -> datetime:
        return await self._session.present()

    def subscribe(self, listener: Listener, types: HintTypes = None) -> Callable[[], None]:
        return self._session.wakeups.subscribe(listener, types)

    async def insert_in_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        return await insert_awaiting(
            connection, jobs, self._session.moment(), self._session.address.schema
        )

    def insert_in_blocking_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        return insert_blocking(
            connection, jobs, self._session.moment(), self._session.address.schema
        )

    async def submit_in_transaction(
        self, connection: Any, run: NewRun, definitions: Sequence[Graph]
    ) -> Submitted:
        return await submit_awaiting(connection, self._session, run)

    def submit_in_blocking_transaction(
        self, connection: Any, run: NewRun, definitions: Sequence[Graph]
    ) -> Submitted:
        return submit_blocking(connection, self._session, run)
