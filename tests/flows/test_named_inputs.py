"""Flows with inputs by name, as they run: arguments, templates, ports, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Client, Flow, InvalidInput, RunFailed, Worker, run_flow, task
from perdure.engine.migration import nearest_to
from perdure.flows.built import BuiltFlow
from tests.support.refusal import failing, refused


@task
def load(number: int) -> dict[str, Any]:
    return {"number": number, "lines": ["lamp", "chair"]}


@task
def describe(text: str, count: int = 1) -> str:
    return text * count


@task
def keep(value: Any) -> Any:
    return value


@pytest.mark.parametrize("found_type,expected", [("a", "aa"), ("b", None)])
def test_a_branch_that_was_not_taken_has_no_output(found_type, expected):
    flow = (
        Flow("o")
        .route("kind", {"a": Flow().then(lambda order: "a", name="only-a"), "b": None})
        .then(describe, inputs={"text": "only-a.output"}, config={"text": "{{ text }}", "count": 2})
        .build()
    )

    if expected is None:
        with failing("node.input_missing", RunFailed):
            run_flow(flow, {"kind": found_type})
    else:
        assert run_flow(flow, {"kind": found_type}) == expected


class TestTheInputOfARun:
    def test_is_checked_against_the_arguments_that_are_parts_of_it(self):
        flow = (
            Flow("o").then(describe, inputs={"text": "input.name", "count": "input.count"}).build()
        )
        assert submitted(flow, {"name": "x", "count": 2})
        with refused("task.invalid_argument", InvalidInput, task="describe", name="count"):
            submitted(flow, {"name": "x", "count": "many"})

    def test_has_every_part_that_is_needed_at_the_beginning(self):
        flow = Flow("o").then(describe, inputs={"text": "input.name"}).build()
        with refused("flow.invalid_input", InvalidInput, flow="o"):
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
