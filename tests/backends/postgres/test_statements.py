"""Statements as the server gets them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
import pytest

from perdure.model.ids import JobId
from perdure.model.job import JobFilter, Status
from perdure.store.contract.audit import SharedFingerprint
from perdure.store.lifecycle import Transition
from perdure.store.postgres.admin import change_statement
from perdure.store.postgres.params import PARAMS
from perdure.store.postgres.session import statements_in
from perdure.store.postgres.store import PostgresStore
from perdure.store.sql.statements import (
    Integer,
    Now,
    Text,
    TextArray,
    arguments_of,
    expand,
    fill,
    types_of,
)
from perdure.testing.contract.builders import (
    MINUTE,
    NAMESPACE,
    PARTITION,
    claim_ids,
    insert,
    insert_many,
)
from tests.support.stores import postgres_at

GOLDEN = Path(__file__).parent / "golden"
FILLED_IN = {"filter": "true", "filter_unindexed": "true"}
COMMANDS = {"create_schema", "lock_tables"}
"""Which cannot be prepared: the schema is filled in, or several statements are run at once."""


class LineColumns(NamedTuple):
    id: Text
    epoch: Integer


class SampleParams(NamedTuple):
    now: Now
    lines: LineColumns
    names: TextArray


class TestExpand:
    @pytest.mark.parametrize(
        "text,expanded",
        [
            ("SELECT :now", "SELECT CAST($1 AS timestamptz)"),
            ("a::text = ANY (:names)", "a::text = ANY (CAST($4 AS text[]))"),
            ("(:lines.epoch)[1]", "(CAST($3 AS integer[]))[1]"),
            ("FROM :lines(epoch)", "FROM unnest(CAST($3 AS integer[])) AS lines (epoch)"),
            (
                "FROM :lines(id,\n    epoch)",
                "FROM unnest(CAST($2 AS text[]), CAST($3 AS integer[])) AS lines (id, epoch)",
            ),
            (
                "FROM :lines(id, #position)",
                "FROM unnest(CAST($2 AS text[])) WITH ORDINALITY AS lines (id, position)",
            ),
            ("SELECT 1 -- as of :then\nFROM x", "SELECT 1\nFROM x"),
            ("SELECT 1 -- as of :then", "SELECT 1\n"),
        ],
    )
    def test_numbers_what_is_named(self, text, expanded):
        assert expand(text, SampleParams) == expanded

    def test_refuses_what_is_not_declared(self):
        with pytest.raises(KeyError, match=r"lines\.kind"):
            expand("FROM :lines(kind)", SampleParams)

    def test_arguments_have_the_order_of_their_numbers(self):
        params = SampleParams(now=None, lines=LineColumns(id=["a"], epoch=[1]), names=["x"])
        assert arguments_of(params) == [None, ["a"], [1], ["x"]]
        assert list(types_of(SampleParams)) == ["now", "lines.id", "lines.epoch", "names"]

    def test_columns_without_values_are_not_sent(self):
        lines = LineColumns(id=["a", "b"], epoch=[None, None])
        assert arguments_of(SampleParams(now=None, lines=lines, names=[])) == [
            None,
            ["a", "b"],
            None,
            [],
        ]

    def test_columns_with_some_values_are_sent(self):
        params = SampleParams(now=None, lines=LineColumns(id=[], epoch=[None, 1]), names=[])
        assert arguments_of(params) == [None, None, [None, 1], []]


def test_the_statement_that_commits_is_the_one_whose_plan_was_looked_at():
    """A join or an ORDER BY that is added for clarity changes a generic plan: before you write the
    golden file again, look at ``test_plans`` and at ``make bench``."""
    golden = (GOLDEN / "commit_runs.sql").read_text(encoding="utf-8")
    assert statements_in("perdure")["commit_runs"] + "\n" == golden


@pytest.mark.parametrize("name", sorted(PARAMS))
def test_every_parameter_that_is_declared_is_used(name):
    statement = statements_in("perdure")[name]
    for number in range(1, len(types_of(PARAMS[name])) + 1):
        assert f"CAST(${number} AS " in statement


async def test_every_statement_can_be_prepared(bare_postgres_url):
    store = PostgresStore(bare_postgres_url)
    await store.open()
    address = store._session.address
    statements = dict(statements_in(address.schema))
    template = statements.pop("change_jobs")
    changes = (Transition.ABORT, Transition.DISABLE, Transition.ENABLE, Transition.RETRY)
    for operation in (*changes, Transition.RESUME):
        for scope in ("ids", "group"):
            name = f"{operation} {scope}"
            statements[name] = change_statement(template, operation, scope)
    connection = await asyncpg.connect(address.dsn)
    try:
        for name in statements.keys() - COMMANDS:
            await connection.prepare(fill(statements[name], FILLED_IN))
    finally:
        await connection.close()
        await store.close()


# What the verifier reads of tables that were tampered with.


async def test_finds_fingerprints_that_several_jobs_share(bare_postgres_url):
    async with postgres_at(bare_postgres_url) as store:
        for fingerprint in ("one", "two", "three"):
            await insert(store, fingerprint=fingerprint)
        parts = urlsplit(bare_postgres_url)
        [schema] = parse_qs(parts.query)["schema"]
        connection = await asyncpg.connect(urlunsplit(parts._replace(query="")))
        await connection.execute(f'DROP INDEX "{schema}".jobs_fingerprint')
        await connection.execute(
            f"UPDATE \"{schema}\".jobs SET fingerprint = 'same' WHERE fingerprint <> 'one'"
        )
        await connection.close()

        found = await store.audit.shared_fingerprints(NAMESPACE)

        assert found == [
            SharedFingerprint(
                namespace=NAMESPACE, queue=PARTITION.queue, fingerprint="same", count=2
            )
        ]
        assert await store.audit.shared_fingerprints("nobody's") == []


# What an examination finds in a database that something happened to.


async def test_finds_an_index_that_is_not_valid_and_how_to_recreate_it(store, admin, schema):
    await admin.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = $1::text::regclass",
        f'"{schema}".jobs_group',
    )

    found = await store.admin.inspect_storage()
    assert found.missing_indexes == {}
    assert found.invalid_indexes.keys() == {"jobs_group"}

    await admin.execute(found.invalid_indexes["jobs_group"])
    assert (await store.admin.inspect_storage()).invalid_indexes == {}


# Lists are in order and complete, whether few or many jobs have the status.


FEW, MANY = 150, 450
"""Below and above the number up to which jobs of a status are sorted."""


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("status", [Status.WAITING, Status.SCHEDULED, Status.ACTIVE])
async def test_pages_of_one_status_hold_each_job_once_newest_first(store, status, count):
    delay = MINUTE if status is Status.SCHEDULED else 0 * MINUTE
    others = {Status.WAITING: MINUTE, Status.SCHEDULED: 0 * MINUTE, Status.ACTIVE: MINUTE}
    await insert_many(store, 10, delay=others[status])
    ids = await insert_many(store, count, delay=delay)
    await insert_many(store, 10, delay=others[status])
    if status is Status.ACTIVE:
        await claim_ids(store, limit=count)

    listed: list[JobId] = []
    wanted = JobFilter(namespace=NAMESPACE, status=status)
    while page := await store.queries.list_jobs(wanted, 70):
        assert {job.status for job in page} == {status}
        listed += [job.id for job in page]
        wanted = JobFilter(namespace=NAMESPACE, status=status, before=listed[-1])

    assert listed == ids[::-1]
