"""The targets of fuzzing: how their input is drawn, tried and judged."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from typing import Any

from hypothesis import strategies as st

from perdure import AsyncClient, BuiltFlow, Flow, Grant, InvalidFlow, PerdureError, run_flow_async
from perdure.clock import ManualClock
from perdure.expr.condition import holds, parse_condition
from perdure.expr.template import render
from perdure.forms.schema import check_schema, faults_of, with_defaults
from perdure.operations.catalog import OPERATIONS
from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.transfer import import_store
from proof.fuzz import grants, imports, leaks, people, races, rows, screens, work
from proof.fuzz.aftermath import check_aftermath, of_work, read_job, read_run, show
from proof.fuzz.calls import Call, calls, command_lines, is_passable
from proof.fuzz.inspection import (
    check_printed,
    check_secrets,
    contents,
    inspect_store,
    visible_parts,
)
from proof.fuzz.rows import COLUMNS, JUNK, corrupt_rows
from proof.fuzz.scene import SECONDS_MAX, BrokenPromise, scene
from proof.strategies import (
    answers,
    any_conditions,
    any_flows,
    any_forms,
    any_templates,
    flow_texts,
    hostile_texts,
    json_values,
    odd_texts,
    store_urls,
)
from tests.cli.harness import Commands

REMOVES = ("schedules.delete", "store.prune")
WRITES = (
    "enqueue",
    "enqueue_many",
    "submit",
    *(name for name, each in OPERATIONS.items() if each.writes and name not in REMOVES),
)
"""Calls that write, except those that remove the targets of others."""
CPU_SECONDS_MAX = 10.0
"""To evaluate one condition or form."""
EXTERNAL = ("container", "http", "llm", "script")
"""Types whose nodes would reach beyond this process."""

Try = Callable[[Any], Awaitable[bool]]
"""Tries one example; returns whether it was accepted."""


@dataclass(frozen=True)
class Target:
    """``stage`` prepares an empty store at a URL for many examples."""

    examples: st.SearchStrategy[Any]
    stage: Callable[[str], AbstractAsyncContextManager[Try]]
    backends: Sequence[str] = ("memory",)


@asynccontextmanager
async def _calls(url: str) -> AsyncIterator[Try]:
    async with scene(url) as place:
        yield place.attempt
        await inspect_store(url, place.store)


@asynccontextmanager
async def _sequences(url: str) -> AsyncIterator[Try]:
    """Several calls on a new scene, followed by the aftermath."""
    yield lambda calls: _check_calls(url, calls, has_commands=False)


@asynccontextmanager
async def _shown_sequences(url: str) -> AsyncIterator[Try]:
    yield lambda calls: _check_calls(url, calls, has_commands=True)


async def _check_calls(url: str, calls: list[Call], *, has_commands: bool) -> bool:
    async with scene(url) as place:
        accepted = [call for call in calls if await place.attempt(call)]
        try:
            await check_aftermath(
                place.url, place.store, place.client, place.clock, has_commands=has_commands
            )
        except Exception as error:
            raise BrokenPromise(f"after {accepted}: {error!r}") from error
    return bool(accepted)


@asynccontextmanager
async def _flows(_: str) -> AsyncIterator[Try]:
    async def attempt(data: Any) -> bool:
        try:
            flow = (
                Flow.from_yaml(data, tasks=work.TASKS)
                if isinstance(data, str)
                else Flow.from_dict(data, tasks=work.TASKS)
            )
        except InvalidFlow:
            return False
        await _execute(flow)
        return True

    yield attempt


async def _execute(flow: BuiltFlow) -> None:
    """Every run ends with a known status, and the same after a round trip."""
    assert Flow.from_yaml(flow.to_yaml(), tasks=[*work.TASKS, flow]).version == flow.version
    if any(getattr(node, "type", "") in EXTERNAL for node in flow.graph.nodes.values()):
        return
    with contextlib.suppress(PerdureError):
        await run_flow_async(
            flow, {"a": {"b": 1}}, signals={"go": [1, 2]}, timeout="5s", skip_delays=True
        )


@contextlib.contextmanager
def _bounded_time(example: Any) -> Iterator[None]:
    """Nothing awaits here, so no timeout would end it."""
    before = thread_time()
    yield
    if (took := thread_time() - before) > CPU_SECONDS_MAX:
        raise BrokenPromise(f"{example!r} took {took:.1f} s")


@asynccontextmanager
async def _forms(_: str) -> AsyncIterator[Try]:
    async def attempt(pair: tuple[Any, Any]) -> bool:
        form, answer = pair
        with _bounded_time(pair):
            if check_schema(form):
                return False
            with contextlib.suppress(PerdureError):
                with_defaults(form, answer)
                faults_of(form, answer)
        return True

    yield attempt


@asynccontextmanager
async def _conditions(_: str) -> AsyncIterator[Try]:
    async def attempt(pair: tuple[Any, Any]) -> bool:
        with _bounded_time(pair):
            try:
                condition = parse_condition(pair[0])
            except PerdureError:
                return False
            assert holds(condition, {"a": pair[1]}) in (True, False)
        return True

    yield attempt


@asynccontextmanager
async def _templates(_: str) -> AsyncIterator[Try]:
    async def attempt(pair: tuple[Any, Any]) -> bool:
        try:
            render({"text": pair[0]}, {"a": pair[1]})
        except PerdureError:
            return False
        return True

    yield attempt


@asynccontextmanager
async def _urls(url: str) -> AsyncIterator[Try]:
    """In a temporary folder: a URL may name a file."""
    folder = Path(url.removeprefix("sqlite:///")).parent
    before = Path.cwd()
    os.chdir(folder)

    async def attempt(store_url: str) -> bool:
        try:
            async with asyncio.timeout(10):
                async with AsyncClient(store_url) as client:
                    await client.jobs.count()
        except PerdureError as error:
            check_secrets("an error", visible_parts(error))
            await asyncio.to_thread(_show_refused, store_url)
            return False
        return True

    try:
        yield attempt
    finally:
        os.chdir(before)


def _show_refused(store_url: str) -> None:
    """The output of a command with the URL in the environment or as an argument."""
    if not is_passable(store_url):
        return
    for answer in (
        Commands(store_url)("queues", "list"),
        Commands(None)("doctor", "--store", store_url),
    ):
        check_secrets("a command", answer)
        check_printed("a command", repr(answer))


@asynccontextmanager
async def _commands(url: str) -> AsyncIterator[Try]:
    async with scene(url) as place:
        perdure = Commands(url)

        async def attempt(line: list[str]) -> bool:
            answer = await asyncio.to_thread(perdure, *line)
            assert answer.exit_code in (0, 1, 2), (line, answer)
            assert "Traceback" not in answer.error, (line, answer)
            check_secrets(f"perdure {line}", answer, url)
            check_printed(f"perdure {line}", repr(answer))
            return answer.exit_code == 0

        yield attempt
        await inspect_store(url, place.store)


@asynccontextmanager
async def _rows(url: str) -> AsyncIterator[Try]:
    """Corrupt work stays put; all else continues, and every read has an answer."""

    async def attempt(corrupt: tuple[tuple[str, str], str]) -> bool:
        (table, column), junk = corrupt
        clock = ManualClock()
        store = store_at(url, clock=clock)
        await store.open()
        async with AsyncClient(store, tasks=work.TASKS, flows=work.FLOWS) as client:
            is_corrupt = await rows.fill(client)
            count = await corrupt_rows(url, table, column, JUNK[junk])
            running = await rows.finish_healthy_work(store, client, clock)
            await rows.try_all(client)
            await running.stop()
            await inspect_store(url, store, is_excused=is_corrupt)
        await store.close()
        return count > 0

    yield attempt


@asynccontextmanager
async def _secrets(url: str) -> AsyncIterator[Try]:
    """Only tasks may see the secret, whatever they do with it."""
    store = store_at(url)
    await store.open()
    flows = list(leaks.FLOWS.values())
    async with AsyncClient(store, tasks=[leaks.tell], flows=flows) as client:

        async def attempt(example: tuple[str, str, Any]) -> bool:
            flow, way, value = example
            given = [way, value] if flow in leaks.IN_A_WAY else value
            try:
                run = await client.submit(flow, given)
                job = await client.enqueue(leaks.tell, [way, value])
            except PerdureError:
                return False
            await leaks.run_leaky_work(store, client, url)
            await read_run(client, run.id, url)
            await read_job(client, job.id, url)
            if url.startswith("sqlite:"):  # commands can open it too
                await asyncio.to_thread(show, url, of_work([job.id], [run.id]))
            return True

        yield attempt
        await inspect_store(url, store)
    await store.close()


@asynccontextmanager
async def _opened(url: str, **code: Any) -> AsyncIterator[tuple[Store, AsyncClient]]:
    store = store_at(url)
    await store.open()
    async with AsyncClient(store, **code) as client:
        yield store, client
    await store.close()


@asynccontextmanager
async def _terminal(url: str) -> AsyncIterator[Try]:
    """Whatever text a store has, nothing that is printed controls a terminal."""

    async def attempt(example: tuple[str, int]) -> bool:
        text, column = example
        async with _opened(url, tasks=[screens.say, *work.TASKS], flows=screens.FLOWS) as opened:
            store, client = opened
            await screens.fill(store, client, text)
            jobs, runs = await screens.ids(client)
            await asyncio.to_thread(screens.show, url, jobs[:1], [*runs[:1], "titled"])
            await screens.rewrite(url, column, text)
            jobs, runs = await screens.ids(client)
            await asyncio.to_thread(screens.show, url, jobs[:1], runs[-2:])
        return True

    yield attempt


@asynccontextmanager
async def _titles(url: str) -> AsyncIterator[Try]:
    async with _opened(url) as (store, client):

        async def attempt(example: tuple[str, str, Any]) -> bool:
            return await people.ask(client, *example) is not None

        yield attempt
        await inspect_store(url, store)


@asynccontextmanager
async def _deciders(url: str) -> AsyncIterator[Try]:
    async with _opened(url) as (store, client):
        yield lambda example: people.decide(client, *example)
        await inspect_store(url, store)


@asynccontextmanager
async def _grants(url: str) -> AsyncIterator[Try]:
    """A loaded flow sends a secret only where a grant says so, and leaves it nowhere."""
    with grants.services() as services:
        async with _opened(url) as (store, client):

            async def attempt(example: tuple[Any, Any, list[dict[str, Any]], str]) -> bool:
                child, parent, given, host = example
                granted = [Grant(**services.meant(each)) for each in given]
                try:
                    flow = grants.load(services.meant([child, parent]))
                except InvalidFlow:
                    return False
                input = services.meant({"host": host, "text": "hello"})
                run = await grants.execute(store, client, flow, granted, input)
                grants.check_received(services, granted)
                await read_run(client, run, url)
                return True

            yield attempt
            await inspect_store(url, store)


@asynccontextmanager
async def _imports(url: str) -> AsyncIterator[Try]:
    """An export is imported, or refused with nothing written, in bounded memory."""

    async def attempt(example: tuple[Any, bool, str]) -> bool:
        changes, is_sealed, suffix = example
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = folder / f"changed{suffix}"
            imports.write(path, await imports.exported(folder), changes, is_sealed)
            has_refused = False
            with imports.bounded_memory():
                try:
                    async with asyncio.timeout(SECONDS_MAX):
                        await import_store(url, path)
                except PerdureError:
                    has_refused = True
        async with _opened(url, tasks=work.TASKS, flows=work.FLOWS) as (_, client):
            if has_refused:
                left = await contents(url)
                assert not any(left.values()), left
            await rows.try_all(client)
        return not has_refused

    yield attempt


@asynccontextmanager
async def _races(url: str) -> AsyncIterator[Try]:
    async with contextlib.AsyncExitStack() as stack:
        flows = list(races.FLOWS.values())
        opened = [
            await stack.enter_async_context(_opened(url, tasks=races.TASKS, flows=flows))
            for _ in range(3)
        ]
        store, clients = opened[0][0], [client for _, client in opened]
        numbers = itertools.count()

        async def attempt(example: tuple[str, list[str]]) -> bool:
            return await races.race(store, clients, f"race-{next(numbers)}", *example)

        yield attempt
        await inspect_store(url, store)


_SEQUENCE = st.lists(st.sampled_from(WRITES).flatmap(calls), min_size=4, max_size=12)
_SQL = ("sqlite", "postgres")
TARGETS: dict[str, Target] = {
    "calls": Target(calls(), _calls, ("memory", *_SQL)),
    "stories": Target(_SEQUENCE, _sequences, ("memory", *_SQL)),
    "shown stories": Target(_SEQUENCE, _shown_sequences, ("sqlite",)),
    "flows as data": Target(any_flows([task.name for task in work.TASKS]), _flows),
    "flows as text": Target(flow_texts([task.name for task in work.TASKS]), _flows),
    "forms": Target(st.tuples(any_forms(), answers()), _forms),
    "conditions": Target(st.tuples(any_conditions(), json_values()), _conditions),
    "templates": Target(st.tuples(any_templates(), json_values()), _templates),
    "store urls": Target(store_urls(), _urls, ("sqlite",)),
    "corrupt rows": Target(
        st.tuples(st.sampled_from(COLUMNS), st.sampled_from(list(JUNK))), _rows, _SQL
    ),
    "secrets": Target(
        st.tuples(
            st.sampled_from(list(leaks.FLOWS)),
            st.sampled_from(leaks.WAYS),
            json_values() | odd_texts(),
        ),
        _secrets,
        ("memory", *_SQL),
    ),
    "terminal output": Target(st.tuples(hostile_texts(), st.integers(0, 10**6)), _terminal, _SQL),
    "titles": Target(people.TITLES, _titles, ("memory", *_SQL)),
    "deciders": Target(people.DECISIONS, _deciders, ("memory", *_SQL)),
    "grants": Target(grants.EXAMPLES, _grants, ("memory", *_SQL)),
    "imports": Target(imports.CHANGES, _imports, _SQL),
    "races": Target(races.EXAMPLES, _races, ("memory", *_SQL)),
    "command lines": Target(command_lines(), _commands, ("sqlite",)),
}
