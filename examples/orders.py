"""One order from the shop to the doorstep, through every type of flow node.

    python examples/orders.py
    python examples/orders.py --number 7 --total 2500

The run is stored in ``orders.db``. Stop the program at any time and start it again with the same
number: it resumes from the last completed node and charges nobody twice. An order of 1,000 or more
waits for a manager, whose role this program plays once the run waits.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from perdure import (
    CONTEXT,
    AsyncContext,
    Client,
    Context,
    Flow,
    Retry,
    RunFailed,
    RunHandle,
    Worker,
    task,
)

STORE = "sqlite:///orders.db"


@dataclass(frozen=True)
class Order:
    number: int
    lines: list[str]
    total: int
    receipt: str = ""


@dataclass(frozen=True)
class Findings:
    """The results of the fork's branches, by name."""

    order: Order
    stock: bool
    fraud: str


@task
def fetch_order(asked: dict[str, int]) -> Order:
    return Order(asked["number"], ["lamp", "chair", "table"], asked["total"])


@task
def check_stock(order: Order) -> bool:
    return len(order.lines) < 10


@task(retries=Retry(3, first="50ms"))
async def score_fraud(order: Order, ctx: AsyncContext = CONTEXT) -> float:
    if ctx.attempt == 1:
        raise ConnectionError("the scoring service is busy")
    return min(1.0, order.total / 10_000)


@task
def explain_score(score: float) -> str:
    return "harmless" if score < 0.5 else "suspicious"


@task
def decide(found: Findings) -> Order:
    if not found.stock or found.fraud == "suspicious":
        raise ValueError(f"order {found.order.number} is not accepted: {found.fraud}")
    return found.order


@task
def charge(order: Order, ctx: Context = CONTEXT) -> Order:
    """The key is the same for every execution, so the bank charges once."""
    return replace(order, receipt=f"receipt {ctx.idempotency_key}")


@task
def give_back(order: Order) -> None:
    """Reverse ``charge`` if the run fails later."""


def size_of(order: Order) -> str:
    return "large" if order.total >= 1_000 else "small"


@dataclass(frozen=True)
class Answer:
    order: Order
    approval: dict[str, bool]


@task
def heed(answer: Answer) -> Order:
    if not answer.approval["approved"]:
        raise ValueError("the manager said no")
    return answer.order


@task
def pack(line: str) -> str:
    return f"{line} in a box"


@task
def hand_over(boxes: list[str]) -> dict[str, int]:
    return {"boxes": len(boxes), "stops": 0}


@task
def follow_courier(parcel: dict[str, int]) -> dict[str, int]:
    return {**parcel, "stops": parcel["stops"] + 1}


@task
def confirm(parcel: dict[str, int]) -> str:
    return f"{parcel['boxes']} boxes arrived after {parcel['stops']} stops"


shipping = (
    Flow("shipping")
    .then(hand_over)
    .loop(follow_courier, until=lambda parcel: parcel["stops"] >= 3, max_iterations=50)
    .build()
)

orders = (
    Flow("orders")
    .then(fetch_order)
    .fork(order=None, stock=check_stock, fraud=[score_fraud, explain_score])
    .join(decide)
    .then(charge, undo=give_back)
    .route(
        size_of,
        {
            "small": None,
            "large": Flow()
            .fork(order=None, approval=Flow().wait_for_signal("approval", timeout="3d"))
            .join(heed),
        },
        keys=["small", "large"],
    )
    .delay("100ms")
    .map(pack, over="lines", concurrency=20)
    .flow(shipping)
    .then(confirm)
    .build()
)


def is_asking(run: RunHandle) -> bool:
    return any(node.id == "approval" and node.status == "live" for node in run.nodes())


def main() -> None:
    parser = argparse.ArgumentParser(description="One order, as a durable run.")
    parser.add_argument("--number", type=int, default=42)
    parser.add_argument("--total", type=int, default=1_200)
    parser.add_argument("--refuse", action="store_true", help="let the manager reject the order")
    parser.add_argument("--store", default=STORE)
    options = parser.parse_args()
    worker = Worker(options.store, flows=[orders]).start()
    try:
        with Client(options.store, on_conflict="use_existing") as client:
            asked = {"number": options.number, "total": options.total}
            run = client.submit(orders, asked, id=f"order-{options.number}")
            for event in run.watch():
                print(f"{event.number:3} {event.type} {event.key or ''}".rstrip())
                if event.status == "waiting" and is_asking(run):
                    run.signal("approval", {"approved": not options.refuse}, by="the manager")
            print(run.result())
    except RunFailed as error:
        raise SystemExit(f"{error}") from None
    finally:
        worker.shutdown()
        worker.join()


if __name__ == "__main__":
    main()
