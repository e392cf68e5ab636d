"""Everything that is wrong with a file is told at once, each fault with its line and node."""

from __future__ import annotations

import pickle
import textwrap

import pytest

from perdure import Flow, InvalidFlow, InvalidInput, task
from perdure.flows.yaml.parse import FAULTS_MAX, FlowFault
from perdure.flows.yaml.sources import flow_from_dict
from tests.declared.tasks import TASKS, Translate, child

HEAD = "flow: f\nnodes:\n"


DURATIONS = 'Pass seconds, a timedelta or text such as "30s", "5m" or "1h30m"'


def faults(text: str) -> list[FlowFault]:
    with pytest.raises(InvalidFlow) as caught:
        Flow.from_yaml(textwrap.dedent(text), tasks=TASKS, kinds=[Translate], flows=[child])
    found = [each for each in caught.value.errors if isinstance(each, FlowFault)]
    assert len(found) == len(caught.value.errors)
    return found


def fault(text: str) -> tuple[int, str, str]:
    """The line, node and message of the one fault; lines are counted from the first node."""
    [found] = faults(HEAD + textwrap.indent(textwrap.dedent(text), "  "))
    return found.line - 2, found.node, found.message


class TestTheWhole:
    @pytest.mark.parametrize(
        "text, told",
        [
            ("[]", "a flow is an object with flow: NAME and nodes: [...], not a list"),
            ("x", "a flow is an object with flow: NAME and nodes: [...], not a text"),
            ("flow: f", "it needs 'nodes'"),
            ("nodes: [{id: load, task: load}]", "it needs 'flow'"),
            ("{flow: f, nodes: []}", "it has no nodes"),
            ("{flow: f, nodes: {}}", "it has no nodes"),
            ("{flow: f, nodes: 5}", "nodes must be a list or an object, not a number"),
            ("{flow: f, nodes: [5]}", "a node must be an object, not a number"),
            ("{flow: 5, nodes: [{id: load, task: load}]}", "flow must be a text, not a number"),
            ("{flow: a@b, nodes: [{id: load, task: load}]}", "the name 'a@b' must not contain '@'"),
            (
                "{flow: f, gathers: false, nodes: [{id: a, task: pay}, {id: b, task: pay}]}",
                "gathers: false, but its last nodes may end together; leave it out",
            ),
            (
                "{flow: f, cooldown: 1x, nodes: [{id: load, task: load}]}",
                f"cooldown must be a duration (got '1x'). {DURATIONS}",
            ),
            (
                "{flow: f, on_failure: finsh, nodes: [{id: load, task: load}]}",
                'on_failure is not one of "stop", "finish"; did you mean \'finish\'?',
            ),
            (
                "{flow: f, node: [], nodes: [{id: load, task: load}]}",
                "there is no key 'node'; did you mean 'nodes'?",
            ),
        ],
    )
    def test_of_a_wrong_shape_is_refused(self, text: str, told: str) -> None:
        assert [each.message for each in faults(text)] == [told]

    def test_fault_has_the_file_and_everything_apart(self) -> None:
        [found] = faults("flow: f\nnodes:\n  - {id: a, task: pay, next: b}")

        assert found == "line 3: node 'a': there is no node 'b'; there are a"
        assert (found.line, found.column, found.node) == (3, 24, "a")
        assert found.message == "there is no node 'b'; there are a"

    def test_of_many_faults_only_so_many_are_told(self) -> None:
        nodes = "\n".join(f"  - {{id: n{at}, task: pay, colour: red}}" for at in range(500))

        found = faults(f"flow: f\nnodes:\n{nodes}")

        assert len(found) == FAULTS_MAX + 1
        assert found[-1].message == "and there may be more faults"


class TestNodes:
    @pytest.mark.parametrize(
        "text, told",
        [
            ("- {task: pay}", "this node needs an id"),
            ("- {id: a}", "it needs a task or a kind"),
            ("- {id: a, taks: pay}", "it needs a task or a kind; there is 'taks'"),
            ("- {id: a, kind: task}", "it needs the name of a task: task: NAME"),
            ("- {id: 5, task: pay}", "the id must be a text, not a number"),
            ("- {id: a, kind: [x]}", "kind must be a text, not a list"),
            (
                "- {id: a, task: pay, retries: 3}",
                "there is no key 'retries'; did you mean 'retry'?",
            ),
            ("- {id: a, task: pya}", "there is no task 'pya'; did you mean 'pay'?"),
            (
                "- {id: a, task: pay, undo: takeback}",
                "there is no task 'takeback'; did you mean 'take_back'?",
            ),
            (
                "- {id: a, kind: map, config: {flow: chld}}",
                "there is no flow 'chld'; did you mean 'child'?",
            ),
            (
                "- {id: a, kind: flow, config: {flow: other.yaml}}",
                "'other.yaml' is a file, but this flow is not from a file itself",
            ),
            ("- {id: a, kind: route}", "it needs a config: {key: ...} or {task: ...}"),
            ("- {id: a, kind: route, config: {}}", "its config needs 'key' or 'task'"),
            (
                "- {id: a, kind: map, config: {task: pay, flow: child}}",
                "its config needs 'task' or 'flow', not both",
            ),
            ("- {id: a, kind: loop, config: {task: pay}}", "config needs 'until'"),
            (
                "- {id: a, kind: delay, config: {for: 1h, util: x}}",
                "there is no key 'util' in config; did you mean 'until'?",
            ),
            (
                "- {id: a, kind: signal, timeout: 1h}",
                "a node of kind 'signal' has no 'timeout'; write it into config, as 'timeout'",
            ),
            (
                "- {id: a, kind: approval, timeout: 1h, config: {title: x}}",
                "a node of kind 'approval' has no 'timeout'; write it into config, as 'deadline'",
            ),
            (
                "- {id: a, kind: map, task: pay, config: {task: pay}}",
                "a node of kind 'map' has no 'task'; write it into config, as 'task'",
            ),
            (
                "- {id: a, kind: note, task: pay, config: {text: x}}",
                "a node of kind 'note' has no 'task'",
            ),
            (
                "- {id: a, kind: delay, retry: 3, config: {for: 1h}}",
                "a node of kind 'delay' has no 'retry'",
            ),
            (
                "- {id: a, task: pay, retry: soon}",
                "retry must be a whole number or an object, not a text",
            ),
            (
                "- {id: a, task: pay, retry: {retries: 1, frist: 1s}}",
                "there is no key 'frist' in retry; did you mean 'first'?",
            ),
            ("- {id: a, task: pay, retry: {first: 1s}}", "retry needs 'retries'"),
            (
                "- {id: a, task: pay, retry: {retries: 1, first: 1x}}",
                f"first must be a duration (got '1x'). {DURATIONS}",
            ),
            (
                "- {id: a, task: pay, timeout: 1x}",
                f"timeout must be a duration (got '1x'). {DURATIONS}",
            ),
            (
                "- {id: a, task: pay, timeout: [1]}",
                "timeout must be a text or a number, not a list",
            ),
            ("- {id: a, task: pay, priority: 11}", "priority must be at most 5"),
            ("- {id: a, task: pay, tags: x}", "tags must be a list, not a text"),
            (
                "- {id: a, task: pay, on_missing: skp}",
                'on_missing is not one of "error", "default", "skip"; did you mean \'skip\'?',
            ),
            ("- {id: a, task: pay, config: [1]}", "config must be an object, not a list"),
            (
                "- {id: a, task: pay, inputs: {order: 5}}",
                "inputs.order must be a text or an object, not a number",
            ),
            (
                "- {id: a, task: pay, inputs: {order: {from: input, dfault: 1}}}",
                "there is no key 'dfault' in inputs.order; did you mean 'default'?",
            ),
            (
                "- {id: a, kind: approval, config: {title: x, policy: most}}",
                'config.policy is not one of "any", "all"',
            ),
            (
                "- {id: a, kind: approval, config: {title: x, policy: {at_least: 0}}}",
                "config.policy.at_least must be at least 1",
            ),
            (
                "- {id: a, kind: approval, config: {title: x, escalate: [{after: 1h}]}}",
                "config.escalate.0 needs 'to'",
            ),
            (
                "- {id: a, task: pay, check: {}}",
                "check needs a schema, a condition or both",
            ),
        ],
    )
    def test_of_a_wrong_shape_are_refused_where_they_are(self, text: str, told: str) -> None:
        found = faults(f"flow: f\nnodes:\n  - {{id: first, task: tick}}\n  {text}")

        assert [(each.line, each.message) for each in found] == [(4, told)]

    def test_of_one_id_are_told_with_the_line_of_the_other(self) -> None:
        assert fault("- {id: a, task: pay}\n- {id: b, task: pay}\n- {id: a, task: ask}") == (
            3,
            "a",
            "there is a node of this id already in line 3",
        )

    @pytest.mark.parametrize("id", ["a b", "-a", "", "ä", "a" * 129])
    def test_have_ids_that_can_be_stored(self, id: str) -> None:
        line, _, message = fault(f'- {{id: "{id}", task: pay}}')

        assert line == 1
        assert "cannot be an id; use 1 to 128 letters" in message

    def test_by_id_cannot_be_given_another(self) -> None:
        [found] = faults("{flow: f, nodes: {a: {id: b, task: pay}}}")

        assert (found.node, found.message) == ("a", "the id is 'a' already; leave this one out")

    def test_of_an_unknown_kind_name_the_nearest(self) -> None:
        line, node, message = fault(
            "- {id: a, kind: htp, config: {url: 1}, next: {bad: a2}}\n- {id: a2, task: pay}"
        )

        assert (line, node) == (1, "a")
        assert "did you mean 'http'?" in message

    def test_are_called_as_their_task_can_be(self) -> None:
        two = task(name="two")(lambda a, b: a)

        with pytest.raises(InvalidFlow, match="cannot be called with one value"):
            flow_from_dict({"flow": "f", "nodes": [{"id": "two", "task": "two"}]}, tasks=[two])


class TestEdges:
    @pytest.mark.parametrize(
        "text, told",
        [
            (
                "- {id: a, task: pay, next: bb}\n- {id: b, task: pay}",
                (1, "a", "there is no node 'bb'; did you mean 'b'?"),
            ),
            (
                "- {id: a, task: pay}\n- {id: b, task: pay, after: aa}",
                (2, "b", "there is no node 'aa'; did you mean 'a'?"),
            ),
            (
                "- {id: a, task: pay}\n- {id: b, task: pay, after: 'a:x'}",
                (
                    2,
                    "b",
                    "'a' has no port 'x'; it has none; if its result is to choose that one, "
                    "declare it: ports: [x]",
                ),
            ),
            (
                "- {id: a, kind: delay, config: {for: 1h}, next: {late: b}}\n- {id: b, task: pay}",
                (1, "a", "'a' has no port 'late'; it has none"),
            ),
            (
                "- {id: a, kind: route, config: {key: k}, next: {x: null}}\n"
                "- {id: b, task: pay, after: a}",
                (2, "b", "'a' is a route: say from which port, a:x"),
            ),
            (
                "- {id: a, task: pay, next: b}\n- {id: b, task: pay, after: a}",
                (2, "b", "'b' follows 'a' already, in line 3; say it once"),
            ),
            (
                "- {id: a, task: pay, ports: [x, y], next: {x: b}}\n- {id: b, task: pay}",
                (1, "a", "next says nothing of port 'y'; write y: null to end the branch there"),
            ),
            (
                "- {id: a, kind: check, config: {schema: true}, next: {pass: b}}\n"
                "- {id: b, task: pay}",
                (
                    1,
                    "a",
                    "next says nothing of port 'fail'; write fail: null to end the branch there",
                ),
            ),
            (
                "- {id: a, task: pay, on_error: x}",
                (
                    1,
                    "a",
                    "on_error='x' is a port that nothing follows; add a node with "
                    'after="a:x", or use "fail" or "continue"',
                ),
            ),
            (
                "- {id: a, task: pay, next: [b, c]}\n- {id: b, task: pay, next: d}\n"
                "- {id: c, task: pay, next: d}\n- {id: d, kind: delay, config: {for: 1s}}",
                (
                    4,
                    "d",
                    "takes one value, but more than one of those that it follows may be there; "
                    "put a task before it that gathers them",
                ),
            ),
        ],
    )
    def test_that_lead_nowhere_are_refused(self, text: str, told: tuple[int, str, str]) -> None:
        assert fault(text) == told

    @pytest.mark.parametrize(
        "node, told",
        [
            (
                "{id: a, task: pay, gathers: true}",
                "it joins nothing; name the nodes that it follows",
            ),
            (
                "{id: a, task: pay, gathers: true, inputs: {order: input}}",
                "it takes its inputs by name, so it gathers nothing; leave this out",
            ),
        ],
    )
    def test_that_cannot_be_gathered_are_refused(self, node: str, told: str) -> None:
        assert fault(f"- {node}") == (1, "a", told)

    def test_from_a_misspelt_port_name_the_nearest(self) -> None:
        node = "{id: a, kind: check, config: {schema: true}, next: {pas: b, fail: null}}"

        found = faults(f"{HEAD}  - {node}\n  - {{id: b, task: pay}}")

        assert [each.message for each in found] == [
            "next says nothing of port 'pass'; write pass: null to end the branch there",
            "'a' has no port 'pas'; it has 'pass', 'fail'; did you mean 'pass'?",
        ]

    def test_from_a_port_that_only_a_result_could_choose_tell_how_to_declare_it(self) -> None:
        note = "- {id: a, kind: note, config: {text: x}, next: {alt: b}}\n- {id: b, task: pay}"

        _, _, message = fault(note)

        assert message == (
            "'a' has no port 'alt'; it has none; if its result is to choose that one, declare "
            "it: ports: [alt]"
        )
        Flow.from_yaml(
            HEAD + textwrap.indent(note.replace("next:", "ports: [alt], next:"), "  "), tasks=TASKS
        )

    def test_in_a_circle_are_refused_with_all_lines(self) -> None:
        _, _, message = fault("- {id: a, task: pay, next: b}\n- {id: b, task: pay, next: a}")

        assert message == (
            "a cycle: a → b → a; use a node of kind 'loop' to repeat work "
            "(node 'a' (line 3), node 'b' (line 4))"
        )

    def test_may_end_where_an_option_leads(self) -> None:
        flow = Flow.from_yaml(
            "{flow: f, nodes: [{id: a, task: pay, on_error: x, next: {x: null}},"
            "{id: ok, kind: approval, config: {title: x}, next: {reject: null}, after: a}]}",
            tasks=TASKS,
        )

        assert flow.graph.ends == ["a", "ok"]
        assert Flow.from_yaml(flow.to_yaml(), tasks=[flow]).version == flow.version


class TestInputsAndTemplates:
    @pytest.mark.parametrize(
        "text, line, told",
        [
            (
                "- {id: a, task: pay, next: b}\n"
                "- id: b\n  task: pay\n  inputs:\n    order: aa.output",
                5,
                "did you mean 'a'?",
            ),
            (
                "- {id: a, task: pay}\n- id: b\n  task: pay\n  inputs:\n    order: a.output",
                5,
                "not upstream",
            ),
            (
                "- id: a\n  task: pay\n  inputs: {x: input}\n  config:\n    order: '{{ y.z }}'",
                5,
                "'y' is none of its inputs",
            ),
            ("- id: a\n  kind: note\n  config:\n    text: '{{ 1 + 1 }}'", 4, "is not a template"),
            (
                "- id: a\n  kind: approval\n  config:\n    title: '{{ secret.X }}'",
                4,
                "there are no secrets here",
            ),
            (
                "- id: a\n  kind: signal\n  config:\n"
                "    where: {property: x, op: eq, value: '{{ y }}'}",
                4,
                "declare it",
            ),
            ("- id: a\n  kind: delay\n  config:\n    until: soon", 4, "must be a time"),
            (
                "- id: a\n  kind: http\n  config:\n    url: x\n    timout: 3",
                5,
                "did you mean 'timeout'?",
            ),
            (
                "- id: a\n  kind: approval\n  config:\n    title: x\n    form: {type: txt}",
                5,
                "form",
            ),
            (
                "- id: a\n  kind: approval\n  config:\n    title: x\n    deadline: 1h\n"
                "    reminders: [2h]",
                6,
                "not before the deadline",
            ),
            (
                "- id: a\n  kind: loop\n  config:\n    task: pay\n    until: {property: x, op: lk}",
                5,
                "lk",
            ),
        ],
    )
    def test_that_are_wrong_are_refused_at_their_key(self, text: str, line: int, told: str) -> None:
        found = faults(HEAD + textwrap.indent(text, "  "))

        assert any(told in each.message and each.line - 2 == line for each in found), found

    def test_of_a_broken_input_do_not_make_more_faults(self) -> None:
        found = faults(
            HEAD + "  - {id: a, kind: note, inputs: {x: 5}, config: {text: '{{ x.y }}'}}"
        )

        assert [each.message for each in found] == [
            "inputs.x must be a text or an object, not a number"
        ]


def test_everything_is_told_at_once() -> None:
    found = faults(
        """
        flow: f
        on_failure: halt
        nodes:
          - {id: a, task: pay, next: missing, colour: red}
          - {id: b, kind: htp}
          - {id: c, task: nobody, undo: nobody}
          - {id: d, task: add, inputs: {q: input}, after: a}
          - {id: e, task: pay, next: f}
          - {id: f, task: pay, next: e}
        """
    )

    assert sorted({each.line for each in found}) == [3, 5, 6, 7, 8, 9]


class TestWhatIsGiven:
    @pytest.mark.parametrize("data", [None, 5, "x", [], object()])
    def test_that_is_no_object_is_refused(self, data: object) -> None:
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
    def test_that_is_not_json_is_refused(self, config: object) -> None:
        with pytest.raises(InvalidFlow, match=r"nodes\.0\.config"):
            flow_from_dict({"flow": "f", "nodes": [{"id": "a", "task": "a", "config": config}]})

    def test_that_contains_itself_is_refused(self) -> None:
        data: dict[str, object] = {"flow": "f"}
        data["nodes"] = [data]

        with pytest.raises(InvalidFlow, match="too much"):
            flow_from_dict(data)

    @pytest.mark.parametrize("tasks", [5, "x", ["x"], [lambda x: x], [Flow("f")]])
    def test_as_tasks_must_be_tasks(self, tasks: object) -> None:
        with pytest.raises(InvalidInput, match=r"^tasks"):
            flow_from_dict({"flow": "f", "nodes": []}, tasks=tasks)  # type: ignore[arg-type]

    def test_as_flows_must_be_built(self) -> None:
        with pytest.raises(InvalidInput, match="flows="):
            flow_from_dict({"flow": "f", "nodes": []}, flows=[Flow("x")])  # type: ignore[list-item]

    def test_as_two_tasks_of_one_name_is_refused_where_it_is_used(self) -> None:
        first, second = (task(name="same")(lambda x: x) for _ in range(2))
        data = {"flow": "f", "nodes": [{"id": "a", "task": "same"}]}

        with pytest.raises(InvalidFlow, match="two different tasks"):
            flow_from_dict(data, tasks=[first, second])

    def test_as_text_must_be_a_text(self) -> None:
        with pytest.raises(InvalidInput, match="is a text"):
            Flow.from_yaml(b"flow: f")  # type: ignore[arg-type]


def test_faults_are_data_with_code_place_and_line() -> None:
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

    assert [(each.fault.code, each.fault.where) for each in found] == [
        ("argument.duration", ("nodes", "a", "timeout")),
        ("flow.invalid_node", ("nodes", "b", "task")),
        ("flow.invalid_node", ("nodes", "b", "after")),
    ]
    assert [(each.fault.args["line"], each.fault.args["column"]) for each in found] == [
        (each.line, each.column) for each in found
    ]
    assert all(pickle.loads(pickle.dumps(each)).fault == each.fault for each in found)


def test_no_fault_has_marks_of_the_loader_in_its_data() -> None:
    text = """
        flow: f
        nodes:
          - {id: a, after: b, task: load}
          - {id: b, after: a, task: load}
          - {id: c, after: b, task: pay, priority: 99}
    """

    assert not [each for each in faults(text) if "\\x01" in repr(each.fault)]
