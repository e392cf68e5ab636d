"""Tasks, a kind and a child flow that flows of the tests name."""

from __future__ import annotations

from typing import Any

from perdure import Flow, Task, task
from perdure.tasks.context import Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import complete


@task
def load(order_id: int) -> dict[str, Any]:
    return {"id": order_id, "kind": "pay" if order_id % 2 else "ask", "rows": [1, 2, order_id]}


@task(queue="slow", priority=1, tags=["gpu"])
def price(order: Any) -> Any:
    return order


@task
def pay(order: Any) -> Any:
    return {"paid": order}


@task
def ask(order: Any) -> Any:
    return {"asked": order}


@task
def double(number: int) -> int:
    return number * 2


@task
def add(a: int, b: int = 1) -> int:
    return a + b


@task
def collect(values: dict[str, Any]) -> dict[str, Any]:
    return values


@task
def is_done(number: int) -> bool:
    return number > 10


@task
def choose(order: dict[str, Any]) -> str:
    return str(order["kind"])


@task
def take_back(order: Any) -> None:
    return None


@task
def tell(detail: Any) -> None:
    return None


@task
def tick() -> int:
    return 1


TASKS: list[Task[..., Any]] = [
    tick,
    load,
    price,
    pay,
    ask,
    double,
    add,
    collect,
    is_done,
    choose,
    take_back,
    tell,
]

child = Flow("child").then(double).build()


class Translate(NodeType):
    """Says the same in another language."""

    name = "translate"
    ports = ("unsure",)

    class Config(NodeConfig):
        text: str
        to: str = "en"

    def execute(self, config: Config, ctx: Context) -> Any:
        return complete(f"{config.to}: {config.text}", "unsure" if config.to == "xx" else "")
