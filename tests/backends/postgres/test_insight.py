"""What an examination finds in a database that something happened to."""

from __future__ import annotations


async def test_finds_an_index_that_was_dropped_and_how_to_make_it(store, admin, schema):
    await admin.execute(f'DROP INDEX "{schema}".jobs_claimed')

    found = (await store.admin.inspect_storage()).missing_indexes
    assert found.keys() == {"jobs_claimed"}

    await admin.execute(found["jobs_claimed"])
    assert (await store.admin.inspect_storage()).missing_indexes == {}


async def test_finds_an_index_that_is_not_valid_and_how_to_make_it_anew(store, admin, schema):
    await admin.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = $1::text::regclass",
        f'"{schema}".jobs_group',
    )

    found = await store.admin.inspect_storage()
    assert found.missing_indexes == {}
    assert found.invalid_indexes.keys() == {"jobs_group"}

    await admin.execute(found.invalid_indexes["jobs_group"])
    assert (await store.admin.inspect_storage()).invalid_indexes == {}
