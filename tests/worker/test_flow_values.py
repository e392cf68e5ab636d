"""What goes into nodes and comes out: validated as the types say, for sync and async tasks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypedDict

import pydantic
import pytest

from perdure import Flow, RunFailed, task


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Order:
    id: int
    size: Size
    at: datetime


class Invoice(pydantic.BaseModel):
    order: int
    amount: float = pydantic.Field(gt=0)


class Note(TypedDict):
    text: str
    invoice: int


@task
async def to_order(id: int) -> Order:
    return Order(id=id, size=Size.LARGE, at=datetime(2026, 1, 2, tzinfo=UTC))


@task
def to_invoice(order: Order) -> Invoice:
    assert isinstance(order, Order)
    assert (order.size, order.at.tzinfo) == (Size.LARGE, UTC)
    return Invoice(order=order.id, amount=1.5)


@task
async def to_note(invoice: Invoice) -> Note:
    assert isinstance(invoice, Invoice)
    return {"text": "thanks", "invoice": invoice.order}


@task
def to_order_again(note: Note) -> Order:
    return Order(id=note["invoice"] + 1, size=Size.SMALL, at=datetime(2026, 1, 3, tzinfo=UTC))


async def test_typed_values_go_from_node_to_node(client, start_worker):
    flow = Flow("typed").then(to_order).then(to_invoice).then(to_note).then(to_order_again).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 7)

    assert await run.result(10) == Order(8, Size.SMALL, datetime(2026, 1, 3, tzinfo=UTC))
    assert (await run.outputs())["to_invoice"] == {"order": 7, "amount": 1.5}


async def test_typed_items_and_gathered_values(client, start_worker):
    @task
    def both(parts: dict[str, Invoice]) -> list[float]:
        return sorted(part.amount for part in parts.values())

    flow = (
        Flow("parts")
        .then(to_order)
        .fork(
            a=Flow().then(to_invoice, name="a"),
            b=Flow()
            .then(lambda order: [order, order], name="two")
            .map(to_invoice, name="each")
            .then(lambda invoices: invoices[1], name="second"),
        )
        .join(both)
        .build()
    )
    await start_worker(flows=[flow])

    assert await (await client.submit(flow, 1)).result(10) == [1.5, 1.5]


async def test_a_value_that_does_not_fit_fails_its_node_at_once(client, start_worker):
    flow = Flow("wrong").then(lambda value: value, name="give").then(to_note, retries=5).build()
    await start_worker(flows=[flow])
    wrong: list[Any] = [{"order": "seven", "amount": 1}, {"order": 7, "amount": -1}, {}, []]
    for value in wrong:
        run = await client.submit(flow, value)
        with pytest.raises(RunFailed, match="invoice") as raised:
            await run.result(10)
        assert raised.value.node == "to_note"
        assert "node_retried" not in [event.type for event in await run.events()]


@pytest.mark.parametrize("found_type", ["async", "sync"])
async def test_an_output_that_cannot_be_stored_fails_its_node_at_once(
    client, start_worker, found_type
):
    @task(name="odd", retries=5)
    async def odd_async(_: Any) -> Any:
        return object()

    @task(name="odd", retries=5)
    def odd_sync(_: Any) -> Any:
        return {"deep": [object()]}

    flow = Flow("odd").then(odd_async if found_type == "async" else odd_sync).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 1)
    with pytest.raises(RunFailed, match="the result of task 'odd'"):
        await run.result(10)

    assert [event.type for event in await run.events()][1:] == ["node_failed", "run_failed"]


async def test_values_come_through_as_they_went_in(client, start_worker):
    flow = (
        Flow("same")
        .then(lambda got: got, name="a")
        .route(lambda _: "on", {"on": None})
        .fork(x=Flow().then(lambda got: got, name="x"), y=Flow().delay("1ms"))
        .join(lambda both: [both["x"], both["y"]], name="b")
        .map(lambda got: got, name="c")
        .build()
    )
    await start_worker(flows=[flow])
    values: list[Any] = [0, False, "", [], None, {}, 1.5, "ü\u2028", 2**53, [[None]]]
    runs = [await client.submit(flow, value) for value in values]

    # 0 == False, so their texts are compared.
    results = [repr(await run.result(10)) for run in runs]
    assert results == [repr([value, value]) for value in values]


async def test_a_long_run_of_large_values_keeps_few_of_them_at_hand(
    client, start_worker, monkeypatch
):
    monkeypatch.setattr("perdure.engine.cached_run.VALUES_MAX_BYTES", 1_000)

    @task
    async def grow(value: Any) -> Any:
        return {"text": "x" * 400, "count": value["count"] + 1}

    @task
    async def count(outputs: dict[str, Any]) -> int:
        return sum(int(output["count"]) for output in outputs.values())

    branches = {
        f"b{number}": Flow().loop(
            grow, name=f"loop-{number}", until=lambda value: value["count"] >= 5
        )
        for number in range(6)
    }
    flow = Flow("large").fork(branches).join(count).build()
    await start_worker(flows=[flow])

    assert await (await client.submit(flow, {"count": 0})).result(15) == 30


async def test_a_loop_whose_check_ends_the_program_fails_and_nothing_more(client, start_worker):
    @task
    async def keep(value: Any) -> Any:
        return value

    def leave(_: Any) -> bool:
        raise SystemExit(3)

    ends = Flow("ends").loop(keep, until=leave).build()
    goes_on = Flow("goes-on").then(keep).build()
    await start_worker(flows=[ends, goes_on])

    with pytest.raises(RunFailed, match="SystemExit"):
        await (await client.submit(ends, 1)).result(10)
    assert await (await client.submit(goes_on, 2)).result(10) == 2
