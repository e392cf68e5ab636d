"""The same flow in Python and in YAML, for every key and every kind."""

from __future__ import annotations

from dataclasses import dataclass

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


def pair(python: Flow, yaml: str) -> Pair:
    return Pair(python.build(), yaml)


_FORM = {"type": "object", "properties": {"total": {"type": "number"}}}
_PAID = {"property": "paid", "op": "eq", "value": True}

PAIRS = {
    "one task": pair(Flow("one").then(load), "{flow: one, nodes: [{id: load, task: load}]}"),
    "a chain": pair(
        Flow("chain").then(load).then(price).then(pay),
        """
        flow: chain
        nodes:
          - {id: load, task: load, next: price}
          - {id: price, task: price, next: pay}
          - {id: pay, type: task, task: pay}
        """,
    ),
    "nodes by id, told backwards, with descriptions": pair(
        Flow("chain").then(load).then(price).then(pay),
        """
        flow: chain
        description: no part of the version
        nodes:
          pay: {task: pay, after: price}
          price: {task: price, after: [load], gathers: false, description: nor this}
          load: {id: load, task: load}
        """,
    ),
    "what a failure does, and a cooldown": pair(
        Flow("careful", on_failure="finish", cooldown="1h").then(load),
        "{flow: careful, on_failure: finish, cooldown: 60m, nodes: [{id: load, task: load}]}",
    ),
    "how many runs at once": pair(
        Flow("several", max_running=4).then(load),
        "{flow: several, max_running: 4, nodes: [{id: load, task: load}]}",
    ),
    "how many runs at once by a key": pair(
        Flow("several", max_running=Concurrency(2, key="{{ input.tenant }}")).then(load),
        """
        flow: several
        max_running: {count: 2, key: "{{ input.tenant }}"}
        nodes: [{id: load, task: load}]
        """,
    ),
    "settings of a call": pair(
        Flow("calls").then(
            price,
            name="a",
            retries=Retry(3, first="2s", max="1m", on="ValueError"),
            timeout="30s",
            queue="other",
            priority=2,
            tags=["b", "a"],
        ),
        """
        flow: calls
        nodes:
          - id: a
            task: price
            retry: {retries: 3, first: 2, max: 60s, on: [ValueError]}
            timeout: 0.5m
            queue: other
            priority: 2
            tags: [a, b]
        """,
    ),
    "retries as a number, and an undo": pair(
        Flow("again").then(pay, retries=2, undo=take_back),
        "{flow: again, nodes: [{id: pay, task: pay, retry: 2, undo: take_back}]}",
    ),
    "an error passed over": pair(
        Flow("passed").then(pay, on_error="continue").then(tell),
        """
        flow: passed
        nodes:
          - {id: pay, task: pay, on_error: continue, next: tell}
          - {id: tell, task: tell}
        """,
    ),
    "an error with a port": pair(
        Flow("sorry").then(pay, on_error="sorry").then(ask).then(tell, after="pay:sorry"),
        """
        flow: sorry
        nodes:
          - {id: pay, task: pay, on_error: sorry, next: {default: ask, sorry: tell}}
          - {id: ask, task: ask}
          - {id: tell, task: tell}
        """,
    ),
    "a fork and its join": pair(
        Flow("fork").then(load).fork(a=pay, b=ask).join(collect),
        """
        flow: fork
        nodes:
          - {id: load, task: load, next: [pay, ask]}
          - {id: pay, task: pay}
          - {id: ask, task: ask}
          - {id: collect, task: collect, after: {a: pay, b: ask}}
        """,
    ),
    "a join of several ends under one name": pair(
        Flow("ends")
        .then(load)
        .fork(a=Flow().route("kind", {"pay": pay}, ask), b=price)
        .join(collect),
        """
        flow: ends
        nodes:
          - {id: load, task: load, next: [route, price]}
          - {id: route, type: route, config: {key: kind}, next: {pay: pay, default: ask}}
          - {id: pay, task: pay}
          - {id: ask, task: ask}
          - {id: price, task: price}
          - {id: collect, task: collect, after: {a: [pay, ask], b: price}}
        """,
    ),
    "a join by ids, which nothing needs to say": pair(
        Flow("ids").node("a", pay).node("b", ask).node("c", collect, after=["a", "b"]),
        """
        flow: ids
        nodes:
          - {id: a, task: pay, next: c}
          - {id: b, task: ask, next: c}
          - {id: c, task: collect}
        """,
    ),
    "one of several": pair(
        Flow("first")
        .node("a", pay)
        .node("b", ask)
        .node("c", tell, after=["a", "b"], gathers=False),
        """
        flow: first
        nodes:
          - {id: a, task: pay, next: c}
          - {id: b, task: ask, next: c}
          - {id: c, task: tell, gathers: false}
        """,
    ),
    "a fork at the end with one branch": pair(
        Flow("single").then(load).fork(a=pay),
        """
        flow: single
        gathers: true
        nodes:
          - {id: load, task: load, next: pay}
          - {id: pay, task: pay}
        """,
    ),
    "a route by key, whose branches meet again": pair(
        Flow("route").then(load).route("kind", {"pay": pay, "no": None}, default=ask).then(tell),
        """
        flow: route
        nodes:
          - {id: load, task: load, next: route}
          - {id: route, type: route, config: {key: kind}, next: {pay: pay, no: tell, default: ask}}
          - {id: pay, task: pay, next: tell}
          - {id: ask, task: ask, next: tell}
          - {id: tell, task: tell}
        """,
    ),
    "a route by a task, with ends and settings": pair(
        Flow("chosen").then(load).route(choose, {"pay": pay, 7: None}, name="pick", retries=1),
        """
        flow: chosen
        nodes:
          - {id: load, task: load, next: pick}
          - {id: pick, type: route, config: {task: choose}, next: {7: null, pay: pay}, retry: 1}
          - {id: pay, task: pay}
        """,
    ),
    "a map": pair(
        Flow("map").then(load).map(double, over="rows", concurrency=5, on_error="continue"),
        """
        flow: map
        nodes:
          - {id: load, task: load, next: double}
          - id: double
            type: map
            config: {task: double, over: rows, concurrency: 5}
            on_error: continue
        """,
    ),
    "a map of a few": pair(
        Flow("few").map(double, items_max=20),
        """
        flow: few
        nodes:
          - {id: double, type: map, config: {task: double, items_max: 20}}
        """,
    ),
    "a map of children, over an input": pair(
        Flow("children")
        .then(load)
        .map(child, name="each", over="rows", inputs={"rows": "load.output.rows"}),
        """
        flow: children
        nodes:
          - {id: load, task: load, next: each}
          - id: each
            type: map
            config: {flow: child, over: rows}
            inputs: {rows: load.output.rows}
        """,
    ),
    "a loop until a key": pair(
        Flow("keyed")
        .loop(pay, until="paid", max_iterations=5, on_max="stuck")
        .then(tell, after="pay:stuck"),
        """
        flow: keyed
        nodes:
          - id: pay
            type: loop
            config: {task: pay, until: paid, max_iterations: 5, on_max: stuck}
            next: {stuck: tell}
          - {id: tell, task: tell}
        """,
    ),
    "a loop until a condition": pair(
        Flow("conditional").loop(pay, until=_PAID),
        """
        flow: conditional
        nodes:
          - id: pay
            type: loop
            config: {task: pay, until: {property: paid, op: eq, value: true}}
        """,
    ),
    "a loop of a child until a task says so": pair(
        Flow("tasked").loop(child, until=is_done, undo=take_back),
        """
        flow: tasked
        nodes:
          - id: child
            type: loop
            config: {flow: child, until: {task: is_done}}
            undo: take_back
        """,
    ),
    "a delay": pair(
        Flow("delay").then(load).delay("2h").then(pay),
        """
        flow: delay
        nodes:
          - {id: load, task: load, next: delay}
          - {id: delay, type: delay, config: {for: 2h}, next: pay}
          - {id: pay, task: pay}
        """,
    ),
    "a delay until a time": pair(
        Flow("until")
        .then(load)
        .delay(until="{{ when }}", name="rest", inputs={"when": "input.due"}),
        """
        flow: until
        nodes:
          - {id: load, task: load, next: rest}
          - {id: rest, type: delay, config: {until: "{{ when }}"}, inputs: {when: input.due}}
        """,
    ),
    "a signal": pair(
        Flow("signal").wait_for_signal("paid").then(pay),
        """
        flow: signal
        nodes:
          - {id: paid, type: signal, next: pay}
          - {id: pay, task: pay}
        """,
    ),
    "a signal with a filter and a timeout": pair(
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
        .then(tell, after="money:late"),
        """
        flow: filtered
        nodes:
          - {id: load, task: load, next: money}
          - id: money
            type: signal
            config:
              name: paid
              timeout: 24h
              on_timeout: late
              where: {op: eq, value: "{{ id }}", property: id}
            inputs: {id: load.output.id}
            next: {late: tell}
          - {id: tell, task: tell}
        """,
    ),
    "a signal with a default": pair(
        Flow("awaited")
        .wait_for_signal("paid", timeout="1h", on_timeout={"default": {"paid": False}})
        .then(pay),
        """
        flow: awaited
        nodes:
          - id: paid
            type: signal
            config: {timeout: 1h, on_timeout: {default: {paid: false}}}
            next: pay
          - {id: pay, task: pay}
        """,
    ),
    "a child flow": pair(
        Flow("parent").then(load).flow(child, inputs={"n": "load.output.id"}, on_missing="skip"),
        """
        flow: parent
        nodes:
          - {id: load, task: load, next: child}
          - id: child
            type: flow
            config: {flow: child}
            inputs: {n: load.output.id}
            on_missing: skip
        """,
    ),
    "an approval": pair(
        Flow("small").then(load).approve("Pay?").then(pay),
        """
        flow: small
        nodes:
          - {id: load, task: load, next: approve}
          - {id: approve, type: approval, config: {title: Pay?}, next: pay}
          - {id: pay, task: pay}
        """,
    ),
    "an approval with everything": pair(
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
        .then(collect, after="ok:later"),
        """
        flow: large
        nodes:
          - {id: load, task: load, next: ok}
          - id: ok
            type: approval
            inputs: {id: load.output.id, kind: load.output.kind}
            config:
              title: Pay {{ id }}?
              message: of {{ input.customer }}
              form: {type: object, properties: {total: {type: number}}}
              show: [kind]
              data: {total: "{{ id }}"}
              deciders: [finance, ann]
              policy: {at_least: 2}
              answers: [approve, reject, later]
              deadline: 3d
              reminders: [1d, 4h]
              escalate: [{after: 2d, to: [cfo]}]
              notify: tell
            next: {approve: pay, reject: ask, timeout: double, later: collect}
          - {id: pay, task: pay}
          - {id: ask, task: ask}
          - {id: double, task: double}
          - {id: collect, task: collect}
        """,
    ),
    "an approval that answers itself": pair(
        Flow("default").approve(
            "Pay?",
            policy="all",
            deciders=["ann", "bob"],
            deadline="1h",
            on_timeout={"decision": "approve", "data": {"total": 1}},
            on_reject="continue",
        ),
        """
        flow: default
        nodes:
          approve:
            type: approval
            config:
              title: Pay?
              policy: all
              deciders: [ann, bob]
              deadline: 1h
              on_timeout: {decision: approve, data: {total: 1}}
              on_reject: continue
        """,
    ),
    "inputs as arguments": pair(
        Flow("arguments")
        .then(load)
        .then(add, inputs={"a": "load.output.id", "b": "input.more"})
        .then(price, inputs={"order": "load.output"}),
        """
        flow: arguments
        nodes:
          - {id: load, task: load, next: add}
          - {id: add, task: add, inputs: {b: input.more, a: load.output.id}, next: price}
          - {id: price, task: price, inputs: {order: load.output}}
        """,
    ),
    "a config of templates": pair(
        Flow("config")
        .then(load)
        .then(
            add,
            inputs={"n": {"from": "load.output.id", "default": 4}},
            config={"a": "{{ n }}", "b": 2},
            on_missing="default",
        )
        .then(pay, config={"order": "{{ input.customer }} in {{ run.id }}"}),
        """
        flow: config
        nodes:
          - {id: load, task: load, next: add}
          - id: add
            task: add
            inputs: {n: {from: load.output.id, default: 4}}
            config: {b: 2, a: "{{ n }}"}
            on_missing: default
            next: pay
          - {id: pay, task: pay, config: {order: "{{ input.customer }} in {{ run.id }}"}}
        """,
    ),
    "ports, schemas and a check": pair(
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
        .then(tell, after="pay:dear"),
        """
        flow: strict
        nodes:
          - id: pay
            task: pay
            input_schema: {type: object, properties: {total: {type: number}}}
            output_schema: true
            check: {condition: [{property: paid, op: eq, value: true}], advisory: true}
            on_timeout: continue
            next: {default: ask, cheap: null, dear: tell}
          - {id: ask, task: ask}
          - {id: tell, task: tell}
        """,
    ),
    "match": pair(
        Flow("match")
        .then(load)
        .use(
            "match",
            {"conditions": {"property": "id", "op": "gt", "value": 1}},
            inputs={"id": "load.output.id"},
        )
        .then(pay, after="match:true", inputs={"order": "load.output"})
        .then(ask, after="match:false", inputs={"order": "load.output"}),
        """
        flow: match
        nodes:
          - {id: load, task: load, next: match}
          - id: match
            type: match
            inputs: {id: load.output.id}
            config: {conditions: {property: id, op: gt, value: 1}}
            next: {true: pay, false: ask}
          - {id: pay, task: pay, inputs: {order: load.output}}
          - {id: ask, task: ask, inputs: {order: load.output}}
        """,
    ),
    "switch": pair(
        Flow("switch")
        .then(load)
        .use(
            "switch",
            {"value": "{{ kind }}", "cases": ["pay", "default"]},
            inputs={"kind": "load.output.kind"},
        )
        .then(ask)
        .then(pay, after="switch:pay"),
        """
        flow: switch
        nodes:
          - {id: load, task: load, next: switch}
          - id: switch
            type: switch
            inputs: {kind: load.output.kind}
            config: {value: "{{ kind }}"}
            next: {pay: pay, default: ask}
          - {id: pay, task: pay}
          - {id: ask, task: ask}
        """,
    ),
    "check": pair(
        Flow("check")
        .then(load)
        .use("check", {"schema": _FORM, "value": "{{ order }}"}, inputs={"order": "load.output"})
        .then(pay, after="check:pass"),
        """
        flow: check
        nodes:
          - {id: load, task: load, next: check}
          - id: check
            type: check
            inputs: {order: load.output}
            config:
              value: "{{ order }}"
              schema: {type: object, properties: {total: {type: number}}}
            next: {pass: pay, fail: null}
          - {id: pay, task: pay}
        """,
    ),
    "note": pair(
        Flow("note")
        .use("note", {"text": "began {{ run.id }}"}, name="said")
        .then(load, inputs={"order_id": "input"}),
        """
        flow: note
        nodes:
          - {id: said, type: note, config: {text: "began {{ run.id }}"}, next: load}
          - {id: load, task: load, inputs: {order_id: input}}
        """,
    ),
    "outside": pair(
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
        .then(tell, after="outside:lost"),
        """
        flow: outside
        nodes:
          - id: outside
            type: external
            config: {for: carrier, deadline: 2d}
            on_timeout: late
            ports: [lost]
            next: {default: pay, late: ask, lost: tell}
          - {id: pay, task: pay}
          - {id: ask, task: ask}
          - {id: tell, task: tell}
        """,
    ),
    "ports of outside by next": pair(
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
        .then(tell, after="outside:lost"),
        """
        flow: outside
        nodes:
          - id: outside
            type: external
            config: {for: carrier}
            on_error: failed
            next: {default: pay, failed: ask, lost: tell, late: null}
          - {id: pay, task: pay}
          - {id: ask, task: ask}
          - {id: tell, task: tell}
        """,
    ),
    "http": pair(
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
        .then(ask, after="http:missing"),
        """
        flow: http
        nodes:
          - id: http
            type: http
            inputs: {id: input.id, token: secret.API}
            config:
              method: POST
              url: https://example.org/{{ id }}
              headers: {Authorization: "Bearer {{ token }}"}
              status: {404: missing}
            retry: 3
            next: {default: pay, missing: ask}
          - {id: pay, task: pay}
          - {id: ask, task: ask}
        """,
    ),
    "script": pair(
        Flow("script")
        .use("script", {"command": ["ls", "{{ input.folder }}"], "exit": {"2": "missing"}})
        .then(pay),
        """
        flow: script
        nodes:
          - id: script
            type: script
            config: {command: [ls, "{{ input.folder }}"], exit: {2: missing}}
            next: pay
          - {id: pay, task: pay}
        """,
    ),
    "a kind of one's own": pair(
        Flow("own")
        .use(Translate, {"text": "{{ input.text }}"}, queue="words")
        .then(pay)
        .then(ask, after="translate:unsure"),
        """
        flow: own
        nodes:
          - id: translate
            type: translate
            config: {text: "{{ input.text }}"}
            queue: words
            next: {default: pay, unsure: ask}
          - {id: pay, task: pay}
          - {id: ask, task: ask}
        """,
    ),
}
