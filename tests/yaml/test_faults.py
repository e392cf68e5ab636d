"""Everything that is wrong with a file is told at once, each fault with its line and node."""

from __future__ import annotations

import pickle
import textwrap

import pytest

from perdure import Flow, InvalidFlow, InvalidInput, task
from perdure.diagnostics import Fault, Source
from perdure.errors import flow_fault_text, node_of
from perdure.flows.yaml.load import flow_from_dict
from perdure.flows.yaml.parse import FAULTS_MAX
from tests.support.refusal import refused
from tests.yaml.tasks import TASKS, Translate, child

HEAD = "flow: f\nnodes:\n"


def faults(text: str) -> list[Fault]:
    with pytest.raises(InvalidFlow) as caught:
        Flow.from_yaml(textwrap.dedent(text), tasks=TASKS, node_types=[Translate], flows=[child])
    return list(caught.value.faults)


def line_of(found: Fault) -> int:
    assert found.source is not None
    return found.source.line


def fault(text: str) -> tuple[int, str, str]:
    """The line, node and code of the one fault; lines are counted from the first node."""
    [found] = faults(HEAD + textwrap.indent(textwrap.dedent(text), "  "))
    return line_of(found) - 2, node_of(found), found.code


class TestTheWhole:
    @pytest.mark.parametrize(
        "text, code",
        [
            ("[]", "yaml.type"),
            ("x", "yaml.type"),
            ("flow: f", "yaml.missing_key"),
            ("nodes: [{id: load, task: load}]", "yaml.missing_key"),
            ("{flow: f, nodes: []}", "flow.empty"),
            ("{flow: f, nodes: {}}", "flow.empty"),
            ("{flow: f, nodes: 5}", "yaml.type"),
            ("{flow: f, nodes: [5]}", "yaml.type"),
            ("{flow: 5, nodes: [{id: load, task: load}]}", "yaml.type"),
            ("{flow: a@b, nodes: [{id: load, task: load}]}", "flow.name_reserved"),
            (
                "{flow: f, gathers: false, nodes: [{id: a, task: pay}, {id: b, task: pay}]}",
                "flow.must_gather",
            ),
            ("{flow: f, cooldown: 1x, nodes: [{id: load, task: load}]}", "argument.duration"),
            ("{flow: f, on_failure: finsh, nodes: [{id: load, task: load}]}", "yaml.choice"),
            ("{flow: f, node: [], nodes: [{id: load, task: load}]}", "yaml.unknown_key"),
        ],
    )
    def test_of_a_wrong_shape_is_refused(self, text, code):
        assert [each.code for each in faults(text)] == [code]

    def test_fault_has_its_place_apart_and_is_reported_with_it(self):
        [found] = faults("flow: f\nnodes:\n  - {id: a, task: pay, next: b}")
        assert found.source == Source(line=3, column=24)
        assert found.where == ("nodes", "a", "next")
        assert flow_fault_text(found) == "line 3: node 'a': unknown node 'b'; known: 'a'"

    def test_of_many_faults_only_so_many_are_reported(self):
        nodes = "\n".join(f"  - {{id: n{at}, task: pay, colour: red}}" for at in range(500))
        found = faults(f"flow: f\nnodes:\n{nodes}")
        assert len(found) == FAULTS_MAX + 1
        assert found[-1].code == "flow.more_faults"


class TestNodes:
    @pytest.mark.parametrize(
        "text, code",
        [
            ("- {task: pay}", "flow.no_id"),
            ("- {id: a}", "flow.no_type"),
            ("- {id: a, taks: pay}", "flow.no_type"),
            ("- {id: a, type: task}", "yaml.missing_key"),
            ("- {id: 5, task: pay}", "yaml.type"),
            ("- {id: a, type: [x]}", "yaml.type"),
            ("- {id: a, task: pay, retries: 3}", "yaml.unknown_key"),
            ("- {id: a, task: pya}", "flow.unknown_task"),
            ("- {id: a, task: pay, undo: takeback}", "flow.unknown_task"),
            ("- {id: a, type: map, config: {flow: chld}}", "flow.unknown_child"),
            ("- {id: a, type: flow, config: {flow: other.yaml}}", "flow.no_file"),
            ("- {id: a, type: route}", "flow.no_config"),
            ("- {id: a, type: route, config: {}}", "flow.one_of"),
            ("- {id: a, type: map, config: {task: pay, flow: child}}", "flow.one_of"),
            ("- {id: a, type: loop, config: {task: pay}}", "yaml.missing_key"),
            ("- {id: a, type: delay, config: {for: 1h, util: x}}", "yaml.unknown_key"),
            ("- {id: a, type: signal, timeout: 1h}", "yaml.misplaced_key"),
            ("- {id: a, type: approval, timeout: 1h, config: {title: x}}", "yaml.misplaced_key"),
            ("- {id: a, type: map, task: pay, config: {task: pay}}", "yaml.misplaced_key"),
            ("- {id: a, type: note, task: pay, config: {text: x}}", "yaml.misplaced_key"),
            ("- {id: a, type: delay, retry: 3, config: {for: 1h}}", "yaml.misplaced_key"),
            ("- {id: a, task: pay, retry: soon}", "yaml.type"),
            ("- {id: a, task: pay, retry: {retries: 1, frist: 1s}}", "yaml.unknown_key"),
            ("- {id: a, task: pay, retry: {first: 1s}}", "yaml.missing_key"),
            ("- {id: a, task: pay, retry: {retries: 1, first: 1x}}", "argument.duration"),
            ("- {id: a, task: pay, timeout: 1x}", "argument.duration"),
            ("- {id: a, task: pay, timeout: [1]}", "yaml.type"),
            ("- {id: a, task: pay, priority: 11}", "form.maximum"),
            ("- {id: a, task: pay, tags: x}", "yaml.type"),
            ("- {id: a, task: pay, on_missing: skp}", "yaml.choice"),
            ("- {id: a, task: pay, config: [1]}", "yaml.type"),
            ("- {id: a, task: pay, inputs: {order: 5}}", "yaml.type"),
            ("- {id: a, task: pay, inputs: [{order: input}]}", "yaml.type"),
            ("- {id: a, task: pay, inputs: {order: {from: input, dfault: 1}}}", "yaml.unknown_key"),
            ("- {id: a, type: approval, config: {title: x, policy: most}}", "yaml.choice"),
            (
                "- {id: a, type: approval, config: {title: x, policy: {at_least: 0}}}",
                "form.minimum",
            ),
            (
                "- {id: a, type: approval, config: {title: x, escalate: [{after: 1h}]}}",
                "yaml.missing_key",
            ),
            ("- {id: a, task: pay, check: {}}", "flow.empty_check"),
        ],
    )
    def test_of_a_wrong_shape_are_refused_where_they_are(self, text, code):
        found = faults(f"flow: f\nnodes:\n  - {{id: first, task: tick}}\n  {text}")
        assert [(line_of(each), each.code) for each in found] == [(4, code)]

    def test_of_one_id_are_reported_with_the_line_of_the_other(self):
        [found] = faults(
            HEAD + "  - {id: a, task: pay}\n  - {id: b, task: pay}\n  - {id: a, task: ask}"
        )
        assert (line_of(found), node_of(found), found.code) == (5, "a", "flow.duplicate_node")
        assert found.args["there"] == "line 3"

    @pytest.mark.parametrize("id", ["a b", "-a", "", "ä", "a" * 129])
    def test_have_ids_that_can_be_stored(self, id):
        assert fault(f'- {{id: "{id}", task: pay}}') == (1, "", "flow.node_id")

    def test_by_id_cannot_be_given_another(self):
        [found] = faults("{flow: f, nodes: {a: {id: b, task: pay}}}")
        assert (found.where, found.code) == (("nodes", "a", "id"), "flow.two_ids")

    def test_of_an_unknown_type_name_the_nearest(self):
        nodes = "  - {id: a, type: htp, config: {url: 1}, next: {bad: a2}}\n  - {id: a2, task: pay}"
        [found] = faults(HEAD + nodes)
        assert (line_of(found), found.code) == (3, "flow.unknown_node_type")
        assert found.where == ("nodes", "a", "type")
        assert found.args["nearest"] == ("http",)

    def test_are_called_as_their_task_can_be(self):
        two = task(name="two")(lambda a, b: a)
        with pytest.raises(InvalidFlow) as caught:
            flow_from_dict({"flow": "f", "nodes": [{"id": "two", "task": "two"}]}, tasks=[two])
        assert [each.code for each in caught.value.faults] == ["flow.one_value"]


class TestEdges:
    @pytest.mark.parametrize(
        "text, told",
        [
            ("- {id: a, task: pay, next: bb}\n- {id: b, task: pay}", (1, "a", "flow.unknown_node")),
            (
                "- {id: a, task: pay}\n- {id: b, task: pay, after: aa}",
                (2, "b", "flow.unknown_node"),
            ),
            (
                "- {id: a, task: pay}\n- {id: b, task: pay, after: 'a:x'}",
                (2, "b", "flow.unknown_port"),
            ),
            (
                "- {id: a, type: delay, config: {for: 1h}, next: {late: b}}\n- {id: b, task: pay}",
                (1, "a", "flow.unknown_port"),
            ),
            (
                "- {id: a, type: route, config: {key: k}, next: {x: null}}\n"
                "- {id: b, task: pay, after: a}",
                (2, "b", "flow.port_needed"),
            ),
            (
                "- {id: a, task: pay, next: b}\n- {id: b, task: pay, after: a}",
                (2, "b", "flow.duplicate_edge"),
            ),
            (
                "- {id: a, task: pay, ports: [x, y], next: {x: b}}\n- {id: b, task: pay}",
                (1, "a", "flow.port_unmentioned"),
            ),
            (
                "- {id: a, type: check, config: {schema: true}, next: {pass: b}}\n"
                "- {id: b, task: pay}",
                (1, "a", "flow.port_unmentioned"),
            ),
            ("- {id: a, task: pay, on_error: x}", (1, "a", "flow.unused_port")),
            (
                "- {id: a, task: pay, next: [b, c]}\n- {id: b, task: pay, next: d}\n"
                "- {id: c, task: pay, next: d}\n- {id: d, type: delay, config: {for: 1s}}",
                (4, "d", "flow.takes_one_value"),
            ),
        ],
    )
    def test_that_lead_nowhere_are_refused(self, text, told):
        assert fault(text) == told

    @pytest.mark.parametrize(
        "node, code",
        [
            ("{id: a, task: pay, gathers: true}", "flow.joins_nothing"),
            ("{id: a, task: pay, gathers: true, inputs: {order: input}}", "flow.inputs_gather"),
        ],
    )
    def test_that_cannot_be_gathered_are_refused(self, node, code):
        assert fault(f"- {node}") == (1, "a", code)

    def test_from_a_misspelt_port_name_the_nearest(self):
        node = "{id: a, type: check, config: {schema: true}, next: {pas: b, fail: null}}"
        found = faults(f"{HEAD}  - {node}\n  - {{id: b, task: pay}}")
        assert [each.code for each in found] == ["flow.port_unmentioned", "flow.unknown_port"]
        assert found[1].args["nearest"] == ("pass",)

    def test_from_a_port_that_only_a_result_could_choose_tell_how_to_declare_it(self):
        note = "- {id: a, type: note, config: {text: x}, next: {alt: b}}\n- {id: b, task: pay}"
        [found] = faults(HEAD + textwrap.indent(note, "  "))
        assert (found.code, found.args["undeclared"]) == ("flow.unknown_port", "alt")
        Flow.from_yaml(
            HEAD + textwrap.indent(note.replace("next:", "ports: [alt], next:"), "  "), tasks=TASKS
        )

    def test_in_a_circle_are_refused_with_all_lines(self):
        [found] = faults(HEAD + "  - {id: a, task: pay, next: b}\n  - {id: b, task: pay, next: a}")
        assert (line_of(found), found.code) == (3, "flow.cycle")
        assert found.args["ids"] == ("a", "b")
        assert found.args["nodes"] == "node 'a' (line 3), node 'b' (line 4)"

    def test_may_end_where_an_option_leads(self):
        flow = Flow.from_yaml(
            "{flow: f, nodes: [{id: a, task: pay, on_error: x, next: {x: null}},"
            "{id: ok, type: approval, config: {title: x}, next: {reject: null}, after: a}]}",
            tasks=TASKS,
        )
        assert flow.graph.ends == ["a", "ok"]
        assert Flow.from_yaml(flow.to_yaml(), tasks=[flow]).version == flow.version


class TestInputsAndTemplates:
    @pytest.mark.parametrize(
        "text, line, code",
        [
            (
                "- {id: a, task: pay, next: b}\n"
                "- id: b\n  task: pay\n  inputs:\n    order: aa.output",
                5,
                "flow.unknown_node",
            ),
            (
                "- {id: a, task: pay}\n- id: b\n  task: pay\n  inputs:\n    order: a.output",
                5,
                "flow.not_upstream",
            ),
            (
                "- id: a\n  task: pay\n  inputs: {x: input}\n  config:\n    order: '{{ y.z }}'",
                5,
                "template.undeclared_input",
            ),
            ("- id: a\n  type: note\n  config:\n    text: '{{ 1 + 1 }}'", 4, "template.malformed"),
            (
                "- id: a\n  type: approval\n  config:\n    title: '{{ secret.X }}'",
                4,
                "template.secret",
            ),
            (
                "- id: a\n  type: signal\n  config:\n"
                "    where: {property: x, op: eq, value: '{{ y }}'}",
                4,
                "template.undeclared_input",
            ),
            ("- id: a\n  type: delay\n  config:\n    until: soon", 4, "argument.type"),
            (
                "- id: a\n  type: http\n  config:\n    url: x\n    timout: 3",
                5,
                "config.unknown_setting",
            ),
            (
                "- id: a\n  type: approval\n  config:\n    title: x\n    form: {type: txt}",
                5,
                "form.any_of",
            ),
            (
                "- id: a\n  type: approval\n  config:\n    title: x\n    deadline: 1h\n"
                "    reminders: [2h]",
                6,
                "flow.after_deadline",
            ),
            (
                "- id: a\n  type: loop\n  config:\n    task: pay\n    until: {property: x, op: lk}",
                5,
                "condition.unknown_operator",
            ),
        ],
    )
    def test_that_are_wrong_are_refused_at_their_key(self, text, line, code):
        found = faults(HEAD + textwrap.indent(text, "  "))
        assert (line, code) in [(line_of(each) - 2, each.code) for each in found]

    def test_of_a_broken_input_do_not_make_more_faults(self):
        found = faults(
            HEAD + "  - {id: a, type: note, inputs: {x: 5}, config: {text: '{{ x.y }}'}}"
        )
        assert [(each.code, each.where[2:]) for each in found] == [("yaml.type", ("inputs", "x"))]


class TestWhatIsGiven:
    @pytest.mark.parametrize("data", [None, 5, "x", [], object()])
    def test_that_is_no_object_is_refused(self, data):
        with pytest.raises(InvalidFlow):
            flow_from_dict(data)

    @pytest.mark.parametrize(
        "config",
        [
            {5: "x"},
            {"a": object()},
            {"a": float("nan")},
            {"a": 2**80},
            {"a": "\0"},
            {"\0": 1},
            {"a": b"x"},
            {"a": {1, 2}},
        ],
    )
    def test_that_is_not_json_is_refused(self, config):
        with pytest.raises(InvalidFlow, match=r"nodes\.0\.config"):
            flow_from_dict({"flow": "f", "nodes": [{"id": "a", "task": "a", "config": config}]})

    def test_that_contains_itself_is_refused(self):
        data: dict[str, object] = {"flow": "f"}
        data["nodes"] = [data]
        with pytest.raises(InvalidFlow) as caught:
            flow_from_dict(data)
        assert [each.code for each in caught.value.faults] == ["yaml.too_deep"]

    @pytest.mark.parametrize("tasks", [5, "x", ["x"], [lambda x: x], [Flow("f")]])
    def test_as_tasks_must_be_tasks(self, tasks):
        with pytest.raises(InvalidInput, match=r"^tasks"):
            flow_from_dict({"flow": "f", "nodes": []}, tasks=tasks)  # type: ignore[arg-type]

    def test_as_flows_must_be_built(self):
        with refused("flow.not_built", InvalidInput, where=("flows",)):
            flow_from_dict({"flow": "f", "nodes": []}, flows=[Flow("x")])  # type: ignore[list-item]

    def test_as_two_tasks_of_one_name_is_refused_where_it_is_used(self):
        first, second = (task(name="same")(lambda x: x) for _ in range(2))
        data = {"flow": "f", "nodes": [{"id": "a", "task": "same"}]}
        with refused("task.duplicate", InvalidFlow, where=("nodes", "a", "task"), name="same"):
            flow_from_dict(data, tasks=[first, second])

    def test_as_text_must_be_a_text(self):
        with refused("argument.type", InvalidInput, name="text"):
            Flow.from_yaml(b"flow: f")  # type: ignore[arg-type]


class TestFaults:
    """Everything that is wrong with a file is told at once, each fault with its line and node."""

    def test_faults_are_data_with_code_place_and_line(self):
        found = faults(
            """
        flow: f
        nodes:
          - {id: a, task: load, timeout: soon}
          - id: b
            task: payy
            after: c
        """
        )

        assert [(each.code, each.where) for each in found] == [
            ("argument.duration", ("nodes", "a", "timeout")),
            ("flow.unknown_task", ("nodes", "b", "task")),
            ("flow.unknown_node", ("nodes", "b", "after")),
        ]
        assert [each.source for each in found] == [
            Source(line=4, column=25),
            Source(line=6, column=5),
            Source(line=7, column=5),
        ]
        assert pickle.loads(pickle.dumps(found)) == found

    def test_what_a_text_says_does_not_move_its_fault(self):
        node = """
    - id: ask
      type: approval
      config:
        title: x
        deciders:
          - ann
          - "inputs={...}"
          - "inputs={...}"
    """
        [found] = faults(HEAD + textwrap.indent(textwrap.dedent(node), "  "))

        assert (found.code, found.args["name"]) == ("flow.duplicate_name", "inputs={...}")
        assert found.where == ("nodes", "ask", "config", "deciders", 2)
        assert line_of(found) == 11


def told(node: str) -> list[str]:
    found = faults(f"{HEAD}  - {{id: first, task: load, next: n}}\n  - {node}")
    assert {(line_of(each), node_of(each)) for each in found} == {(4, "n")}
    return [each.code for each in found]


class TestFaultsTogether:
    """One fault in a node hides none of the others, and makes up none."""

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
                [
                    "flow.unknown_task",
                    "argument.duration",
                    "argument.duration",
                    "flow.unknown_task",
                ],
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
                "{id: n, type: approval, "
                "config: {title: x, answers: 5, deadline: foo, notify: none}}",
                ["yaml.type", "argument.duration", "flow.unknown_task"],
            ),
            (
                "{id: n, type: delay, config: {for: {}}, inputs: {v: nobody.output}}",
                ["yaml.type", "flow.unknown_node"],
            ),
            (
                "{id: n, type: flow, config: {flow: nobody}, undo: none, "
                "inputs: {v: nobody.output}}",
                ["flow.unknown_child", "flow.unknown_task", "flow.unknown_node"],
            ),
            (
                "{id: n, type: nope, timeout: 5x, undo: none}",
                ["flow.unknown_node_type", "argument.duration", "flow.unknown_task"],
            ),
        ],
    )
    def test_all_faults_of_a_node_are_reported(self, node, codes):
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
    def test_a_fault_makes_no_others(self, node):
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
    def test_what_follows_a_port_that_could_not_be_read_is_not_blamed(self, node):
        after = "{id: b, task: pay, after: 'n:b', inputs: {order: n.output}}"
        found = faults(f"{HEAD}  - {{id: first, task: load, next: n}}\n  - {node}\n  - {after}")
        assert [(line_of(each), node_of(each)) for each in found] == [(4, "n")], found

    def test_a_config_that_cannot_be_read_makes_no_more_faults(self):
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

    def test_a_template_as_a_key_is_reported_to_be_none(self):
        node = (
            '{id: b, task: pay, after: a, inputs: {k: a.output}, config: {order: {"{{ k }}": 1}}}'
        )
        [found] = faults(f"{HEAD}  - {{id: a, task: load}}\n  - {node}")
        assert (line_of(found), node_of(found), found.code) == (4, "b", "flow.unused_input")
        assert found.args["key"] == "{{ k }}"
