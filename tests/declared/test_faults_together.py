"""One fault in a node hides none of the others, and makes up none."""

from __future__ import annotations

import pytest

from perdure.errors import node_of
from tests.declared.test_faults import HEAD, fault, faults, line_of


def told(node: str) -> list[str]:
    found = faults(f"{HEAD}  - {{id: first, task: load, next: n}}\n  - {node}")
    assert {(line_of(each), node_of(each)) for each in found} == {(4, "n")}
    return [each.code for each in found]


@pytest.mark.parametrize(
    "node, codes",
    [
        (
            "{id: n, type: http, config: {url: 'ftp://x', method: GETT, timeout: -4}}",
            ["http.url_scheme", "config.type", "argument.negative"],
        ),
        (
            "{id: n, type: map, config: {task: nope, concurrency: 0}}",
            ["flow.unknown_task", "form.minimum"],
        ),
        (
            "{id: n, type: loop, config: {task: nope, until: {property: v, op: zz}, "
            "max_iterations: 0}}",
            ["flow.unknown_task", "condition.unknown_operator", "form.minimum"],
        ),
        (
            "{id: n, type: signal, config: {name: '', timeout: 0, where: {property: a}}}",
            ["form.empty", "argument.not_positive", "condition.needs_operator"],
        ),
        (
            "{id: n, type: approval, config: {titel: x, deadline: foo, form: {type: objekt}, "
            "on_timeout: {decision: maybe}, message: '{{ nope }}'}}",
            [
                "yaml.missing_key",
                "yaml.unknown_key",
                "argument.duration",
                "form.any_of",
                "flow.unknown_decision",
                "template.undeclared_input",
            ],
        ),
        (
            "{id: n, type: delay, config: {for: -3, until: '{{ x }}'}}",
            ["flow.one_of", "form.minimum"],
        ),
        (
            "{id: n, task: nope, timeout: 5x, retry: {retries: 1, first: 1x}, undo: none}",
            ["flow.unknown_task", "argument.duration", "argument.duration", "flow.unknown_task"],
        ),
        (
            "{id: n, task: 5, timeout: 5x, undo: none, inputs: {v: nobody.output}, "
            "config: {order: '{{ w }}'}}",
            [
                "yaml.type",
                "argument.duration",
                "flow.unknown_task",
                "flow.unknown_node",
                "flow.unused_input",
                "template.undeclared_input",
            ],
        ),
        (
            "{id: n, type: map, config: {task: 5, concurrency: 0}, timeout: 5x, undo: none}",
            ["yaml.type", "form.minimum", "argument.duration", "flow.unknown_task"],
        ),
        (
            "{id: n, type: map, config: 5, retry: {retries: 1, first: 1x}, undo: none}",
            ["yaml.type", "argument.duration", "flow.unknown_task"],
        ),
        (
            "{id: n, type: loop, config: {task: load, until: done, on_max: 5}, timeout: 5x, "
            "inputs: {v: nobody.output}}",
            ["yaml.type", "argument.duration", "flow.unknown_node"],
        ),
        (
            "{id: n, type: signal, config: {on_timeout: 5, timeout: 1x}, "
            "inputs: {v: nobody.output}}",
            ["yaml.type", "argument.duration", "flow.unknown_node"],
        ),
        (
            "{id: n, type: approval, config: {title: x, answers: 5, deadline: foo, notify: none}}",
            ["yaml.type", "argument.duration", "flow.unknown_task"],
        ),
        (
            "{id: n, type: delay, config: {for: {}}, inputs: {v: nobody.output}}",
            ["yaml.type", "flow.unknown_node"],
        ),
        (
            "{id: n, type: flow, config: {flow: nobody}, undo: none, inputs: {v: nobody.output}}",
            ["flow.unknown_child", "flow.unknown_task", "flow.unknown_node"],
        ),
        (
            "{id: n, type: nope, timeout: 5x, undo: none}",
            ["flow.unknown_node_type", "argument.duration", "flow.unknown_task"],
        ),
    ],
)
def test_all_faults_of_a_node_are_told(node, codes):
    assert sorted(told(node)) == sorted(codes)


@pytest.mark.parametrize(
    "node",
    [
        "{id: n, type: approval, config: {title: x, deadlin: 1h, on_timeout: continue}}",
        "{id: n, type: approval, config: {title: x, deadline: -1, reminders: [5m]}}",
        "{id: n, type: approval, config: {title: x, deciders: ann, policy: all, "
        "escalate: [{after: 1h, to: [bob]}]}}",
        "{id: n, type: approval, config: {title: x, answers: 5}, next: {later: null}}",
        "{id: n, type: approval, config: {title: x, show: v}, inputs: {v: first.output}}",
        "{id: n, type: signal, config: {timout: 1h, on_timeout: continue}}",
        "{id: n, type: signal, inputs: {v: first.output}, "
        "config: {where: {property: a, op: egal, value: '{{ v }}'}}}",
        "{id: n, type: map, inputs: {v: first.output, w: first.output}, "
        "config: {task: pay, over: 5}}",
        "{id: n, type: map, inputs: {v: first.output}, config: {taks: pay, over: v}}",
        "{id: n, type: delay, config: {util: '2030-01-01T00:00:00+00:00'}}",
        "{id: n, task: 5, next: {good: null}}",
        "{id: n, type: map, config: {task: 5, over: v}, inputs: {v: first.output}}",
        "{id: n, type: map, config: {flow: []}, inputs: {v: first.output}}",
        "{id: n, type: loop, config: {task: load, until: done, on_max: 5}, "
        "inputs: {v: first.output}}",
        "{id: n, type: delay, config: {for: {}}, inputs: {v: first.output}}",
        "{id: n, type: delay, config: 5}",
        "{id: n, type: delay, config: {}}",
        "{id: n, type: nope, config: {a: '{{ v }}'}, inputs: {v: first.output}}",
    ],
)
def test_a_fault_makes_no_others(node):
    assert len(told(node)) == 1


@pytest.mark.parametrize(
    "node",
    [
        "{id: n, type: map, config: {task: pay}, on_error: 5}",
        "{id: n, type: note, config: {text: x}, on_error: 5}",
        "{id: n, type: note, config: {text: x}, ports: b}",
        "{id: n, type: switch, config: {value: 1, cases: b}}",
        "{id: n, task: pay, on_error: 5}",
    ],
)
def test_what_follows_a_port_that_could_not_be_read_is_not_blamed(node):
    after = "{id: b, task: pay, after: 'n:b', inputs: {order: n.output}}"
    found = faults(f"{HEAD}  - {{id: first, task: load, next: n}}\n  - {node}\n  - {after}")

    assert [(line_of(each), node_of(each)) for each in found] == [(4, "n")], found


def test_a_config_that_cannot_be_read_makes_no_more_faults():
    node = """
    - {id: a, task: load, next: m}
    - id: m
      type: match
      inputs: {q: a.output.q}
      config: {conditions: {property: q, op: egal, value: 1}}
      next: {"true": b, "false": c}
    - {id: b, task: pay}
    - {id: c, task: pay}
    - {id: d, task: pay, after: "m:true"}
    """

    assert fault(node) == (6, "m", "condition.unknown_operator")


def test_a_template_as_a_key_is_told_to_be_none():
    node = '{id: b, task: pay, after: a, inputs: {k: a.output}, config: {order: {"{{ k }}": 1}}}'

    [found] = faults(f"{HEAD}  - {{id: a, task: load}}\n  - {node}")

    assert (line_of(found), node_of(found), found.code) == (4, "b", "flow.unused_input")
    assert found.args["key"] == "{{ k }}"
