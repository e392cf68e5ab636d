"""The searches for secrets and inconsistencies find them."""

from __future__ import annotations

import base64
import json
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from perdure import AsyncClient
from perdure.store.contract import Store
from perdure.store.opening import store_at
from proof.fuzz import work
from proof.fuzz.inspection import (
    SECRET,
    Leak,
    LogCapture,
    check_secrets,
    inspect_store,
    visible_parts,
)
from proof.strategies.values import PASSWORD


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = store_at(store_url)
    await store.open()
    yield store
    await store.close()


class TestSecrets:
    @pytest.mark.parametrize(
        "text",
        [
            f"with {SECRET} in it",
            json.dumps([SECRET]),
            f"{SECRET!r}",
            quote(SECRET),
            base64.b64encode(SECRET.encode()).decode(),
        ],
    )
    def test_are_found_however_they_are_written(self, text: str) -> None:
        with pytest.raises(Leak, match="this contains a secret"):
            check_secrets("this", {"deep": [text]})

    def test_of_the_store_in_use_are_known(self) -> None:
        check_secrets("this", "open sesame", "postgresql://me@127.0.0.1/db")

        with pytest.raises(Leak):
            check_secrets("this", "open sesame", "postgresql://me:sesame@127.0.0.1/db")

    def test_are_heard_in_logs_of_all_levels_and_in_their_tracebacks(self) -> None:
        logger = logging.getLogger("other")

        for tell in (_tell, _tell_in_traceback):
            with LogCapture() as ear:
                tell(logger)
            with pytest.raises(Leak, match="the log of other"):
                ear.check()

    def test_are_found_in_the_causes_of_an_error(self) -> None:
        with pytest.raises(RuntimeError) as caught:
            raise RuntimeError("no") from ValueError(PASSWORD)

        assert PASSWORD in visible_parts(caught.value)

    async def test_are_found_in_what_is_stored(self, store_url: str, store: Store) -> None:
        async with AsyncClient(store) as client:
            await client.enqueue(work.echo, SECRET)

        with pytest.raises(Leak, match="the store"):
            await inspect_store(store_url, store)


async def test_half_of_what_was_written_is_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    store = store_at(url)
    await store.open()
    async with AsyncClient(store) as client:
        await client.submit(work.chain, 1, id="half")
    await inspect_store(url, store)
    with closing(sqlite3.connect(tmp_path / "work.db")) as connection:
        connection.execute("DELETE FROM perdure_jobs")
        connection.commit()

    with pytest.raises(AssertionError, match="half"):
        await inspect_store(url, store)
    await store.close()


def _tell(logger: logging.Logger) -> None:
    logger.debug("with %s", SECRET)


def _tell_in_traceback(logger: logging.Logger) -> None:
    try:
        raise ValueError(SECRET)
    except ValueError:
        logger.exception("it failed")
