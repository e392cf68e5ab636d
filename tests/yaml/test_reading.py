"""Reading YAML: what scalars mean, where things are, and what is refused before it does harm."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure import Flow, InvalidFlow, load_flow, run_flow
from perdure.diagnostics import Source
from perdure.errors import node_of
from perdure.flows.built import BuiltFlow
from perdure.flows.yaml import parse
from perdure.flows.yaml.parse import (
    FAULTS_MAX,
    VALUES_MAX,
    Mark,
    plain_document,
    read_json,
    read_yaml,
)
from perdure.flows.yaml.schema import FLOW_KEYS, NODE_KEYS
from perdure.nodes.registry import STRUCTURAL, NodeTypes
from tests.support.refusal import refused
from tests.yaml.pairs import PAIRS
from tests.yaml.tasks import TASKS, child, double, load


def codes(text: str) -> list[str]:
    """Of the faults; ``tests/golden`` has those of many more texts, with their places."""
    with pytest.raises(InvalidFlow) as caught:
        read_yaml(text)
    return [fault.code for fault in caught.value.faults]


OTHERWISE = "yes no on off y Yes 1:30 190:20:30 2031-05-17 1_000 0b11 = nul 1.2.3 0x + . -. 1e tRue"


class TestScalars:
    @pytest.mark.parametrize(
        "text, value",
        [
            ("null", None),
            ("~", None),
            ("", None),
            ("true", True),
            ("False", False),
            ("12", 12),
            ("-3", -3),
            ("+3", 3),
            ("0644", 644),
            ("0o17", 15),
            ("0x1F", 31),
            ("1.5", 1.5),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("-1.5E-2", -0.015),
        ],
    )
    def test_are_those_of_yaml_1_2(self, text, value):
        found = read_yaml(f"a: {text}").data["a"]
        assert found == value
        assert type(found) is type(value)

    @pytest.mark.parametrize(
        "text",
        [*OTHERWISE.split(), "2031-05-17 10:00:00"],
    )
    def test_that_yaml_1_1_takes_for_something_else_are_texts(self, text):
        assert read_yaml(f"a: {text}").data == {"a": text}

    @pytest.mark.parametrize("text", ['"12"', "'12'", '"true"', "'~'", "|-\n  12"])
    def test_in_quotes_are_texts(self, text):
        assert read_yaml(f"a: {text}").data["a"] in ("12", "true", "~")

    def test_of_very_many_digits_are_texts(self):
        assert read_yaml(f"a: {'9' * 10_000}").data == {"a": "9" * 10_000}


class TestKeys:
    def test_are_texts_as_they_are_written(self):
        data = read_yaml("{no: 1, on: 2, 404: 3, true: 4, 1.50: 5, 2031-05-17: 6, ~: 7}").data
        assert list(data) == ["no", "on", "404", "true", "1.50", "2031-05-17", "~"]

    def test_may_be_empty_where_that_is_said(self):
        assert read_yaml('{"": 1}').data == {"": 1}


class TestAnchors:
    def test_stand_for_what_they_name(self):
        assert read_yaml("a: &x [1, {b: 2}]\nc: *x").data["c"] == [1, {"b": 2}]

    def test_are_bounded_like_other_values(self):
        """Finding 8: a YAML of 1 MB with 490,000 values took 474 MB."""
        many = ", ".join(["1"] * (VALUES_MAX - 2))
        assert len(read_yaml(f"a: [{many}]").data["a"]) == VALUES_MAX - 2
        assert codes(f"a: [{many}, 1]") == ["yaml.too_many_values"]
        with pytest.raises(InvalidFlow):
            plain_document({"a": [1] * VALUES_MAX})


class TestFiles:
    def test_that_are_too_long_are_not_looked_at(self):
        assert codes("a" * (parse.TEXT_MAX + 1)) == ["yaml.too_long"]

    def test_know_where_everything_is(self):
        text = "flow: x\nnodes:\n  - id: a\n    next:\n      no: b\n      yes: [c,\n        d]\n"
        document = read_yaml(text)
        assert document.mark_of(("nodes", 0)) == Mark(3, 5)
        assert document.mark_of(("nodes", 0, "next", "no")) == Mark(5, 7)
        assert document.mark_of(("nodes", 0, "next", "yes", 1)) == Mark(7, 9)
        assert document.mark_of(("nodes", 0, "next", "maybe")) == Mark(4, 5)
        assert document.mark_of(("nowhere",)) == Mark(1, 1)


class TestJson:
    def test_is_read_with_tabs_and_escapes(self):
        text = '{\n\t"a": "\\ud83d\\ude00 \\\\ud83d\\u00e9\\/",\n\t"b": [1, null, true]\n}'
        document = read_json(text)
        assert document.data == {"a": "😀 \\ud83dé/", "b": [1, None, True]}
        assert document.mark_of(("b",)) == Mark(3, 2)


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def faults_in(file: Path) -> list[tuple[str, int, str, str]]:
    """The file, line, node and code of each fault."""
    with pytest.raises(InvalidFlow) as caught:
        load_flow(file, tasks=TASKS)
    found = [(fault.source or Source(), fault) for fault in caught.value.faults]
    return [
        (Path(source.file).name, source.line, node_of(fault), fault.code) for source, fault in found
    ]


class TestUnreadable:
    def test_files_are_named_with_the_reason(self, tmp_path):
        (tmp_path / "folder.yaml").mkdir()
        (tmp_path / "bytes.yaml").write_bytes(b"flow: \xff\xfe")
        for name, code, args in (
            ("none.yaml", "flow.unreadable", {"reason": "No such file or directory"}),
            ("\0", "flow.unreadable", {"reason": "embedded null byte"}),
            ("folder.yaml", "flow.unreadable", {"reason": "Is a directory"}),
            ("bytes.yaml", "yaml.encoding", {"reason": "invalid start byte", "at": 6}),
        ):
            with refused(code, InvalidFlow, where=(), **args):
                load_flow(tmp_path / name)
            assert faults_in(tmp_path / name) == [(name, 0, "", code)]

    def test_files_say_their_name_in_every_fault(self, tmp_path):
        file = write(tmp_path, "f.yaml", "flow: f\nnodes:\n  - {id: a, task: lod}\n")
        assert faults_in(file) == [("f.yaml", 3, "a", "flow.unknown_task")]
        file = write(tmp_path, "g.yaml", "a: 1\nb: .inf")
        assert faults_in(file) == [("g.yaml", 2, "", "yaml.number")]


class TestChildren:
    def test_can_be_files_next_to_it(self, tmp_path):
        write(tmp_path, "parts/child.yaml", child.to_yaml())
        parent = write(
            tmp_path,
            "parent.yaml",
            """
            flow: parent
            nodes:
              - {id: a, type: flow, config: {flow: parts/child.yaml}, next: b}
              - {id: b, type: loop, config: {flow: parts/child.yaml, until: {task: is_done}}}
            """,
        )
        python = (
            Flow("parent")
            .flow(child, name="a")
            .loop(child, until=TASKS_BY_NAME["is_done"], name="b")
        )

        found = load_flow(parent, tasks=TASKS)

        assert found.version == python.build().version
        assert run_flow(found, 3) == 12

    def test_are_found_next_to_the_file_that_names_them(self, tmp_path):
        write(tmp_path, "a/b/inner.yaml", child.to_yaml())
        write(tmp_path, "a/mid.yml", nested("mid", "b/inner.yaml"))
        top = write(tmp_path, "top.yaml", nested("top", "a/mid.yml"))
        assert load_flow(top, tasks=TASKS).flows.keys() == {
            f"mid@{load_flow(tmp_path / 'a/mid.yml', tasks=TASKS).version}"
        }

    def test_cannot_run_each_other_in_a_circle(self, tmp_path):
        write(tmp_path, "b.yaml", nested("b", "a.yaml"))
        top = write(tmp_path, "a.yaml", nested("a", "b.yaml"))
        with refused("flow.file_cycle", InvalidFlow, chain="a.yaml → b.yaml → a.yaml"):
            load_flow(top)
        assert faults_in(top) == [
            ("a.yaml", 1, "child", "flow.invalid_child"),
            ("b.yaml", 1, "child", "flow.file_cycle"),
        ]

    def test_cannot_be_outside_of_the_folder(self, tmp_path):
        write(tmp_path, "secret.yaml", child.to_yaml())
        outside = write(tmp_path, "in/f.yaml", nested("f", "../secret.yaml"))
        absolute = write(tmp_path, "in/g.yaml", nested("g", str(tmp_path / "secret.yaml")))
        (tmp_path / "in/link.yaml").symlink_to(tmp_path / "secret.yaml")
        linked = write(tmp_path, "in/h.yaml", nested("h", "link.yaml"))
        for file in (outside, absolute, linked):
            assert faults_in(file) == [(file.name, 1, "child", "flow.outside_folder")]

    def test_report_their_own_faults(self, tmp_path):
        write(tmp_path, "inner.yaml", "flow: i\nnodes:\n  - {id: x, task: lod}\n")
        top = write(tmp_path, "top.yaml", nested("top", "inner.yaml"))
        assert faults_in(top) == [
            ("top.yaml", 1, "child", "flow.invalid_child"),
            ("inner.yaml", 3, "x", "flow.unknown_task"),
        ]


TASKS_BY_NAME = {task.name: task for task in TASKS}


def nested(name: str, file: str) -> str:
    return f"{{flow: {name}, nodes: [{{id: child, type: flow, config: {{flow: {file}}}}}]}}"


class TestFormats:
    """Flows in files: of either format, in any order, with other files as their children."""

    def test_yaml_and_json_make_the_same_flow(self, tmp_path):
        built = Flow("f").then(load).then(double, inputs={"number": "load.output.id"}).build()
        yaml = write(tmp_path, "f.yaml", built.to_yaml())
        data = write(tmp_path, "f.json", json.dumps(built.to_dict(), indent="\t"))
        assert load_flow(yaml, tasks=TASKS).version == built.version
        assert load_flow(str(data), tasks=TASKS).version == built.version
        assert run_flow(load_flow(yaml, tasks=TASKS), 21) == 42

    def test_a_byte_order_mark_is_no_part_of_a_file(self, tmp_path):
        file = tmp_path / "f.yaml"
        file.write_bytes(b"\xef\xbb\xbfflow: f\r\nnodes:\r\n  - {id: load, task: load}\r\n")
        assert load_flow(file, tasks=TASKS).name == "f"


NAMES = st.sampled_from(
    ["a", "b", "pay", "load", "child", "default", "approve", "a:b", "x.yaml", ""]
)

TEXTS = (
    NAMES | st.text(max_size=10) | st.sampled_from(["{{ a.b }}", "{{", "a.output", "1h", "fail"])
)

SCALARS: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS

KEYS = TEXTS | st.sampled_from(
    ["title", "task", "flow", "key", "until", "for", "url", "conditions", "value", "from", "where"]
)

DATA: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(KEYS, inside, max_size=4),
    max_leaves=8,
)

Strategies = dict[str, st.SearchStrategy[Any]]

_OPTIONAL: Strategies = {
    **{key: DATA for key in NODE_KEYS if key != "id"},
    "type": st.sampled_from([*STRUCTURAL, *NodeTypes()]) | DATA,
    "task": st.sampled_from([task.name for task in TASKS]) | DATA,
}

_REQUIRED: Strategies = {"id": NAMES | DATA}
NODES = st.fixed_dictionaries(_REQUIRED, optional=_OPTIONAL)
_WHOLE: Strategies = {"flow": NAMES | DATA, "nodes": st.lists(NODES | DATA, max_size=5) | DATA}

FLOWS = st.fixed_dictionaries(
    _WHOLE, optional={key: DATA for key in FLOW_KEYS if key not in _WHOLE}
)

YAML_PIECES = st.lists(
    st.sampled_from(
        ["flow: f\n", "nodes:\n", "  - ", "id: a", "task: pay", "\n", "    ", "&x ", "*x", "{", "}",
         "[", "]", ": ", ", ", "? ", "|\n", ">-\n", "!!int ", "%YAML 1.2\n", "---\n", "...\n", "'",
         '"', "\\", "\t", "#", "<<", "~", "a", "next", "kind: map", "\ufeff", "\x85", "\u2028"]
    ),
    max_size=40,
).map("".join)  # fmt: skip


def from_yaml(text: str) -> BuiltFlow | None:
    with contextlib.suppress(InvalidFlow):
        return Flow.from_yaml(text, tasks=TASKS, flows=[child])
    return None


def from_dict(data: Any) -> BuiltFlow | None:
    with contextlib.suppress(InvalidFlow):
        return Flow.from_dict(data, tasks=TASKS, flows=[child])
    return None


def check_round_trip(flow: BuiltFlow | None) -> None:
    if flow is not None:
        assert Flow.from_yaml(flow.to_yaml(), tasks=[flow]).version == flow.version


@st.composite
def nearly_right(draw: st.DrawFn) -> dict[str, Any]:
    """A right flow with something in it replaced."""
    pair = draw(st.sampled_from([pair for name, pair in PAIRS.items() if "own" not in name]))
    data = pair.python.to_dict()
    node = draw(st.sampled_from(data["nodes"]))
    holder = node
    if isinstance(node.get("config"), dict) and draw(st.booleans()):
        holder = node["config"]
    key = draw(st.sampled_from([*holder, *NODE_KEYS]))
    holder[key] = draw(DATA)
    return data


class TestManyFaults:
    """The number of reported faults is bounded, and so is the search for them."""

    @pytest.mark.parametrize(
        "node",
        [
            {"task": "pay", "next": "nowhere"},
            {"task": "nobody"},
            {"task": "pay", "colour": "red"},
            {"task": "pay", "inputs": {"order": "nowhere.output"}},
            {"task": "pay", "after": "n0:port"},
            {"type": "unknown", "next": "n0"},
            {},
        ],
        ids=str,
    )
    def test_terminate(self, node):
        nodes = [{"id": f"n{at}", **node} for at in range(1_500)]
        with pytest.raises(InvalidFlow) as caught:
            Flow.from_dict({"flow": "f", "nodes": nodes}, tasks=TASKS)
        assert 1 < len(caught.value.errors) <= FAULTS_MAX + 1


class TestHostile:
    """Whatever comes as a flow is refused with ``InvalidFlow``, or it is a flow."""

    @given(st.text() | YAML_PIECES)
    @example("flow: f\nnodes: &n\n  - *n")
    @example("a: &a\n  b: *a")
    def test_any_text(self, text):
        check_round_trip(from_yaml(text))

    @given(DATA | FLOWS)
    @example({"flow": "f", "nodes": [{"id": "a", "type": "route", "ports": None}]})
    @example({"flow": "f", "nodes": [{"id": "a", "type": "task", "ports": None}]})
    @example({"flow": "f", "nodes": [{"id": "a", "inputs": None}]})
    @example({"flow": "f", "nodes": [{"id": "a", "inputs": 5}]})
    @settings(max_examples=100)
    def test_any_data(self, data):
        check_round_trip(from_dict(data))

    @given(nearly_right())
    @settings(max_examples=100)
    def test_any_change_of_a_right_flow(self, data):
        check_round_trip(from_dict(data))
