"""A SQLite file that processes share, with faults of the file, its disk and its clock."""

from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

from proof.chaos.clock import TurnedClock
from proof.chaos.faults import Environment, Fault, Missed
from proof.chaos.load import LEASE_SECONDS
from proof.chaos.processes import ChaosProcess, ProcessPool

CAN_LIMIT_OTHERS = hasattr(resource, "prlimit")
DISK_ERRORS = (b"disk I/O error", b"disk is full")
"""SQLite's messages for a failed write."""
TURN_SECONDS = (0.5, 3 * LEASE_SECONDS)

# Writes more than the cache holds, so that pages of the unfinished transaction are in the WAL,
# reports it, and waits to be killed.
_TORN_WRITE = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
connection.execute("PRAGMA cache_size = 10")
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE torn (data BLOB)")
connection.executemany("INSERT INTO torn VALUES (randomblob(4000))", [()] * 500)
print("written", flush=True)
time.sleep(60)
"""


class SqliteEnvironment(Environment):
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._file = folder / "work.db"
        self.url = self.own_url = f"sqlite:///{self._file}"
        self.clock = folder / "clock"
        self._turned = TurnedClock(self.clock)

    async def open(self) -> None:
        """Nothing: the first process creates the file."""

    async def close(self) -> None:
        """Nothing: the file is removed with its folder."""

    def faults(self, pool: ProcessPool) -> list[Fault]:
        disk = DiskFaults(self._file, pool)
        limited = [
            Fault("disk full for one process", disk.full_for_one),
            Fault("disk full for all", disk.full_for_all, is_certain=True),
        ]
        return [
            Fault("write lock held by another process", self.hold_lock),
            Fault("kill -9 in the middle of a write", self.tear_write),
            Fault("clock turned forward", self.turn_forward, is_certain=True),
            Fault("clock turned back", self.turn_back, is_certain=True),
            *(limited if CAN_LIMIT_OTHERS else []),
        ]

    def left_out(self) -> list[str]:
        return [] if CAN_LIMIT_OTHERS else ["disk full: this system has no prlimit"]

    async def hold_lock(self, random: Random) -> str:
        seconds = random.uniform(0.5, 2) * LEASE_SECONDS
        connection = sqlite3.connect(self._file, timeout=0, isolation_level=None)
        try:
            await _locked(connection)
            await asyncio.sleep(seconds)
            connection.execute("ROLLBACK")
        finally:
            connection.close()
        return f"for {seconds:.1f} s"

    async def tear_write(self, random: Random) -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _TORN_WRITE, str(self._file)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            said = await process.stdout.readline()
            await asyncio.sleep(random.uniform(0, 1))
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.wait()
        if not said:
            raise Missed("it got no turn to write")
        return "2 MB of it"

    async def turn_forward(self, random: Random) -> str:
        return self._turn(random.uniform(*TURN_SECONDS))

    async def turn_back(self, random: Random) -> str:
        return self._turn(-random.uniform(*TURN_SECONDS))

    def _turn(self, seconds: float) -> str:
        self._turned.turn(seconds)
        return f"by {seconds:+.1f} s"


class DiskFaults:
    """Files that cannot grow: a resource limit on our processes, removed again."""

    def __init__(self, file: Path, pool: ProcessPool) -> None:
        self._wal = Path(f"{file}-wal")
        self._pool = pool

    async def full_for_one(self, random: Random) -> str:
        process = random.choice(self._pool.all)
        return f"{process.name}: {await self._full([process], random)}"

    async def full_for_all(self, random: Random) -> str:
        return await self._full(self._pool.all, random)

    async def _full(self, processes: list[ChaosProcess], random: Random) -> str:
        """No byte can be written, or none beyond the current size."""
        bytes_max = random.choice([0, self._wal.stat().st_size if self._wal.exists() else 0])
        seconds = random.uniform(0.3, 2) * LEASE_SECONDS
        heard = [each.log.stat().st_size for each in processes]
        usual, most = resource.getrlimit(resource.RLIMIT_FSIZE)  # they inherited it
        concerned = [each.pid for each in processes if each.pid is not None]
        for pid in concerned:
            _limit(pid, (bytes_max, most))
        try:
            await asyncio.sleep(seconds)
        finally:
            for pid in concerned:
                _limit(pid, (usual, most))
        refused = sum(map(_complained, processes, heard))
        if not refused:
            raise Missed("nothing tried to write more")
        return f"no file beyond {bytes_max} bytes for {seconds:.1f} s, felt by {refused}"


def _complained(process: ChaosProcess, since: int) -> bool:
    """Whether a write was refused, according to the process's log from this byte on."""
    with process.log.open("rb") as log:
        log.seek(since)
        said = log.read()
    return any(each in said for each in DISK_ERRORS)


def _limit(pid: int, bytes_max: tuple[int, int]) -> None:
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, bytes_max)


async def _locked(connection: sqlite3.Connection) -> None:
    """Start a write transaction once the file is free."""
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            await asyncio.sleep(0.002)
        else:
            return
