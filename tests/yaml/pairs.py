"""The same flow in Python and, in ``pairs.yaml``, in YAML: for every key and every type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perdure import Concurrency, Flow, Retry
from perdure.flows.built import BuiltFlow
from tests.yaml.tasks import (
    Translate,
    add,
    ask,
    child,
    choose,
    collect,
    double,
    is_done,
    load,
    pay,
    price,
    take_back,
    tell,
)


@dataclass(frozen=True)
class Pair:
    python: BuiltFlow
    yaml: str


_FORM = {"type": "object", "properties": {"total": {"type": "number"}}}
_PAID = {"property": "paid", "op": "eq", "value": True}
PYTHON = {
    "one task": Flow("one").then(load),
    "a chain": Flow("chain").then(load).then(price).then(pay),
    "nodes by id, told backwards, with descriptions": (
        Flow("chain").then(load).then(price).then(pay)
    ),
    "what a failure does, and a cooldown": (
        Flow("careful", on_failure="finish", cooldown="1h").then(load)
    ),
    "how many runs at once": Flow("several", max_running=4).then(load),
    "how many runs at once by a key": (
        Flow("several", max_running=Concurrency(2, key="{{ input.tenant }}")).then(load)
    ),
    "settings of a call": (
        Flow("calls").then(
            price,
            name="a",
            retries=Retry(3, first="2s", max="1m", on="ValueError"),
            timeout="30s",
            queue="other",
            priority=2,
            tags=["b", "a"],
        )
    ),
    "retries as a number, and an undo": Flow("again").then(pay, retries=2, undo=take_back),
    "an error passed over": Flow("passed").then(pay, on_error="continue").then(tell),
    "an error with a port": (
        Flow("sorry").then(pay, on_error="sorry").then(ask).then(tell, after="pay:sorry")
    ),
    "a fork and its join": Flow("fork").then(load).fork(a=pay, b=ask).join(collect),
    "a join of several ends under one name": (
        Flow("ends")
        .then(load)
        .fork(a=Flow().route("kind", {"pay": pay}, ask), b=price)
        .join(collect)
    ),
    "a join by ids, which nothing needs to say": (
        Flow("ids").node("a", pay).node("b", ask).node("c", collect, after=["a", "b"])
    ),
    "one of several": (
        Flow("first").node("a", pay).node("b", ask).node("c", tell, after=["a", "b"], gathers=False)
    ),
    "a fork at the end with one branch": Flow("single").then(load).fork(a=pay),
    "a route by key, whose branches meet again": (
        Flow("route").then(load).route("kind", {"pay": pay, "no": None}, default=ask).then(tell)
    ),
    "a route by a task, with ends and settings": (
        Flow("chosen").then(load).route(choose, {"pay": pay, 7: None}, name="pick", retries=1)
    ),
    "a map": Flow("map").then(load).map(double, over="rows", concurrency=5, on_error="continue"),
    "a map of a few": Flow("few").map(double, items_max=20),
    "a map of children, over an input": (
        Flow("children")
        .then(load)
        .map(child, name="each", over="rows", inputs={"rows": "load.output.rows"})
    ),
    "a loop until a key": (
        Flow("keyed")
        .loop(pay, until="paid", max_iterations=5, on_max="stuck")
        .then(tell, after="pay:stuck")
    ),
    "a loop until a condition": Flow("conditional").loop(pay, until=_PAID),
    "a loop of a child until a task says so": (
        Flow("tasked").loop(child, until=is_done, undo=take_back)
    ),
    "a delay": Flow("delay").then(load).delay("2h").then(pay),
    "a delay until a time": (
        Flow("until")
        .then(load)
        .delay(until="{{ when }}", name="rest", inputs={"when": "input.due"})
    ),
    "a signal": Flow("signal").wait_for_signal("paid").then(pay),
    "a signal with a filter and a timeout": (
        Flow("filtered")
        .then(load)
        .wait_for_signal(
            "paid",
            name="money",
            timeout="1d",
            on_timeout="late",
            where={"property": "id", "op": "eq", "value": "{{ id }}"},
            inputs={"id": "load.output.id"},
        )
        .then(tell, after="money:late")
    ),
    "a signal with a default": (
        Flow("awaited")
        .wait_for_signal("paid", timeout="1h", on_timeout={"default": {"paid": False}})
        .then(pay)
    ),
    "a child flow": (
        Flow("parent").then(load).flow(child, inputs={"n": "load.output.id"}, on_missing="skip")
    ),
    "an approval": Flow("small").then(load).approve("Pay?").then(pay),
    "an approval with everything": (
        Flow("large")
        .then(load)
        .approve(
            "Pay {{ id }}?",
            name="ok",
            message="of {{ input.customer }}",
            inputs={"id": "load.output.id", "kind": "load.output.kind"},
            form=_FORM,
            show=["kind"],
            data={"total": "{{ id }}"},
            deciders=["finance", "ann"],
            policy={"at_least": 2},
            answers=["approve", "reject", "later"],
            deadline="3d",
            on_timeout="timeout",
            on_reject="reject",
            reminders=["4h", "1d"],
            escalate={"2d": ["cfo"]},
            notify=tell,
        )
        .then(pay)
        .then(ask, after="ok:reject")
        .then(double, after="ok:timeout")
        .then(collect, after="ok:later")
    ),
    "an approval that answers itself": (
        Flow("default").approve(
            "Pay?",
            policy="all",
            deciders=["ann", "bob"],
            deadline="1h",
            on_timeout={"decision": "approve", "data": {"total": 1}},
            on_reject="continue",
        )
    ),
    "inputs as arguments": (
        Flow("arguments")
        .then(load)
        .then(add, inputs={"a": "load.output.id", "b": "input.more"})
        .then(price, inputs={"order": "load.output"})
    ),
    "a config of templates": (
        Flow("config")
        .then(load)
        .then(
            add,
            inputs={"n": {"from": "load.output.id", "default": 4}},
            config={"a": "{{ n }}", "b": 2},
            on_missing="default",
        )
        .then(pay, config={"order": "{{ input.customer }} in {{ run.id }}"})
    ),
    "ports, schemas and a check": (
        Flow("strict")
        .then(
            pay,
            ports=["cheap", "dear"],
            input_schema=_FORM,
            output_schema=True,
            check={"condition": [_PAID], "advisory": True},
            on_timeout="continue",
        )
        .then(ask)
        .then(tell, after="pay:dear")
    ),
    "match": (
        Flow("match")
        .then(load)
        .use(
            "match",
            {"conditions": {"property": "id", "op": "gt", "value": 1}},
            inputs={"id": "load.output.id"},
        )
        .then(pay, after="match:true", inputs={"order": "load.output"})
        .then(ask, after="match:false", inputs={"order": "load.output"})
    ),
    "switch": (
        Flow("switch")
        .then(load)
        .use(
            "switch",
            {"value": "{{ kind }}", "cases": ["pay", "default"]},
            inputs={"kind": "load.output.kind"},
        )
        .then(ask)
        .then(pay, after="switch:pay")
    ),
    "check": (
        Flow("check")
        .then(load)
        .use("check", {"schema": _FORM, "value": "{{ order }}"}, inputs={"order": "load.output"})
        .then(pay, after="check:pass")
    ),
    "note": (
        Flow("note")
        .use("note", {"text": "began {{ run.id }}"}, name="said")
        .then(load, inputs={"order_id": "input"})
    ),
    "outside": (
        Flow("outside")
        .use(
            "external",
            {"for": "carrier", "deadline": "2d"},
            on_timeout="late",
            ports=["lost"],
            name="outside",
        )
        .then(pay)
        .then(ask, after="outside:late")
        .then(tell, after="outside:lost")
    ),
    "ports of outside by next": (
        Flow("outside")
        .use(
            "external",
            {"for": "carrier"},
            on_error="failed",
            ports=["lost", "late"],
            name="outside",
        )
        .then(pay)
        .then(ask, after="outside:failed")
        .then(tell, after="outside:lost")
    ),
    "http": (
        Flow("http")
        .use(
            "http",
            {
                "method": "POST",
                "url": "https://example.org/{{ id }}",
                "headers": {"Authorization": "Bearer {{ token }}"},
                "status": {"404": "missing"},
            },
            inputs={"id": "input.id", "token": "secret.API"},
            retries=3,
        )
        .then(pay)
        .then(ask, after="http:missing")
    ),
    "script": (
        Flow("script")
        .use("script", {"command": ["ls", "{{ input.folder }}"], "exit": {"2": "missing"}})
        .then(pay)
    ),
    "a kind of one's own": (
        Flow("own")
        .use(Translate, {"text": "{{ input.text }}"}, queue="words")
        .then(pay)
        .then(ask, after="translate:unsure")
    ),
}
_DOCUMENTS = Path(__file__).with_suffix(".yaml").read_text("utf-8").split("--- # ")[1:]
_YAML = {name: text for name, _, text in (each.partition("\n") for each in _DOCUMENTS)}
assert _YAML.keys() == PYTHON.keys()
PAIRS = {name: Pair(flow.build(), _YAML[name]) for name, flow in PYTHON.items()}
