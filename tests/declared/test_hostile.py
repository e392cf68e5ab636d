"""Whatever comes as a flow, it is refused with ``InvalidFlow`` or it is a flow; nothing else."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure import Flow, InvalidFlow
from perdure.flows.built import BuiltFlow
from perdure.flows.yaml.parse import FAULTS_MAX
from perdure.flows.yaml.schema import FLOW_KEYS, NODE_KEYS
from perdure.nodes.registry import STRUCTURAL, NodeTypes
from tests.declared.pairs import PAIRS
from tests.declared.tasks import TASKS, child

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


@given(st.text() | YAML_PIECES)
@example("flow: f\nnodes: &n\n  - *n")
@example("a: &a\n  b: *a")
def test_any_text(text):
    check_round_trip(from_yaml(text))


@given(DATA | FLOWS)
@example({"flow": "f", "nodes": [{"id": "a", "type": "route", "ports": None}]})
@example({"flow": "f", "nodes": [{"id": "a", "type": "task", "ports": None}]})
@settings(max_examples=100)
def test_any_data(data):
    check_round_trip(from_dict(data))


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


@given(nearly_right())
@settings(max_examples=100)
def test_any_change_of_a_right_flow(data):
    check_round_trip(from_dict(data))


class TestManyFaults:
    """Of what is wrong everywhere only so much is told, and only so much is looked for."""

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
    def test_come_to_an_end(self, node):
        nodes = [{"id": f"n{at}", **node} for at in range(1_500)]

        with pytest.raises(InvalidFlow) as caught:
            Flow.from_dict({"flow": "f", "nodes": nodes}, tasks=TASKS)

        assert 1 < len(caught.value.errors) <= FAULTS_MAX + 1
