"""What idempotency keys are made of, as the documentation tells it."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import CONTEXT, AsyncClient, AsyncContext, Flow, RunFailed, task
from perdure.store.contract import Store
from tests.client.runs import worker_at


async def test_are_made_of_run_node_iteration_and_item(client, store):
    keys = await keys_of(client, store, "default")

    assert keys == [
        "order-3:first:0",
        "order-3:each:0[0]",
        "order-3:each:0[1]",
        "order-3:again:1",
        "order-3:again:1~check",
        "order-3:again:2",
        "order-3:again:2~check",
        "order-3:first:0~undo",
    ]


async def test_are_those_of_a_run_of_the_same_id(client, store):
    keys = await keys_of(client, store, "default")
    replacing = await keys_of(client, store, "default")
    async with AsyncClient(store, namespace="other") as other:
        elsewhere = await keys_of(other, store, "other")

    assert keys == replacing == elsewhere


async def keys_of(client: AsyncClient, store: Store, namespace: str) -> list[str]:
    """The keys that a failing run with a bit of everything had, in their order."""
    seen: list[str] = []

    @task
    async def note(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
        seen.append(ctx.idempotency_key)
        return value

    @task
    async def is_second(value: Any, ctx: AsyncContext = CONTEXT) -> bool:
        seen.append(ctx.idempotency_key)
        return ctx.iteration == 2

    @task
    async def refuse(value: Any) -> None:
        raise ValueError("no")

    flow = (
        Flow("keys")
        .then(note, name="first", undo=note)
        .map(note, name="each", concurrency=1)
        .loop(note, name="again", until=is_second)
        .then(refuse)
        .build()
    )
    async with worker_at(store, [flow], namespace):
        run = await client.submit(flow, [7, 8], id="order-3", on_conflict="replace")
        with pytest.raises(RunFailed):
            await run.result(timeout=20)
    return seen
