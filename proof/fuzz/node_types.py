"""The types of bad input: how it is drawn, used and judged."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from perdure import AsyncClient, BuiltFlow, Flow, InvalidFlow, PerdureError, run_flow_async
from perdure.clock import ManualClock
from perdure.expr.condition import holds, parse_condition
from perdure.expr.template import render
from perdure.forms.schema import check_schema, faults_of, with_defaults
from perdure.operations.catalog import OPERATIONS
from perdure.store.opening import store_at
from proof.fuzz import leaks, rows, work
from proof.fuzz.aftermath import check_aftermath, of_work, read_job, read_run, show
from proof.fuzz.calls import Call, calls, command_lines, is_passable
from proof.fuzz.inspection import check_secrets, inspect_store, visible_parts
from proof.fuzz.rows import COLUMNS, JUNK, corrupt_rows
from proof.fuzz.scene import BrokenPromise, scene
from proof.strategies import (
    answers,
    any_conditions,
    any_flows,
    any_forms,
    any_templates,
    flow_texts,
    json_values,
    odd_texts,
    store_urls,
)
from tests.cli.harness import Commands

REMOVES = ("schedules.delete", "store.prune")
ACTS = (
    "enqueue",
    "enqueue_many",
    "submit",
    *(name for name, each in OPERATIONS.items() if each.writes and name not in REMOVES),
)
"""Calls that write, except those that remove the targets of others."""
EXTERNAL = ("http", "script")
"""Types whose nodes would reach outside this process."""

Try = Callable[[Any], Awaitable[bool]]
"""Tries one example; returns whether it was accepted."""


@dataclass(frozen=True)
class NodeType:
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
async def _stories(url: str) -> AsyncIterator[Try]:
    """Several calls on a new scene, followed by the aftermath."""
    yield lambda acts: _tell(url, acts, has_commands=False)


@asynccontextmanager
async def _shown_stories(url: str) -> AsyncIterator[Try]:
    yield lambda acts: _tell(url, acts, has_commands=True)


async def _tell(url: str, acts: list[Call], *, has_commands: bool) -> bool:
    async with scene(url) as place:
        accepted = [act for act in acts if await place.attempt(act)]
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
    if any(getattr(node, "kind", "") in EXTERNAL for node in flow.graph.nodes.values()):
        return
    with contextlib.suppress(PerdureError):
        await run_flow_async(
            flow, {"a": {"b": 1}}, signals={"go": [1, 2]}, timeout="5s", skip_delays=True
        )


@asynccontextmanager
async def _forms(_: str) -> AsyncIterator[Try]:
    async def attempt(pair: tuple[Any, Any]) -> bool:
        form, answer = pair
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


@asynccontextmanager
async def _commands(url: str) -> AsyncIterator[Try]:
    async with scene(url) as place:
        perdure = Commands(url)

        async def attempt(line: list[str]) -> bool:
            answer = await asyncio.to_thread(perdure, *line)
            assert answer.exit_code in (0, 1, 2), (line, answer)
            assert "Traceback" not in answer.error, (line, answer)
            check_secrets(f"perdure {line}", answer, url)
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


_STORY = st.lists(st.sampled_from(ACTS).flatmap(calls), min_size=4, max_size=12)
_SQL = ("sqlite", "postgres")
KINDS: dict[str, NodeType] = {
    "calls": NodeType(calls(), _calls, ("memory", *_SQL)),
    "stories": NodeType(_STORY, _stories, ("memory", *_SQL)),
    "shown stories": NodeType(_STORY, _shown_stories, ("sqlite",)),
    "flows as data": NodeType(any_flows([task.name for task in work.TASKS]), _flows),
    "flows as text": NodeType(flow_texts([task.name for task in work.TASKS]), _flows),
    "forms": NodeType(st.tuples(any_forms(), answers()), _forms),
    "conditions": NodeType(st.tuples(any_conditions(), json_values()), _conditions),
    "templates": NodeType(st.tuples(any_templates(), json_values()), _templates),
    "store urls": NodeType(store_urls(), _urls, ("sqlite",)),
    "corrupt rows": NodeType(
        st.tuples(st.sampled_from(COLUMNS), st.sampled_from(list(JUNK))), _rows, _SQL
    ),
    "secrets": NodeType(
        st.tuples(
            st.sampled_from(list(leaks.FLOWS)),
            st.sampled_from(leaks.WAYS),
            json_values() | odd_texts(),
        ),
        _secrets,
        ("memory", *_SQL),
    ),
    "command lines": NodeType(command_lines(), _commands, ("sqlite",)),
}
