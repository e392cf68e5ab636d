"""One fault in a node hides none of the others, and makes up none."""

from __future__ import annotations

import pytest

from tests.declared.test_faults import HEAD, fault, faults


def told(node: str) -> list[str]:
    found = faults(f"{HEAD}  - {{id: first, task: load, next: n}}\n  - {node}")
    assert {(each.line, each.node) for each in found} == {(4, "n")}
    return [each.message for each in found]


@pytest.mark.parametrize(
    "node, parts",
    [
        (
            "{id: n, kind: http, config: {url: 'ftp://x', method: GETT, timeout: -4}}",
            [
                "url must begin with",
                "invalid enum value 'GETT'",
                "timeout must not be negative (got -4)",
            ],
        ),
        (
            "{id: n, kind: map, config: {task: nope, concurrency: 0}}",
            ["there is no task 'nope'", "concurrency must be at least 1"],
        ),
        (
            "{id: n, kind: loop, config: {task: nope, until: {property: v, op: zz}, "
            "max_iterations: 0}}",
            ["there is no task 'nope'", '"zz" is not an operator', "max_iterations must be"],
        ),
        (
            "{id: n, kind: signal, config: {name: '', timeout: 0, where: {property: a}}}",
            [
                "name must not be empty",
                "timeout must be greater than zero (got 0)",
                "where: needs 'op'",
            ],
        ),
        (
            "{id: n, kind: approval, config: {titel: x, deadline: foo, form: {type: objekt}, "
            "on_timeout: {decision: maybe}, message: '{{ nope }}'}}",
            [
                "there is no key 'titel' in config; did you mean 'title'?",
                "config needs 'title'",
                "template '{{ nope }}' in message",
                "deadline must be a duration (got 'foo')",
                "on_timeout: the decision 'maybe' is no answer",
                "form: type: fits none",
            ],
        ),
        (
            "{id: n, kind: delay, config: {for: -3, until: '{{ x }}'}}",
            ["its config needs 'for' or 'until', not both", "config.for must be at least 0"],
        ),
        (
            "{id: n, task: nope, timeout: 5x, retry: {retries: 1, first: 1x}, undo: none}",
            [
                "there is no task 'nope'",
                "timeout must be a duration (got '5x')",
                "first must be a duration (got '1x')",
                "there is no task 'none'",
            ],
        ),
    ],
)
def test_all_faults_of_a_node_are_told(node: str, parts: list[str]) -> None:
    messages = told(node)

    assert len(messages) == len(parts), messages
    for part in parts:
        assert any(part in message for message in messages), (part, messages)


@pytest.mark.parametrize(
    "node",
    [
        "{id: n, kind: approval, config: {title: x, deadlin: 1h, on_timeout: continue}}",
        "{id: n, kind: approval, config: {title: x, deadline: -1, reminders: [5m]}}",
        "{id: n, kind: approval, config: {title: x, deciders: ann, policy: all, "
        "escalate: [{after: 1h, to: [bob]}]}}",
        "{id: n, kind: approval, config: {title: x, answers: 5}, next: {later: null}}",
        "{id: n, kind: approval, config: {title: x, show: v}, inputs: {v: first.output}}",
        "{id: n, kind: signal, config: {timout: 1h, on_timeout: continue}}",
        "{id: n, kind: signal, inputs: {v: first.output}, "
        "config: {where: {property: a, op: egal, value: '{{ v }}'}}}",
        "{id: n, kind: map, inputs: {v: first.output, w: first.output}, "
        "config: {task: pay, over: 5}}",
        "{id: n, kind: map, inputs: {v: first.output}, config: {taks: pay, over: v}}",
        "{id: n, kind: delay, config: {util: '2030-01-01T00:00:00+00:00'}}",
        "{id: n, task: 5, next: {good: null}}",
    ],
)
def test_a_fault_makes_no_others(node: str) -> None:
    assert len(told(node)) == 1


@pytest.mark.parametrize(
    "node",
    [
        "{id: n, kind: map, config: {task: pay}, on_error: 5}",
        "{id: n, kind: note, config: {text: x}, on_error: 5}",
        "{id: n, kind: note, config: {text: x}, ports: b}",
        "{id: n, kind: switch, config: {value: 1, cases: b}}",
        "{id: n, task: pay, on_error: 5}",
    ],
)
def test_what_follows_a_port_that_could_not_be_read_is_not_blamed(node: str) -> None:
    after = "{id: b, task: pay, after: 'n:b', inputs: {order: n.output}}"
    found = faults(f"{HEAD}  - {{id: first, task: load, next: n}}\n  - {node}\n  - {after}")

    assert [(each.line, each.node) for each in found] == [(4, "n")], found


def test_a_config_that_cannot_be_read_makes_no_more_faults() -> None:
    node = """
    - {id: a, task: load, next: m}
    - id: m
      kind: match
      inputs: {q: a.output.q}
      config: {conditions: {property: q, op: egal, value: 1}}
      next: {"true": b, "false": c}
    - {id: b, task: pay}
    - {id: c, task: pay}
    - {id: d, task: pay, after: "m:true"}
    """

    line, name, message = fault(node)

    assert (line, name) == (6, "m")
    assert message.startswith("config 'conditions.op': \"egal\" is not an operator")


def test_a_template_as_a_key_is_told_to_be_none() -> None:
    told = fault(
        """
        - {id: a, task: load}
        - {id: b, task: pay, after: a, inputs: {k: a.output}, config: {order: {"{{ k }}": 1}}}
        """
    )

    assert told == (
        3,
        "b",
        "input 'k' is never used: no template of its config names it; a key does, but a key is "
        "never a template, only a value is",
    )
