"""What an examination finds in a file that something happened to."""

from __future__ import annotations

from perdure import Client, Flow, Worker, task
from perdure.diagnostics import Action
from perdure.store.sqlite.store import SqliteStore
from tests.backends.sqlite.files import connected


async def test_finds_an_index_that_was_dropped_and_how_to_make_it(store, path):
    with connected(path) as connection:
        connection.execute("DROP INDEX perdure_jobs_claimed")
        connection.commit()

    found = (await store.admin.inspect_storage()).missing_indexes
    assert found.keys() == {"perdure_jobs_claimed"}

    with connected(path) as connection:
        connection.execute(found["perdure_jobs_claimed"])
        connection.commit()
    assert (await store.admin.inspect_storage()).missing_indexes == {}


async def test_an_index_that_a_later_version_made_anew_is_the_later_one(store, path):
    with connected(path) as connection:
        connection.execute("DROP INDEX perdure_jobs_deadline")
        connection.commit()

    [statement] = (await store.admin.inspect_storage()).missing_indexes.values()
    assert "run_id IS NULL" in statement


async def test_finds_pages_that_were_overwritten(store, url, path):
    await store.close()
    with path.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\x00" * 4096)
    damaged = SqliteStore(url)
    await damaged.open()
    try:
        assert (await damaged.admin.inspect_storage()).damages
    finally:
        await damaged.close()


async def test_tells_the_size_of_the_log(store):
    await store.runs.save_definition("default", "orders", "v1", b"x" * 100_000)

    size = (await store.admin.inspect_storage()).log_bytes
    assert size is not None
    assert size > 100_000


@task
def pack(value: int) -> int:
    return value + 1


packing = Flow("packing").then(pack).build()


def test_a_stray_goes_on_once_it_was_cancelled_and_retried(url, path):
    """As the doctor advises; nothing that the library does makes one."""
    with Client(url) as client:
        run = client.submit(packing, 7, id="lost")
        with connected(path) as connection:
            connection.execute("DELETE FROM perdure_jobs")
            connection.commit()
        [found] = [each for each in client.store.health().findings if each.about == "runs"]
        assert found.code == "health.run_orphaned"
        steps = Action("runs.cancel", {"id": "lost"}), Action("runs.retry", {"id": "lost"})
        assert found.actions == steps

        client.runs.cancel("lost")
        client.runs.retry("lost")
        worker = Worker(url, flows=[packing]).start()
        try:
            assert run.result(timeout=30) == 8
        finally:
            worker.shutdown()
            worker.join()
