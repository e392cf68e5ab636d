"""No package of the library imports, however indirectly, one that imports it."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping
from types import FrameType
from typing import Any

from perdure import AsyncClient, Flow, Worker, task
from perdure.worker import runner
from tests.architecture.source_tree import Module, modules
from tests.architecture.test_layers import imports_inside_the_library, write

# "importing package -> imported package": why this import may close a cycle. Only ever shrinks.
EXCEPTIONS: dict[str, str] = {
    "errors -> model": "a type for type checkers, and the arguments of RetryLater, checked late"
}


def test_no_packages_import_each_other():
    assert cycles(modules(), EXCEPTIONS) == set()


def test_the_exceptions_are_needed():
    # Each of them closes a cycle when only the others are excused.
    for excused in EXCEPTIONS:
        others = {each: why for each, why in EXCEPTIONS.items() if each != excused}
        assert excused in cycles(modules(), others)


def test_late_and_indirect_imports_count(tmp_path):
    write(tmp_path, "model/job.py", "def late():\n    from perdure.store.jobs import insert")
    write(tmp_path, "store/jobs.py", "from perdure.engine import decide")
    write(tmp_path, "engine/decide.py", "from perdure.model.job import Job")
    write(tmp_path, "cli/app.py", "from perdure.engine import decide")
    assert cycles(modules(tmp_path), {}) == {"model -> store", "store -> engine", "engine -> model"}


def cycles(tree: list[Module], excused: Mapping[str, str]) -> set[str]:
    """The imports between packages, or single modules beside them, that are part of a cycle."""
    known = {module.name for module in tree}
    known |= {name.rpartition(".")[0] for name in known}
    imports: dict[str, set[str]] = {}
    for module in tree:
        package = module.name.partition(".")[0]
        targets = imports.setdefault(package, set())
        for target in imports_inside_the_library(module, known):
            other = target.partition(".")[0]
            if other != package and f"{package} -> {other}" not in excused:
                targets.add(other)

    def reaches(start: str) -> set[str]:
        found: set[str] = set()
        to_visit = [start]
        while to_visit:
            for each in imports.get(to_visit.pop(), ()):
                if each not in found:
                    found.add(each)
                    to_visit.append(each)
        return found

    return {
        f"{package} -> {other}"
        for package, others in imports.items()
        for other in others
        if package in reaches(other)
    }


# A step of a chain comes back to the runner three times; each more is a detour for a reader.


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
