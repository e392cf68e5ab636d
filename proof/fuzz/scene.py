"""A store with work in every state, on which calls are tried."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any

from perdure import AsyncClient, PerdureError, Worker
from perdure.clock import ManualClock
from perdure.diagnostics import MESSAGE_MAX
from perdure.store.contract import Store
from perdure.store.opening import store_at
from proof.fuzz import work
from proof.fuzz.aftermath import until_quiet
from proof.fuzz.calls import RUNS, Call
from proof.fuzz.inspection import contents
from proof.strategies.values import Large, Nested
from tests.worker.harness import Running

SECONDS_MAX = 60.0
"""The longest that a call may take on a busy machine before it counts as hanging."""
MOMENT = timedelta(milliseconds=1)
"""The time that passes before every call."""


class BrokenPromise(AssertionError):
    """A call violated a promise."""


@dataclass(frozen=True)
class Scene:
    url: str
    store: Store
    client: AsyncClient
    clock: ManualClock
    jobs: Mapping[str, str]
    """By placeholder."""

    async def attempt(self, call: Call) -> bool:
        """Whether the call was accepted; raises ``BrokenPromise`` for a violation."""
        method = attrgetter(call.method)(self.client)
        args = [self._meant(each) for each in call.args]
        kwargs = {name: self._meant(each) for name, each in call.kwargs.items()}
        self.clock.advance(MOMENT)
        before = await contents(self.url)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                answer = method(*args, **kwargs)
                if inspect.isawaitable(answer):
                    await answer
        except PerdureError as error:
            if await contents(self.url) != before:
                raise BrokenPromise(f"{call!r} was refused and wrote something: {error}") from error
            _check_readable(call, error)
            return False
        except Exception as error:
            raise BrokenPromise(f"{call!r} raised {type(error).__name__}: {error}") from error
        return True

    def _meant(self, value: Any) -> Any:
        """The value with placeholders replaced by ids, and printable wrappers removed."""
        match value:
            case Nested():
                return list(value)
            case Large():
                return str(value)
            case str():
                return self.jobs.get(value, value)
            case _:
                return value


def _check_readable(call: Call, error: PerdureError) -> None:
    text = str(error)
    if len(text) > MESSAGE_MAX + 10:
        raise BrokenPromise(f"{call!r} was refused with {len(text)} characters")


@asynccontextmanager
async def scene(url: str) -> AsyncIterator[Scene]:
    """A typical mix of jobs, runs and schedules; no worker is running."""
    clock = ManualClock()
    store = store_at(url, clock=clock)
    await store.open()
    async with AsyncClient(store, tasks=work.TASKS, flows=work.FLOWS) as client:
        done = await client.enqueue(work.echo, "done")
        failed = await client.enqueue(work.echo.options(deadline="1h"), "failed")
        for id in RUNS:
            await client.submit(id.removeprefix("run-"), "input", id=id)
        await client.submit("mapping", {"items": [1, 2]}, id="run-mapping")
        await run_work(store, client)
        waiting = await client.enqueue(work.echo.options(group="crew"), "waiting")
        later = await client.enqueue(work.echo.options(delay="1h", fingerprint="only"), "later")
        await client.schedules.save("nightly", work.chain, cron="0 3 * * *", input=1)
        await client.schedules.save("hourly", work.echo, every="1h", args=["tick"])
        jobs = {"done": done.id, "failed": failed.id, "waiting": waiting.id, "later": later.id}
        yield Scene(url, store, client, clock, jobs)
    await store.close()


async def run_work(store: Store, client: AsyncClient) -> None:
    """Let a worker process all work that is ready."""
    worker = Worker(store, tasks=work.TASKS, flows=work.FLOWS, poll="10ms")
    running = await Running(worker).start()
    await until_quiet(client, running)
    await running.stop()
