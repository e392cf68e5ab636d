"""What faults of flows as data come with; their codes and places are in ``tests/golden``."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from perdure import Flow, InvalidFlow, InvalidInput, task
from perdure.diagnostics import Fault
from perdure.flows.yaml.load import flow_from_dict
from perdure.flows.yaml.parse import FAULTS_MAX
from tests.support.refusal import refused
from tests.yaml.tasks import TASKS, Translate, child

HEAD = "flow: f\nnodes:\n"


def faults(text: str) -> list[Fault]:
    with pytest.raises(InvalidFlow) as caught:
        Flow.from_yaml(textwrap.dedent(text), tasks=TASKS, node_types=[Translate], flows=[child])
    return list(caught.value.faults)


def test_of_many_only_so_many_are_reported():
    nodes = "\n".join(f"  - {{id: n{at}, task: pay, colour: red}}" for at in range(500))
    found = faults(f"flow: f\nnodes:\n{nodes}")
    assert len(found) == FAULTS_MAX + 1
    assert found[-1].code == "flow.more_faults"


@pytest.mark.parametrize(
    "nodes, code, args",
    [
        (
            "  - {id: a, task: pay}\n  - {id: b, task: pay}\n  - {id: a, task: ask}",
            "flow.duplicate_node",
            {"there": "line 3"},
        ),
        (
            "  - {id: a, task: pay, next: b}\n  - {id: b, task: pay, next: a}",
            "flow.cycle",
            {"ids": ("a", "b"), "nodes": "node 'a' (line 3), node 'b' (line 4)"},
        ),
    ],
)
def test_of_several_nodes_name_the_places_of_the_others(nodes, code, args):
    [found] = faults(HEAD + nodes)
    assert found.code == code
    assert args.items() <= dict(found.args).items()


@pytest.mark.parametrize(
    "node, code, args",
    [
        ("{id: a, type: htp, config: {url: 1}}", "flow.unknown_node_type", {"nearest": ("http",)}),
        (
            "{id: a, type: check, config: {schema: true}, next: {pas: b, fail: null}}\n"
            "  - {id: b, task: pay}",
            "flow.unknown_port",
            {"nearest": ("pass",)},
        ),
        (
            '{id: a, task: pay, inputs: {k: input}, config: {order: {"{{ k }}": 1}}}',
            "flow.unused_input",
            {"key": "{{ k }}"},
        ),
    ],
)
def test_of_misspelled_words_suggest_what_may_be_meant(node, code, args):
    [found] = [each for each in faults(f"{HEAD}  - {node}") if each.code == code]
    assert args.items() <= dict(found.args).items()


def test_of_a_port_that_only_a_result_could_choose_say_how_to_declare_it():
    note = "  - {id: a, type: note, config: {text: x}, next: {alt: b}}\n  - {id: b, task: pay}"
    [found] = faults(HEAD + note)
    assert (found.code, found.args["undeclared"]) == ("flow.unknown_port", "alt")
    Flow.from_yaml(HEAD + note.replace("next:", "ports: [alt], next:"), tasks=TASKS)


def test_are_none_where_an_option_leads_to_an_end():
    flow = Flow.from_yaml(
        "{flow: f, nodes: [{id: a, task: pay, on_error: x, next: {x: null}},"
        "{id: ok, type: approval, config: {title: x}, next: {reject: null}, after: a}]}",
        tasks=TASKS,
    )
    assert flow.graph.ends == ["a", "ok"]
    assert Flow.from_yaml(flow.to_yaml(), tasks=[flow]).version == flow.version


def test_of_an_unknown_type_are_not_followed_by_those_of_dotted_inputs():
    node = "  - {id: a, type: nope, inputs: {x.y: input.z}, config: {}}"
    assert [each.code for each in faults(HEAD + node)] == ["flow.unknown_node_type"]


def with_config(config: Any) -> dict[str, Any]:
    return {"flow": "f", "nodes": [{"id": "a", "task": "a", "config": config}]}


ENDLESS: dict[str, Any] = {"flow": "f"}
ENDLESS["nodes"] = [ENDLESS]


class TestWhatIsGiven:
    @pytest.mark.parametrize(
        "data, code",
        [
            (object(), "yaml.not_json"),
            (with_config({"a": object()}), "yaml.not_json"),
            (with_config({"a": float("nan")}), "yaml.number"),
            (ENDLESS, "yaml.too_deep"),
        ],
    )
    def test_that_no_file_could_have_is_refused(self, data, code):
        with refused(code, InvalidFlow):
            flow_from_dict(data)

    @pytest.mark.parametrize(
        "tasks, code",
        [
            (5, "argument.type"),
            ("x", "argument.type"),
            (["x"], "flow.neither_task_nor_flow"),
            ([lambda x: x], "flow.neither_task_nor_flow"),
            ([Flow("f")], "flow.neither_task_nor_flow"),
        ],
    )
    def test_as_tasks_must_be_tasks(self, tasks, code):
        with refused(code, InvalidInput, where=("tasks",)):
            flow_from_dict({"flow": "f", "nodes": []}, tasks=tasks)  # type: ignore[arg-type]

    def test_as_flows_must_be_built(self):
        with refused("flow.not_built", InvalidInput, where=("flows",)):
            flow_from_dict({"flow": "f", "nodes": []}, flows=[Flow("x")])  # type: ignore[list-item]

    def test_as_a_task_must_be_called_as_it_can_be(self):
        two = task(name="two")(lambda a, b: a)
        with refused("flow.one_value", InvalidFlow):
            flow_from_dict({"flow": "f", "nodes": [{"id": "two", "task": "two"}]}, tasks=[two])

    def test_as_two_tasks_of_one_name_is_refused_where_it_is_used(self):
        first, second = (task(name="same")(lambda x: x) for _ in range(2))
        data = {"flow": "f", "nodes": [{"id": "a", "task": "same"}]}
        with refused("task.duplicate", InvalidFlow, where=("nodes", "a", "task"), name="same"):
            flow_from_dict(data, tasks=[first, second])

    def test_as_text_must_be_a_text(self):
        with refused("argument.type", InvalidInput, name="text"):
            Flow.from_yaml(b"flow: f")  # type: ignore[arg-type]
