"""Hostile text wherever a store keeps text, and every command that shows it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from typing import Any

import asyncpg

from perdure import CONTEXT, AsyncClient, AsyncContext, Flow, PerdureError, Permanent, Worker, task
from perdure.store.contract import Store
from perdure.store.postgres.address import parse_address
from proof.fuzz import work
from proof.fuzz.aftermath import LISTS, OF_A_JOB, OF_A_RUN, until_quiet
from proof.fuzz.inspection import check_printed, check_secrets
from tests.cli.harness import Commands
from tests.worker.harness import Running


@task
async def say(text: str, ctx: AsyncContext = CONTEXT) -> None:
    """Quotes its input in all its progress messages."""
    await ctx.progress(50, text, {text: [text]})
    await ctx.step("said", lambda: {text: text})
    error = type("Said", (Permanent,), {"__module__": text})(text)
    error.add_note(text)
    raise error from ValueError(text)


TITLE, PERSON = "Pay {{ value }}?", "ann"
FLOWS = [
    Flow("saying").then(say).build(),
    Flow("titled")
    .approve(TITLE, message="{{ value }}", data={"of": "{{ value }}"}, name="review",
             policy={"at_least": 2}, form=work.ANY_FIELDS)
    .build(),
    work.chain,
    work.asking,
    work.outer,
]  # fmt: skip


async def fill(store: Store, client: AsyncClient, text: str) -> None:
    """Put the text wherever callers and tasks can put one."""
    id = "titled:review"
    for flow in FLOWS:
        await _perhaps(client.submit, flow, text, id=flow.name)
    await _perhaps(client.enqueue, say, text)
    options = {"delay": "1h", "tags": [text], "group": text}
    await _perhaps(client.jobs.enqueue, work.echo, [text], options=options)
    await _perhaps(client.submit, work.chain, text, id=text)
    await _perhaps(client.schedules.save, "nightly", work.chain, cron="0 3 * * *", input=text)
    running = await Running(Worker(store, tasks=[say, *work.TASKS], flows=FLOWS)).start()
    await until_quiet(client, running)
    await _perhaps(client.approvals.decide, id, "approve", by=text, note=text)
    await _perhaps(client.approvals.decide, id, "approve", by=PERSON, note=text, data={text: text})
    await _perhaps(
        client.runs.report, "outer", "outside", status="progress", progress=text, by=text
    )
    await _perhaps(client.runs.report, "outer", "outside", status="failed", error=text, key=text)
    await _perhaps(client.runs.signal, "asking", "stop", text)
    await _perhaps(client.runs.pause, "asking", reason=text, by=text)
    await _perhaps(client.runs.fork, "chain", after="echo", patch={"echo": text}, new_id="forked")
    await _perhaps(client.runs.cancel, "forked", reason=text)
    await until_quiet(client, running)
    await running.stop()


async def _perhaps(call: Callable[..., Awaitable[Any]], *args: Any, **named: Any) -> None:
    try:
        await call(*args, **named)
    except PerdureError as error:
        check_printed("an error", str(error))


async def rewrite(url: str, place: int, text: str) -> str:
    """Append the text to all rows of one text column, as another program could have.

    Returns the column. Rows that a constraint protects stay as they are.
    """
    stored = text.replace("\x00", "").encode(errors="replace").decode()
    if url.startswith("sqlite:"):
        return _in_sqlite(url.removeprefix("sqlite:///"), place, stored)
    return await _in_postgres(url, place, stored)


def _in_sqlite(path: str, place: int, text: str) -> str:
    with closing(sqlite3.connect(path)) as connection:
        columns = connection.execute(
            "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c "
            "WHERE t.type = 'table' AND c.type = 'TEXT' AND t.name NOT LIKE '%migrations' "
            "ORDER BY 1, 2"
        ).fetchall()
        table, column = columns[place % len(columns)]
        connection.execute(
            f"UPDATE OR IGNORE {table} SET {column} = {column} || ? WHERE {column} IS NOT NULL",
            (text,),
        )
        connection.commit()
    return f"{table}.{column}"


async def _in_postgres(url: str, place: int, text: str) -> str:
    address = parse_address(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        columns = await connection.fetch(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = $1"
            " AND data_type = 'text' AND table_name <> 'migrations' ORDER BY 1, 2",
            address.schema,
        )
        table, column = columns[place % len(columns)]
        where = f"{address.schema}.{table}"
        for (row,) in await connection.fetch(f"SELECT ctid FROM {where}"):
            try:
                await connection.execute(
                    f"UPDATE {where} SET {column} = {column} || $1 WHERE ctid = $2", text, row
                )
            except asyncpg.PostgresError:
                continue
        return f"{table}.{column}"
    finally:
        await connection.close()


async def ids(client: AsyncClient) -> tuple[list[str], list[str]]:
    """Jobs and runs, as far as they can be listed."""
    try:
        jobs, runs = await client.jobs.list(limit=100), await client.runs.list(limit=100)
    except PerdureError as error:
        check_printed("an error", str(error))
        return [], []
    return [each.id for each in jobs], [each.id for each in runs]


def show(url: str, jobs: Sequence[str], runs: Sequence[str]) -> None:
    """Print everything, as text and as JSON: nothing that a terminal would obey."""
    commands = [
        *LISTS,
        ("doctor",),
        ("verify",),
        ("flows", "list"),
        ("schedules", "get", "--", "nightly"),
        ("decide", "--by", PERSON, "--", "titled:review", "approve"),
        *((*each, "--", id) for id in jobs for each in [*OF_A_JOB, ("jobs", "attempts")]),
        *((*each, "--", id) for id in runs for each in [*OF_A_RUN, ("runs", "diagram")]),
        *(("approvals", "get", "--", f"{id}:review") for id in runs),
    ]
    perdure = Commands(url)
    for command in commands:
        head = command[: command.index("--")] if "--" in command else command
        for how in ((), ("--json",)):
            answer = perdure(*head, *how, *command[len(head) :])
            assert "Traceback (" not in answer.error, (command, answer)
            check_printed(f"perdure {' '.join(head)}", repr(answer))
            check_secrets(f"perdure {' '.join(head)}", answer, url)
