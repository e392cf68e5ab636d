"""Faults without effect say so, instead of being counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from proof.chaos.faults import Misbehaved, Missed, ProcessFaults
from proof.chaos.postgres import PostgresEnvironment
from proof.chaos.processes import ChaosProcess, ProcessPool
from proof.chaos.sqlite import DiskFaults
from proof.tests.chaos.waiting import until

MODULE = "proof.tests.chaos.sample_process"


class Shortest(Random):
    """Draws the minimum of every range, so that faults are short."""

    def uniform(self, a: float, b: float) -> float:
        return min(a, b)


class NoServer:
    port = 1

    def start(self) -> None: ...

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None: ...

    def create_database(self) -> str:
        return f"postgresql://nobody@127.0.0.1:{self.port}/none"


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[ChaosProcess]:
    settings = {"does": "waits", "worker": "sample"}
    process = ChaosProcess("sample", MODULE, settings, {}, tmp_path)
    yield process
    await process.close()


@pytest.fixture
async def environment() -> AsyncIterator[PostgresEnvironment]:
    """An environment whose server is down."""
    environment = PostgresEnvironment(NoServer())
    await environment.open()
    yield environment
    await environment.close()


class TestProcessFaults:
    async def test_miss_a_process_that_starts(self, process: ChaosProcess) -> None:
        faults = ProcessFaults(ProcessPool([process], [process]))

        for fault in faults.all():
            with pytest.raises(Missed, match="starting"):
                await fault.happen(Shortest())

    async def test_hit_a_process_at_work(self, process: ChaosProcess) -> None:
        await at_work(process)

        assert await ProcessFaults(ProcessPool([], [process])).kill_client(Shortest()) == "sample"

    async def test_miss_when_a_frozen_process_is_killed(self, process: ChaosProcess) -> None:
        await at_work(process)
        faults = ProcessFaults(ProcessPool([], [process]))

        freezing = asyncio.create_task(faults.freeze_client(Shortest()))
        await until(lambda: process.is_frozen)
        process.kill()

        with pytest.raises(Missed, match="killed meanwhile"):
            await freezing

    async def test_freeze_a_process_once_at_a_time(self, process: ChaosProcess) -> None:
        await at_work(process)
        faults = ProcessFaults(ProcessPool([], [process]))

        freezing = asyncio.create_task(faults.freeze_client(Shortest()))
        await until(lambda: process.is_frozen)
        with pytest.raises(Missed, match="frozen already"):
            await faults.freeze_client(Shortest())

        assert await freezing == "sample for 0.5 s"

    @pytest.mark.parametrize("does", ["gives way", "fails to give way"])
    async def test_start_a_second_worker_to_which_the_older_gives_way(
        self, does: str, tmp_path: Path
    ) -> None:
        settings = {"does": does, "worker": "sample", "newer": str(tmp_path / "newer")}
        process = ChaosProcess("sample", MODULE, settings, {}, tmp_path)
        faults = ProcessFaults(ProcessPool([process], []))
        await at_work(process)
        older = process.pid
        try:
            if does == "gives way":
                assert await faults.supersede_worker(Shortest()) == "sample"
            else:
                with pytest.raises(Misbehaved, match="ended with 3 after another one had its id"):
                    await faults.supersede_worker(Shortest())
            await until(lambda: process.is_at_work and process.pid != older)
        finally:
            await process.close()

        assert process.starts == 2
        assert process.unwanted_ends == []


class TestPostgresFaults:
    async def test_miss_where_there_is_no_connection(
        self, environment: PostgresEnvironment
    ) -> None:
        for fault in (environment.cut, environment.lose_half_open, environment.hold_up):
            with pytest.raises(Missed, match="there was none"):
                await fault(Shortest())

    async def test_miss_where_nothing_passes(self, environment: PostgresEnvironment) -> None:
        with pytest.raises(Missed, match="nothing passed"):
            await environment.slow_down(Shortest())

    async def test_miss_a_server_that_is_down(self, environment: PostgresEnvironment) -> None:
        for fault in (environment.terminate, environment.idle, environment.idle_with_locks):
            with pytest.raises(Missed, match="the server was down"):
                await fault(Shortest())


async def test_a_full_disk_misses_who_does_not_write(process: ChaosProcess, tmp_path: Path) -> None:
    await at_work(process)
    disk = DiskFaults(tmp_path / "work.db", ProcessPool([process], []))

    with pytest.raises(Missed, match="nothing tried to write"):
        await disk.full_for_all(Shortest())


async def at_work(process: ChaosProcess) -> None:
    process.start()
    await until(lambda: process.is_at_work)
