"""Processes of chaos are restarted when they end, and can be ended in any state."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from proof.chaos.processes import ChaosProcess
from proof.tests.chaos.waiting import WAIT_SECONDS, until

MODULE = "proof.tests.chaos.sample_process"

ROOT = Path(__file__).parents[3]

STARTER = f"""
import asyncio, sys
from pathlib import Path
from proof.chaos.processes import ChaosProcess

async def main():
    process = ChaosProcess("sample", {MODULE!r}, {{"does": "waits"}}, {{}}, Path(sys.argv[1]))
    process.start()
    while not process.is_ready:
        await asyncio.sleep(0.01)
    print(process.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""

Make = Callable[[str], ChaosProcess]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[ChaosProcess] = []

    def make_one(does: str) -> ChaosProcess:
        process = ChaosProcess(f"sample-{does}", MODULE, {"does": does}, {}, tmp_path)
        made.append(process)
        process.start()
        return process

    yield make_one
    for process in made:
        await process.close()


async def test_a_killed_process_is_restarted_and_that_is_no_finding(make: Make) -> None:
    process = make("waits")
    first = await running(process)

    assert process.kill()
    await until(lambda: process.pid not in (None, first))

    assert process.starts == 2
    assert process.unwanted_ends == []


async def test_an_unexpected_end_is_reported_with_the_output(make: Make) -> None:
    process = make("fails")
    await until(lambda: bool(process.unwanted_ends))

    assert process.unwanted_ends[0].startswith("sample-fails ended with 3: on purpose")


async def test_a_store_that_cannot_be_opened_is_a_failed_start(make: Make) -> None:
    process = make("finds no store")
    await until(lambda: process.failed_starts > 0)

    assert process.unwanted_ends == []


async def test_a_graceful_stop_reports_a_wrong_exit_code(make: Make) -> None:
    process = make("waits")
    await running(process)

    complaint = await process.stop_gracefully()

    assert complaint is not None
    assert f"ended with {-signal.SIGTERM}" in complaint


async def test_a_process_that_is_killed_while_it_stops_is_no_finding(make: Make) -> None:
    process = make("waits")
    await running(process)
    process.freeze()  # so that the stop is still in progress
    stopping = asyncio.create_task(process.stop_gracefully())
    await asyncio.sleep(0)
    process.kill()

    assert await stopping is None


async def test_a_frozen_process_can_be_closed(make: Make) -> None:
    process = make("waits")
    await running(process)
    assert process.freeze()

    await asyncio.wait_for(process.close(), WAIT_SECONDS)

    assert process.pid is None


async def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    starter = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STARTER, str(tmp_path)), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert starter.stdout is not None
    pid = int(await asyncio.wait_for(starter.stdout.readline(), WAIT_SECONDS))
    starter.kill()
    await starter.wait()

    await until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan that has not been reaped yet counts as dead.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


async def running(process: ChaosProcess) -> int:
    await until(lambda: process.is_ready)
    assert process.pid is not None
    return process.pid
