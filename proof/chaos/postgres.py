"""A dedicated PostgreSQL server behind a proxy, and their faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from proof.chaos.faults import Environment, Fault, Missed
from proof.chaos.load import LEASE_SECONDS
from proof.chaos.processes import ProcessPool
from proof.chaos.proxy import Connection, Proxy

_TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'perdure'
  AND backend_type = 'client backend' AND random() < $1
"""
_READ = "SELECT count(*) FROM perdure.jobs"
_LOCK = "SELECT id FROM perdure.jobs WHERE status = 'active' LIMIT $1 FOR UPDATE SKIP LOCKED"


class Server(Protocol):
    """A server that chaos may crash."""

    port: int

    def start(self) -> None: ...

    def stop(self, mode: Literal["fast", "immediate"] = ...) -> None: ...

    def create_database(self) -> str: ...


class PostgresEnvironment(Environment):
    name = "postgres"
    clock_error_seconds = 3600.0

    def __init__(self, server: Server) -> None:
        self._server = server
        self._proxy = Proxy(server.port)
        self._down = asyncio.Lock()

    async def open(self) -> None:
        self.own_url = await asyncio.to_thread(self._server.create_database)
        await self._proxy.open()
        parts = urlsplit(self.own_url)
        user = parts.netloc.rpartition("@")[0]
        self.url = urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{self._proxy.port}"))

    async def close(self) -> None:
        await self._proxy.close()

    def faults(self, pool: ProcessPool) -> list[Fault]:
        return [
            Fault("crash of PostgreSQL", self.crash, is_certain=True, ends_others=True),
            Fault("outage longer than leases", self.outage),
            Fault("connections cut", self.cut, is_certain=True),
            Fault("connections half-open, then lost", self.lose_half_open, is_certain=True),
            Fault("connections held up, then late", self.hold_up),
            Fault("slow connections", self.slow_down),
            Fault("sessions terminated", self.terminate),
            Fault("idle transaction", self.idle, is_certain=True),
            Fault("idle transaction with locks", self.idle_with_locks),
        ]

    def left_out(self) -> list[str]:
        return [
            "clock turned: times are PostgreSQL's, whose clock is that of the machine; the clocks "
            "of the processes were wrong instead, by up to an hour each"
        ]

    async def crash(self, random: Random) -> str:
        return await self._down_for(0.0)

    async def outage(self, random: Random) -> str:
        return await self._down_for(random.uniform(1.2, 2) * LEASE_SECONDS)

    async def cut(self, random: Random) -> str:
        lines = self._some_lines(random)
        for line in lines:
            line.cut()
        return f"{len(lines)}"

    async def lose_half_open(self, random: Random) -> str:
        """Like a pulled cable: silence, until a timeout finds the connection dead."""
        lines, seconds = self._some_lines(random), random.uniform(1, 3) * LEASE_SECONDS
        silent = await _held(lines, seconds)
        for line in lines:
            line.cut()
        return f"{silent} for {seconds:.1f} s"

    async def hold_up(self, random: Random) -> str:
        """Deliver messages in flight only after leases have expired."""
        lines, seconds = self._some_lines(random), random.uniform(0.5, 2) * LEASE_SECONDS
        try:
            late = await _held(lines, seconds)
        finally:
            for line in lines:
                line.release()
        return f"{late} for {seconds:.1f} s"

    async def slow_down(self, random: Random) -> str:
        seconds, delay = random.uniform(1, 4), random.uniform(0.005, 0.1)
        before, self._proxy.delay_seconds = self._proxy.delayed, delay
        try:
            await asyncio.sleep(seconds)
        finally:
            self._proxy.delay_seconds = 0.0
        if self._proxy.delayed == before:
            raise Missed("nothing passed meanwhile")
        return f"by {delay * 1_000:.0f} ms for {seconds:.1f} s"

    async def terminate(self, random: Random) -> str:
        share = random.uniform(0.3, 1)

        async def end(session: Any) -> str:
            ended: int = await session.fetchval(_TERMINATE, share)
            if not ended:
                raise Missed("there was none")
            return f"{ended}"

        return await self._as_administrator(end)

    async def idle(self, random: Random) -> str:
        return await self._idle(random.uniform(2, 6), _READ)

    async def idle_with_locks(self, random: Random) -> str:
        seconds = random.uniform(0.5, 2) * LEASE_SECONDS
        return await self._idle(seconds, _LOCK, random.randint(1, 5))

    def _some_lines(self, random: Random) -> list[Connection]:
        share = random.uniform(0.3, 1)
        lines = self._proxy.chosen(lambda: random.random() < share)
        if not lines:
            raise Missed("there was none")
        return lines

    async def _down_for(self, seconds: float) -> str:
        async with self._down:  # one at a time
            await asyncio.to_thread(self._server.stop, "immediate")
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self._server.start)
        return f"down for {seconds:.1f} s" if seconds else "restarted at once"

    async def _idle(self, seconds: float, statement: str, *arguments: Any) -> str:
        async def hold(session: Any) -> str:
            async with session.transaction():
                await session.execute("SET LOCAL statement_timeout = '5s'")
                if not await session.fetch(statement, *arguments):
                    raise Missed("there was no row to lock")
                await asyncio.sleep(seconds)
            return f"{seconds:.1f} s"

        return await self._as_administrator(hold)

    async def _as_administrator(self, work: Callable[[Any], Awaitable[str]]) -> str:
        """Run as administrator, bypassing the proxy. A concurrent crash ends it harmlessly."""
        try:
            session = await asyncpg.connect(self.own_url, timeout=5)
        except (OSError, asyncpg.PostgresError) as error:
            raise Missed("the server was down") from error
        try:
            return await work(session)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise Missed(f"ended by {type(error).__name__}") from error
        finally:
            session.terminate()


async def _held(lines: list[Connection], seconds: float) -> int:
    """How many were held for the whole time, and not ended by something else."""
    for line in lines:
        line.hold()
    await asyncio.sleep(seconds)
    held = sum(not line.is_over for line in lines)
    if not held:
        raise Missed("all of them were ended meanwhile")
    return held
