"""Flows from files and with inputs by name, for the catalogue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from perdure import Flow, load_flow, task
from tests.flows.people import Case, done, said

FILES = Path(__file__).parent / "files"


@task
def pack_line(line: str) -> str:
    return f"packed {line}"


@task
def bill_total(fee: int, discount: int) -> int:
    return fee * 10 - discount


@task
def order_of(number: int) -> dict[str, Any]:
    return {"number": number, "lines": ["lamp", "chair"]}


@task
async def label(text: str, count: int = 1) -> str:
    return text * count


@task
def soon(value: Any) -> dict[str, Any]:
    return {"value": value, "at": (datetime.now(UTC) + timedelta(milliseconds=20)).isoformat()}


@task
def kept(value: Any) -> Any:
    return value


ship = load_flow(FILES / "ship.yaml", tasks=[pack_line, bill_total])


def _labelled(name: str, on_missing: Any, **input: Any) -> Flow:
    inputs = {"text": {"from": "order_of.output.name", **input}}
    return Flow(name).then(order_of).then(label, inputs=inputs, on_missing=on_missing)


FROM_FILES = {
    "a file, by its long way": Case(
        ship,
        {"id": "o1", "lines": ["lamp", "chair"]},
        "in 3 days, 28, o1 of ship_as_yaml at slow",
        answers={"ok": [said("ann", roles=["finance"], data={"discount": 2})]},
        reports={"carrier": [done({"days": 3})]},
    ),
    "a file, by another port": Case(
        ship,
        {"id": "o2", "lines": ["lamp", "chair"]},
        "fast, 10",
        answers={"ok": [said("ann", roles=["finance"])]},
        reports={"carrier": [done({"days": 1})]},
    ),
    "a file, by its short way": Case(ship, {"id": "o3", "lines": ["lamp"]}, "only lamp"),
    "a file, with what does not fit": Case(ship, {"id": "o4"}, '{"lines":["is required"]}'),
}

INPUTS = {
    "inputs by name": Case(
        Flow("by_name")
        .then(order_of)
        .then(kept)
        .then(label, inputs={"text": "order_of.output.lines.1", "count": "input"})
        .build(),
        2,
        "chairchair",
    ),
    "a config, filled in once": Case(
        Flow("filled_in")
        .then(kept)
        .then(
            label,
            inputs={"text": "kept.output"},
            config={"text": "{{ text }} in {{ run.flow }}", "count": 2},
        )
        .build(),
        "{{ secret.KEY }}",
        "{{ secret.KEY }} in filled_in" * 2,
    ),
    "an input that is missing": Case(
        Flow("missing_error")
        .then(order_of)
        .then(label, inputs={"text": "order_of.output.name"}, on_error="sorry")
        .then(lambda error: error["message"], name="told", after="label:sorry")
        .build(),
        1,
        "node 'label': its input 'text' is missing: there is no 'name' in what is given; "
        "did you mean 'number'? Known: 'number', 'lines'",
    ),
    "a default for what is missing": Case(
        _labelled("missing_default", "default", default="none").build(), 1, "none"
    ),
    "a node that lacks an input": Case(
        _labelled("missing_skip", "skip")
        .then(kept, after="order_of", inputs={"value": "order_of.output.number"})
        .build(),
        7,
        {"kept": 7},
    ),
    "signals for somebody else": Case(
        Flow("filtered_signal")
        .then(order_of)
        .wait_for_signal(
            "paid",
            where={"property": "number", "op": "eq", "value": "{{ number }}"},
            inputs={"number": "order_of.output.number"},
        )
        .wait_for_signal("paid", name="other")
        .then(kept, inputs={"value": "paid.output.by"})
        .build(),
        2,
        "Ada",
        signals={"paid": [{"number": 1}, {"number": 2, "by": "Ada"}]},
    ),
    "a delay until a time": Case(
        Flow("until_time")
        .then(soon)
        .delay(until="{{ value.at }}")
        .then(kept, inputs={"value": "soon.output.value"})
        .build(),
        7,
        7,
    ),
}
