"""Flows that the tests of the command line run, in this process and in others."""

from __future__ import annotations

from typing import Any

from perdure import Flow, Worker, task


@task
def fetch(number: int) -> dict[str, Any]:
    if number == 13:
        raise ValueError("thirteen\nis suspicious")
    return {"number": number, "lines": ["pen", "ink"]}


@task
def pack(line: str) -> str:
    return f"packed {line}"


@task
def label(parcels: Any) -> str:
    return "L-1"


@task
def bill(label: str) -> dict[str, Any]:
    return {"label": label, "paid": True}


@task
def unpack(parcels: Any) -> None:
    return None


shipping = Flow("shipping").then(label).build()


def start_of_orders(first: str = "fetch") -> Flow:
    """An order up to the person it waits for."""
    return (
        Flow("orders")
        .then(fetch, name=first)
        .map(pack, over="lines", undo=unpack)
        .wait_for_signal("approval", timeout="3d")
    )


orders = start_of_orders().flow(shipping).then(bill).build()
longer = start_of_orders().flow(shipping).then(bill).then(label, name="again").build()
renamed = start_of_orders("load").flow(shipping).then(bill).build()
not_built = Flow("unfinished").then(label)
several = [orders, shipping, pack]

worker = Worker("sqlite:///own.db", flows=[orders])
