"""Flows as they may come from a file or a network: as data, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from perdure.client.declared.format import FLOW_KEYS, NODE_KEYS
from perdure.nodes.registry import STRUCTURAL, Kinds
from proof.strategies.conditions import any_conditions, any_templates
from proof.strategies.forms import any_forms
from proof.strategies.texts import odd_texts
from proof.strategies.times import any_durations
from proof.strategies.values import json_values

Fields = dict[str, st.SearchStrategy[Any]]

_PIECES = [
    "flow: f\n", "nodes:\n", "  - ", "id: a", "task: echo", "\n", "    ", "&x ", "*x", "{", "}",
    "[", "]", ": ", ", ", "? ", "|\n", ">-\n", "!!int ", "!!python/object:os.system ",
    "%YAML 1.2\n", "---\n", "...\n", "'", '"', "\\", "\t", "#", "<<", "~", "a", "next", "kind: map",
    "\ufeff", "\x85", "\u2028", "\x00", "0o7", ".inf", "2030-01-01", "yes",
]  # fmt: skip


def any_flows(tasks: Sequence[str] = ("echo",)) -> st.SearchStrategy[Any]:
    """Flows as data, of nodes that name these tasks; seldom right, often nearly so."""
    return st.one_of(_small(tasks), _small(tasks), _wild(tasks), json_values())


def flow_texts(tasks: Sequence[str] = ("echo",)) -> st.SearchStrategy[str]:
    """YAML: of flows as data, of pieces of it, and of anything."""
    dumped = any_flows(tasks).map(_as_yaml)
    pieces = st.lists(st.sampled_from(_PIECES), max_size=40).map("".join)
    return pieces | odd_texts() | dumped


def _as_yaml(data: Any) -> str:
    import yaml

    try:
        return str(yaml.safe_dump(data, allow_unicode=True))
    except yaml.YAMLError:  # of types that YAML has not: as somebody's program may print them
        return repr(data)


def _small(tasks: Sequence[str]) -> st.SearchStrategy[Any]:
    """Steps that follow each other, most of them as they should be."""
    ids = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)

    def steps(chosen: list[str]) -> st.SearchStrategy[Any]:
        right = st.tuples(*(_step(id, tasks) for id in chosen))
        one_odd = st.tuples(_odd_step(chosen[0], tasks), *(_step(id, tasks) for id in chosen[1:]))
        names = st.sampled_from(["f", "g"])
        return st.fixed_dictionaries(
            {"flow": names | names | odd_texts(), "nodes": (right | one_odd).map(list)}
        )

    return ids.flatmap(steps)


def _step(id: str, tasks: Sequence[str]) -> st.SearchStrategy[Any]:
    seconds = st.sampled_from(["1s", "1h"])
    kinds: Fields = {
        "signal": st.just({"name": "go", "timeout": "1h", "on_timeout": "continue"}),
        "approval": st.just({"title": "ok?", "deadline": "1h", "on_timeout": "continue"}),
        "delay": st.fixed_dictionaries({"for": seconds}),
        "note": st.fixed_dictionaries({"text": st.text(st.characters(codec="utf-8"))}),
    }
    call = st.fixed_dictionaries({"id": st.just(id), "task": st.sampled_from(list(tasks))})
    others = [
        st.fixed_dictionaries({"id": st.just(id), "kind": st.just(kind), "config": config})
        for kind, config in kinds.items()
    ]
    return st.one_of(call, call, *others)


def _odd_step(id: str, tasks: Sequence[str]) -> st.SearchStrategy[Any]:
    call = st.sampled_from(list(tasks))
    return st.one_of(
        st.fixed_dictionaries(
            {"id": st.just(id), "task": call},
            optional={
                "inputs": st.dictionaries(st.sampled_from("xyz"), any_templates(), max_size=2),
                "input_schema": any_forms(),
                "output_schema": any_forms(),
                "check": st.fixed_dictionaries({"conditions": any_conditions()}),
            },
        ),
        st.fixed_dictionaries(
            {
                "id": st.just(id),
                "kind": st.just("signal"),
                "config": st.fixed_dictionaries(
                    {"name": st.just("go") | odd_texts()},
                    optional={"where": any_conditions(), "timeout": any_durations()},
                ),
            }
        ),
        st.fixed_dictionaries(
            {
                "id": st.just(id),
                "kind": st.just("approval"),
                "config": st.fixed_dictionaries(
                    {"title": any_templates()},
                    optional={"form": any_forms(), "deadline": any_durations()},
                ),
            }
        ),
        st.fixed_dictionaries(
            {
                "id": st.just(id),
                "kind": st.sampled_from(["match", "switch", "check", "note", "delay"]),
                "config": any_conditions() | st.fixed_dictionaries({"for": any_durations()}),
            }
        ),
    )


def _wild(tasks: Sequence[str]) -> st.SearchStrategy[Any]:
    data = json_values() | odd_texts() | any_templates()
    names = st.sampled_from([*"abc", "default", "a:b", ""]) | odd_texts()
    fields: Fields = {key: data for key in NODE_KEYS if key != "id"}
    fields["kind"] = st.sampled_from([*STRUCTURAL, *Kinds()]) | data
    fields["task"] = st.sampled_from(list(tasks)) | data
    node = st.fixed_dictionaries({"id": names | data}, optional=fields)
    whole: Fields = {"flow": names | data, "nodes": st.lists(node | data, max_size=5) | data}
    rest: Fields = {key: data for key in FLOW_KEYS if key not in whole}
    return st.fixed_dictionaries(whole, optional=rest)
