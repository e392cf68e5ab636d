"""A client and a worker in different processes: results, progress and aborts cross between them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from perdure import AsyncClient, JobCancelled, RunStatus, Status
from perdure.operations import waiting
from tests.client.flows import asking
from tests.client.tasks import add, until_aborted

PROGRAM = """
import sys
from perdure import Worker
from tests.client.flows import asking
from tests.client.tasks import add, until_aborted
Worker(sys.argv[1], tasks=[add, until_aborted], flows=[asking]).run()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """A place that another process can reach, which memory is not."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def worker_process(shared_url: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, shared_url], env=environment)
    yield process
    process.terminate()
    assert process.wait(30) == 0


@pytest.mark.usefixtures("worker_process")
class TestAcrossProcesses:
    async def test_a_result_wakes_its_waiter(self, shared_url, monkeypatch):
        monkeypatch.setattr(waiting, "POLL_SECONDS", 3600.0)
        async with AsyncClient(shared_url) as client:
            for number in range(5):
                handle = await client.enqueue(add, number)
                assert await handle.result(timeout=30) == number + 1

    async def test_progress_is_seen_live_and_an_abort_reaches_the_body(self, shared_url):
        async with AsyncClient(shared_url) as client:
            handle = await client.enqueue(until_aborted)

            async for update in handle.watch():
                if update.status is Status.ACTIVE and update.progress.percent == 50:
                    assert update.progress.message == "half way"
                    assert update.progress.details == {"done": 1}
                    assert (await handle.cancel()).after is Status.ABORTING

            assert update.status is Status.CANCELLED
            with pytest.raises(JobCancelled):
                await handle.result(timeout=10)

    async def test_a_run_is_followed_live_and_a_signal_reaches_it(self, shared_url, monkeypatch):
        monkeypatch.setattr(waiting, "POLL_SECONDS", 3600.0)
        monkeypatch.setattr(waiting, "CLOSE_POLL_SECONDS", 3600.0)
        async with AsyncClient(shared_url) as client:
            run = await client.submit(asking, 3)

            async for event in run.watch():
                if event.status is RunStatus.WAITING and event.node == "keep":
                    await run.signal("answer", "yes")

            assert event.status is RunStatus.COMPLETED
            assert await run.result(timeout=30) == "yes"
