"""Flows with inputs by name, as they run: arguments, templates, ports, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Client, Flow, InvalidInput, RunFailed, Worker, run_flow, task
from perdure.engine.migration import nearest_to
from perdure.flows.built import BuiltFlow


@task
def load(number: int) -> dict[str, Any]:
    return {"number": number, "lines": ["lamp", "chair"]}


@task
def describe(text: str, count: int = 1) -> str:
    return text * count


@task
def keep(value: Any) -> Any:
    return value


def test_arguments_come_from_wherever_is_named():
    flow = (
        Flow("o")
        .then(load)
        .then(keep)
        .then(describe, inputs={"text": "load.output.lines.0", "count": "input"})
        .build()
    )

    assert run_flow(flow, 2) == "lamplamp"


def test_a_config_is_filled_in_once():
    """What is filled in is not read as a template again."""
    flow = (
        Flow("o")
        .then(keep)
        .then(
            describe,
            inputs={"text": "keep.output"},
            config={"text": "{{ text }} of {{ run.flow }} at {{ node.id }}: {{ input }}"},
        )
        .build()
    )

    assert run_flow(flow, "{{ secret.KEY }}") == (
        "{{ secret.KEY }} of o at describe: {{ secret.KEY }}"
    )


@pytest.mark.parametrize("found_type,expected", [("a", "aa"), ("b", None)])
def test_a_branch_that_was_not_taken_has_no_output(found_type, expected):
    flow = (
        Flow("o")
        .route("kind", {"a": Flow().then(lambda order: "a", name="only-a"), "b": None})
        .then(describe, inputs={"text": "only-a.output"}, config={"text": "{{ text }}", "count": 2})
        .build()
    )

    if expected is None:
        with pytest.raises(RunFailed, match="input 'text' is missing: node 'only-a' has no output"):
            run_flow(flow, {"kind": found_type})
    else:
        assert run_flow(flow, {"kind": found_type}) == expected


def test_a_default_stands_in_for_what_is_missing():
    inputs = {"text": {"from": "load.output.name", "default": "none"}}
    flow = Flow("o").then(load).then(describe, inputs=inputs, on_missing="default").build()
    assert run_flow(flow, 1) == "none"


def test_a_node_that_lacks_an_input_may_be_skipped():
    flow = (
        Flow("o")
        .then(load)
        .then(describe, inputs={"text": "load.output.name"}, on_missing="skip")
        .then(keep, after="load", inputs={"value": "load.output.number"})
        .build()
    )

    assert run_flow(flow, 7) == {"keep": 7}


def test_several_that_are_there_together_may_be_followed():
    flow = (
        Flow("o")
        .fork(a=Flow().then(keep, name="a"), b=Flow().then(keep, name="b"))
        .loop(
            keep,
            until={"property": "one", "op": "exists"},
            after=["a", "b"],
            inputs={"one": "a.output", "other": "b.output.x"},
        )
        .build()
    )

    assert run_flow(flow, {"x": 1}) == {"one": {"x": 1}, "other": 1}


def test_a_map_and_a_loop_take_named_inputs():
    flow = (
        Flow("o")
        .then(load)
        .then(keep)
        .map(describe, over="lines", inputs={"lines": "load.output.lines"})
        .loop(
            lambda state: {**state, "rounds": state.get("rounds", 0) + 1},
            name="count",
            until={"property": "rounds", "op": "ge", "value": 3},
            inputs={"lines": "describe.output"},
        )
        .build()
    )

    assert run_flow(flow, 1) == {"lines": ["lamp", "chair"], "rounds": 3}


def test_a_signal_is_for_whom_its_condition_names():
    where = {"property": "number", "op": "eq", "value": "{{ input.number }}"}
    flow = Flow("o").wait_for_signal("paid", where=where).build()
    payloads = [{"number": 1}, {"number": 2, "by": "Ada"}]
    assert run_flow(flow, {"number": 2}, signals={"paid": payloads}) == payloads[1]


def test_a_delay_until_a_time_hands_on_what_it_got():
    flow = Flow("o").then(keep).delay(until="{{ input.due_at }}").build()
    order = {"due_at": "2020-01-01T00:00:00+00:00"}
    assert run_flow(flow, order) == order


class TestTheInputOfARun:
    def test_is_checked_against_the_arguments_that_are_parts_of_it(self):
        flow = (
            Flow("o").then(describe, inputs={"text": "input.name", "count": "input.count"}).build()
        )
        assert submitted(flow, {"name": "x", "count": 2})
        with pytest.raises(InvalidInput, match="argument 'count' of task 'describe'"):
            submitted(flow, {"name": "x", "count": "many"})

    def test_has_every_part_that_is_needed_at_the_beginning(self):
        flow = Flow("o").then(describe, inputs={"text": "input.name"}).build()
        with pytest.raises(InvalidInput, match="its input 'text' is missing: there is no 'name'"):
            submitted(flow, {})

    def test_is_left_to_the_worker_where_a_template_takes_it(self):
        assert submitted(Flow("o").then(describe, config={"text": "{{ input.name }}"}).build(), 7)


def submitted(flow: BuiltFlow, input: Any) -> str:
    with Client("memory://") as client:
        return client.submit(flow, input).id


def test_versions_with_configs_and_forms_can_be_compared():
    def flow(text: str) -> BuiltFlow:
        form: Any = {"kind": "object", "properties": {}}
        built = Flow("o").then(describe, config={"text": text}).approve("Go?", form=form)
        return built.then(keep).build()

    other, same = flow("b").graph, flow("a").graph
    assert nearest_to(flow("a").graph, [other, same]) is same


def test_a_loop_with_a_long_condition_is_checked_by_a_job(tmp_path):
    """Finding 4: the condition was evaluated on the event loop of the worker."""

    @task
    def grow(value: Any) -> Any:
        return {"list": [*value["list"], 7]}

    until = {"property": "list", "op": "contains", "value": 7}
    flow = Flow("long").loop(grow, until=until, max_iterations=2).build()
    url = f"sqlite:///{tmp_path}/work.db"
    worker = Worker(url, flows=[flow]).start()
    try:
        with Client(url) as client:
            for size, checks in ((10, 0), (100_000, 1)):
                run = client.submit(flow, {"list": [1] * size})
                assert len(run.result(timeout=30)["list"]) == size + 1
                types = [event.type for event in run.events()]
                assert types.count("iteration_completed") == checks
    finally:
        worker.shutdown()
        worker.join()
