"""The journal passes all contract tests of Perdure, and keeps what killed processes wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import Client
from perdure.clock import Clock
from perdure.errors import SchemaMismatch, StoreUnreachable
from perdure.model.ids import RunId
from perdure.store.contract import Store
from perdure.store.opening import require_store, store_at
from perdure.testing.contract import Harness
from perdure.testing.contract.suite import *  # noqa: F403


class JournalHarness(Harness):
    capabilities = frozenset({"audit"})

    def __init__(self, path: Path) -> None:
        self.url = f"journal:///{path}"

    def store(self, clock: Clock | None = None) -> Store:
        return store_at(self.url, clock=clock)

    async def delete_run(self, store: Any, namespace: str, run: RunId) -> None:
        store._session.state.records.put_run((namespace, run), None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.journal"


@pytest.fixture
def harness(path: Path) -> Harness:
    return JournalHarness(path)


ENQUEUES = """
import os, signal, sys
from perdure import Client, task

@task
def greet(name: str) -> str:
    return name

with Client(sys.argv[1]) as client:
    for number in range(5):
        client.enqueue(greet, str(number))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_keeps_what_a_killed_process_wrote_and_drops_a_record_that_it_did_not_complete(
    harness: Harness, path: Path
) -> None:
    subprocess.run([sys.executable, "-c", ENQUEUES, harness.url], check=False)
    with path.open("ab") as file:
        file.write(b"\0\0\1\0 torn")
    with Client(harness.url) as client:
        assert client.jobs.count() == 5
    with Client(harness.url) as client:
        assert client.jobs.count() == 5


async def test_refuses_a_file_that_is_not_a_journal(harness: Harness, path: Path) -> None:
    path.write_text("a letter")
    with pytest.raises(SchemaMismatch):
        await harness.store().open()
    with pytest.raises(SchemaMismatch):
        await require_store(harness.url)


async def test_a_command_that_reads_creates_no_file(harness: Harness, path: Path) -> None:
    with pytest.raises(StoreUnreachable):
        await require_store(harness.url)
    assert not path.exists()
