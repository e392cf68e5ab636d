"""What flows write: short, for people, and read back as it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Flow, Retry
from perdure.flows.yaml.dump import dumped
from perdure.flows.yaml.parse import INTEGER_MAX, INTEGER_MIN, read_yaml
from perdure.model import check
from perdure.model.times import duration_text
from tests.declared.tasks import ask, collect, load, pay, take_back, tell

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SCALARS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(INTEGER_MIN, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(
        ["yes", "no", "on", "1e3", "0o17", "0x1", "1:30", "2031-05-17", "~", "", "<<"]
    )
)
DATA: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inside: st.lists(inside) | st.dictionaries(TEXTS, inside), max_leaves=20
)


@given(DATA)
def test_all_data_is_read_back_as_it_was(data):
    found = read_yaml(dumped({"data": data})).data["data"]

    assert found == data
    assert repr(found) == repr(data)  # which tells 1 from 1.0 and from true


@given(st.timedeltas(timedelta(0), timedelta(days=3650)))
def test_durations_are_read_back_as_they_were(duration):
    assert check.span(duration_text(duration), "x") == duration


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0s"), (90, "1m30s"), (3600, "1h"), (0.25, "250ms"), (694_861.5, "8d1h1m1s500ms")],
)
def test_durations_are_written_as_people_do(seconds, text):
    assert duration_text(timedelta(seconds=seconds)) == text


def test_a_flow_is_short_and_in_the_order_of_the_work():
    flow = (
        Flow("ship", on_failure="finish")
        .then(load, retries=Retry(3, first="2s"), timeout="1m")
        .route("kind", {"pay": pay, "no": None}, default=ask)
        .approve(
            "Ship {{ order.id }}?",
            name="ok",
            inputs={"order": "load.output"},
            message="First line.\nSecond line.",
            deadline="1d",
            on_timeout="timeout",
            on_reject="reject",
        )
        .then(tell, undo=take_back)
        .then(collect, after=["ok:reject", "ok:timeout"], gathers=False)
        .build()
    )

    assert (
        flow.to_yaml()
        == """\
flow: ship
on_failure: finish
nodes:
  - id: load
    task: load
    next: route
    retry:
      retries: 3
      first: 2s
    timeout: 1m
  - id: route
    type: route
    config:
      key: kind
    next:
      'no': ok
      pay: pay
      default: ask
  - id: ask
    task: ask
    next: ok
  - id: pay
    task: pay
    next: ok
  - id: ok
    type: approval
    config:
      title: Ship {{ order.id }}?
      message: |-
        First line.
        Second line.
      deadline: 1d
    inputs:
      order: load.output
    next:
      approve: tell
      timeout: collect
      reject: collect
  - id: collect
    task: collect
  - id: tell
    task: tell
    undo: take_back
"""
    )


def test_what_is_written_is_ones_own():
    flow = Flow("f").then(pay, config={"order": {"id": 1}}).build()

    flow.to_dict()["nodes"][0]["config"]["order"]["id"] = 2

    assert flow.to_dict()["nodes"][0]["config"] == {"order": {"id": 1}}


def test_what_is_written_is_always_the_same():
    forwards = Flow("f").node("a", load).node("b", pay, after="a").node("c", ask, after="a")
    backwards = Flow("f").node("c", ask, after="a").node("b", pay, after="a").node("a", load)

    assert forwards.build().to_yaml() == backwards.build().to_yaml()
