"""A change of what is stored comes with a migration, and old rows stay readable."""

from __future__ import annotations

from typing import Any

import pytest

from tests.upgrade import released
from tests.upgrade.released import changes

NEW_MIGRATION = (
    "{what}. Databases out in the world have it as it was: undo the change, and put it into a new "
    "migration file of the next number, under src/perdure/store/{backend}/migrations and the other "
    "backend's. Then write it down: python -m tests.upgrade.released POSTGRES_URL"
)
NEW_FIELD = (
    "what is in rows out in the world would be misread: {what}. Keep the old field, and add one of "
    "another name, with a default"
)


def test_no_migration_was_edited(backend):
    known, found = released.read().migrations[backend], released.migrations(backend)
    for name, hash in known.items():
        what = f"migration {name} of {backend} was edited or removed"
        assert found.get(name) == hash, NEW_MIGRATION.format(what=what, backend=backend)
    assert found.keys() == known.keys(), (
        "a migration is new: python -m tests.upgrade.released POSTGRES_URL writes it down"
    )


async def test_the_tables_changed_by_no_other_means(backend, url):
    known = released.read().schemas[backend]
    found = await released.schema(url)
    what = f"the tables of {backend} are not what its migrations up to {max(known)} made"
    assert {released.highest(backend): found}.items() <= known.items(), NEW_MIGRATION.format(
        what=what, backend=backend
    )


def test_what_was_written_can_be_read():
    known, today = released.read().fields, released.fields()
    found = changes(known, today)
    assert found == [], NEW_FIELD.format(what="; ".join(found))
    assert today == known, (
        "a field is new: python -m tests.upgrade.released POSTGRES_URL writes it down"
    )


TEXT: dict[str, Any] = {"type": "string"}
MAYBE: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "null"}]}


class TestTheCheckItself:
    @pytest.mark.parametrize(
        "after, found",
        [
            ({}, ["Done is gone"]),
            ({"Done": {}}, ["Done.node is gone"]),
            ({"Done": {"node": {"type": "integer"}}}, ["Done.node was "]),
            ({"Done": {"node": TEXT, "by": TEXT | {"needed": True}}}, ["Done.by is needed"]),
            ({"Done": {"node": TEXT | {"needed": True}}}, ["Done.node was "]),
        ],
    )
    def test_sees_what_is_gone_or_other(self, after, found):
        seen = changes({"Done": {"node": TEXT}}, after)
        assert len(seen) == len(found)
        assert all(each.startswith(start) for each, start in zip(seen, found, strict=True))

    def test_allows_what_reads_old_rows_too(self):
        before = {"Done": {"node": MAYBE | {"needed": True}}}
        wider = {"anyOf": [*MAYBE["anyOf"], {"type": "integer"}]}
        assert changes(before, {"Done": {"node": wider, "by": MAYBE}, "New": {}}) == []
