"""Tasks with resources, importable by child processes, and what opens and builds these."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from perdure import CONTEXT, AsyncContext, BaseContext, Context, resource, task

NOTES = "PERDURE_TEST_NOTES"
"""The environment variable with the file in which child processes note what they do."""


class Pool:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.is_open = True


class Session:
    def __init__(self, tenant: str, pool: Pool) -> None:
        self.tenant = tenant
        self.pool = pool


DB = resource("db", Pool)
SESSION = resource("session", Session)


def note(text: str) -> None:
    with open(os.environ[NOTES], "a", encoding="utf-8") as file:
        file.write(f"{text} {os.getpid()}\n")


@asynccontextmanager
async def lifespan() -> AsyncIterator[dict[str, Any]]:
    pool = Pool()
    note("opened")
    yield {"db": pool}
    pool.is_open = False
    note("closed")


def _session(ctx: BaseContext) -> dict[str, Any]:
    return {"session": Session(ctx.arguments["tenant"], ctx.resources["db"])}


def provide(ctx: BaseContext) -> dict[str, Any]:
    return _session(ctx)


async def provide_async(ctx: BaseContext) -> dict[str, Any]:
    return _session(ctx)


@contextmanager
def provide_and_close(ctx: BaseContext) -> Iterator[dict[str, Any]]:
    try:
        yield _session(ctx)
    except ValueError:
        note("rolled back")  # and suppresses it, which must not turn the failure into a result
    else:
        note("committed")


@asynccontextmanager
async def provide_and_close_async(ctx: BaseContext) -> AsyncIterator[dict[str, Any]]:
    with provide_and_close(ctx) as session:
        yield session


def _values(tenant: str, db: Pool, session: Session, ctx: BaseContext) -> list[object]:
    if tenant == "bad":
        raise ValueError(tenant)
    same = session.pool is db and ctx.resources["db"] is db and ctx.resources["session"] is session
    return [session.tenant, db.is_open and db.pid == os.getpid() and same]


@task
def in_thread(
    tenant: str, db: Pool = DB, ctx: Context = CONTEXT, session: Session = SESSION
) -> list[object]:
    return _values(tenant, db, session, ctx)


@task
async def on_loop(
    ctx: AsyncContext = CONTEXT, db: Pool = DB, tenant: str = "", *, session: Session = SESSION
) -> list[object]:
    return _values(tenant, db, session, ctx)


@task(isolation="process")
def in_process(
    db: Pool = DB, tenant: str = "", session: Session = SESSION, *, ctx: Context = CONTEXT
) -> list[object]:
    return _values(tenant, db, session, ctx)


@task(isolation="process")
async def async_in_process(
    tenant: str, *, session: Session = SESSION, db: Pool = DB, ctx: AsyncContext = CONTEXT
) -> list[object]:
    return _values(tenant, db, session, ctx)


@task(isolation="process")
def pool_in_process(db: Pool = DB) -> int:
    return db.pid


@task(isolation="process")
def without_resources() -> int:
    return os.getpid()
