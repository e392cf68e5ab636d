"""Conditions and templates as data, such as a flow from a file has them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from perdure.rules.condition import OPERATORS
from proof.strategies.naming import named
from proof.strategies.texts import odd_texts
from proof.strategies.values import json_values

_PROPERTIES = ["a", "a.b", "a.0", "a..b", "", ".", "{{ a }}", "__class__", "a.b.c.d.e"]
_PATTERNS = ["a+", "(a+)+$", "(", "[", "\\", "(?P<x>", "a{1,99999}", "(?i)x", "\\1", "^^^"]
_PIECES = ["{{", "}}", "{{ a }}", "{{ a.b }}", "{{{{", "{{ }}", "{{ a b }}", "{{ a|b }}", "{{a.0}}"]


@named
def any_conditions() -> st.SearchStrategy[Any]:
    comparison: dict[str, st.SearchStrategy[Any]] = {
        "property": st.sampled_from(_PROPERTIES) | odd_texts() | json_values(),
        "op": st.sampled_from([*OPERATORS, "is", "=="]) | json_values(),
    }
    value = st.sampled_from(_PATTERNS) | json_values() | any_templates()
    leaves = st.fixed_dictionaries(comparison, optional={"value": value})
    return st.recursive(
        leaves | json_values(),
        lambda inside: (
            st.lists(inside, max_size=3)
            | st.dictionaries(st.sampled_from(["all", "any", "not", "none"]), inside, max_size=2)
        ),
        max_leaves=6,
    )


@named
def any_templates() -> st.SearchStrategy[str]:
    pieces = st.sampled_from(_PIECES) | odd_texts()
    return st.lists(pieces, min_size=1, max_size=5).map("".join)
