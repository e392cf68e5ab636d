"""A folder like a user's own, with modules of tasks and flows in it and a store beside."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Client, Worker
from perdure.client.sync import RunHandle
from tests.cli import sample_flows, sample_tasks
from tests.cli.harness import Commands


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working directory, with the sample tasks as ``sample.py`` and flows as ``shop.py``."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(Path(sample_tasks.__file__), folder / "sample.py")
    shutil.copy(Path(sample_flows.__file__), folder / "shop.py")
    return folder


@pytest.fixture
def url(folder: Path) -> str:
    return f"sqlite:///{folder}/work.db"


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def perdure(url: str) -> Commands:
    """The commands of the shell, run in this process on the test's store."""
    return Commands(url)


@pytest.fixture
def working(url: str, client: Client) -> Iterator[Worker]:
    """A worker with the sample flows."""
    worker = Worker(url, flows=[sample_flows.orders])
    handle = worker.start()
    yield worker
    handle.shutdown()
    assert handle.join(30)


@pytest.fixture
def waiting(working: Worker, client: Client) -> RunHandle:
    """``order-5``, which waits for an approval."""
    run = client.submit(sample_flows.orders, 5, id="order-5")
    assert any(event.status == "waiting" for event in run.watch())
    return run


@pytest.fixture
def failed(working: Worker, client: Client) -> RunHandle:
    """``order-13``, which failed at its first node."""
    run = client.submit(sample_flows.orders, 13, id="order-13")
    assert list(run.watch())[-1].status == "failed"
    return run


@pytest.fixture
def completed(waiting: RunHandle) -> RunHandle:
    """``order-5``, once it is done."""
    waiting.signal("approval", {"ok": True}, by="ann")
    waiting.result(timeout=30)
    return waiting
