"""A step of a chain comes back to the runner three times; each more is a detour for a reader.

Counted in real runs: every call into ``worker/runner.py`` from another module.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from types import FrameType
from typing import Any

from perdure import AsyncClient, Flow, Worker, task
from perdure.worker import runner

RUNNER = runner.__file__
SHORT, LONG = 10, 40


@task
async def step(value: int) -> int:
    return value + 1


async def test_a_step_of_a_chain_comes_back_three_times(memory_url):
    short = await calls_into_the_runner(memory_url, SHORT)
    long = await calls_into_the_runner(memory_url, LONG)

    steps = LONG - SHORT
    of_each_step = {
        name: (long[name] - short[name]) / steps
        for name in long
        if long[name] - short[name] > steps / 2  # the rest happens once in a while
    }
    assert of_each_step == {"ended": 1, "may_continue": 1, "settled": 1}


async def calls_into_the_runner(url: str, length: int) -> Counter[str]:
    """By name, while a chain of this length runs on an otherwise idle worker."""
    flow = Flow(f"chain-{length}")
    for number in range(length):
        flow.then(step, name=f"step-{number}")
    built = flow.build()
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename == RUNNER:
            caller = frame.f_back
            if caller is None or caller.f_code.co_filename != RUNNER:
                calls[frame.f_code.co_name] += 1

    worker, started = Worker(url, flows=[built]), asyncio.Event()
    serving = asyncio.create_task(worker.serve(started=started.set))
    await started.wait()
    async with AsyncClient(url) as client:
        sys.setprofile(note)
        try:
            assert await (await client.submit(built, 0)).result(15) == length
        finally:
            sys.setprofile(None)
    worker.shutdown(0)
    await serving
    return calls
