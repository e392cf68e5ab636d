"""Built flows, driven through the rules: what they give is what one expects."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Flow, task
from perdure.model.run import NodeStatus
from tests.unit.flow_driver import Driven, result_of


@task
def double(number: int) -> int:
    return number * 2


@task
def add_one(number: int) -> int:
    return number + 1


@task
def square(number: int) -> int:
    return number * number


@task
def collect(parts: dict[str, Any]) -> dict[str, Any]:
    return parts


@task
def fail(value: Any) -> Any:
    raise ValueError(f"no {value}")


@task
def name_kind(number: int) -> str:
    return "even" if number % 2 == 0 else "odd"


def show(value: Any) -> Any:
    return {"shown": value}


doubled = Flow("doubled").then(double).build()


def test_a_chain_hands_outputs_on():
    assert result_of(Flow("f").then(double).then(add_one).then(square).build(), 3) == 49


def test_a_fork_gathers_by_branch():
    flow = Flow("f").then(add_one).fork(a=double, b=[square, Flow().then(double, name="d2")])
    built = flow.join(collect).build()

    assert result_of(built, 2) == {"a": 6, "b": 18}


def test_a_fork_at_the_end_gives_an_object_by_node():
    assert result_of(Flow("f").fork(a=double, b=square).build(), 3) == {"double": 6, "square": 9}


def test_an_empty_branch_of_a_fork_hands_on_what_came_before():
    flow = Flow("f").then(add_one).fork(it=None, twice=double).join(collect).build()

    assert result_of(flow, 1) == {"it": 2, "twice": 4}


@pytest.mark.parametrize("number,expected", [(4, 17), (5, 11), (0, 1)])
def test_a_route_takes_one_branch_and_goes_on(number, expected):
    flow = Flow("f").route(name_kind, {"even": square, "odd": double}).then(add_one).build()

    assert result_of(flow, number) == expected


@pytest.mark.parametrize("number,expected", [(4, 16), (5, 5)])
def test_a_route_that_ends_a_flow_gives_the_output_of_the_branch(number, expected):
    flow = Flow("f").route(name_kind, {"even": square, "odd": None}).build()

    assert result_of(flow, number) == expected


def test_a_route_takes_the_default_for_any_other_key():
    flow = Flow("f").route(lambda number: number, {1: double}, default=square).build()

    assert result_of(flow, 1) == 2
    assert result_of(flow, 9) == 81


def test_a_default_may_go_straight_on():
    flow = Flow("f").route(lambda number: number, {1: double, "default": None}).build()

    assert result_of(flow, 9) == 9


def test_a_route_by_a_key_of_its_input():
    shown = Flow().then(show, name="show")
    flow = Flow("f").route("kind", {"a": shown, "b": collect}).build()

    assert result_of(flow, {"kind": "a"}) == {"shown": {"kind": "a"}}
    assert Driven(flow, {"sort": "a"}).failure.message.startswith("key 'kind' not found")


@pytest.mark.parametrize("number,expected", [(2, {"a": 16, "b": 5}), (3, 4)])
def test_a_fork_in_a_route_in_a_fork(number, expected):
    inner = (
        Flow()
        .fork(
            a=[Flow().then(square, name="s1"), square],
            b=Flow().then(double, name="d1").then(add_one),
        )
        .join(collect, name="inner")
    )
    routed = Flow().route(name_kind, {"even": inner, "odd": Flow().then(add_one, name="odd")})
    flow = Flow("f").fork(left=routed, right=double).join(collect).build()

    assert result_of(flow, number) == {"left": expected, "right": number * 2}


def test_a_map_keeps_the_order_of_items():
    flow = Flow("f").fork(a=Flow().map(double, over="lines", concurrency=2), b=collect)
    built = flow.join(show, name="show").build()

    assert result_of(built, {"lines": [3, 1, 2]})["shown"]["a"] == [6, 2, 4]


def test_a_map_of_child_flows():
    assert result_of(Flow("f").map(doubled).build(), [1, 2]) == [2, 4]


def test_a_loop_goes_on_until_it_is_done():
    flow = Flow("f").loop(double, until=lambda number: number > 50).build()

    assert result_of(flow, 3) == 96


def test_a_loop_of_child_flows():
    flow = Flow("f").loop(doubled, until=lambda number: number > 50).then(add_one).build()

    assert result_of(flow, 3) == 97


@task
def is_large(number: int) -> list[int]:
    return [number] if number > 50 else []


@pytest.mark.parametrize("body", [double, doubled])
def test_a_loop_is_done_once_a_task_gives_something_true(body):
    assert result_of(Flow("f").loop(body, until=is_large).build(), 3) == 96


def test_a_loop_leaves_from_the_port_of_its_bound():
    flow = (
        Flow("f")
        .loop(double, until=lambda number: number > 50, max_iterations=2, on_max="slow")
        .node("gave_up", show, after="double:slow")
        .build()
    )

    assert result_of(flow, 1) == {"shown": 4}
    assert result_of(flow, 20) == 80


def test_delays_hand_on_and_signals_bring_their_payload():
    flow = (
        Flow("f")
        .then(double)
        .delay("2h")
        .fork(a=None, b=Flow().wait_for_signal("approval"))
        .join(collect)
        .build()
    )

    assert result_of(flow, 4, signals={"approval": {"by": "me"}}) == {"a": 8, "b": {"by": "me"}}


def test_a_timeout_leads_on_from_its_port():
    flow = (
        Flow("f")
        .wait_for_signal("approval", timeout="1d", on_timeout="late")
        .node("remind", show, after="approval:late")
        .then(collect, after={"yes": "approval", "no": "remind"})
        .build()
    )

    assert result_of(flow, 1) == {"no": {"shown": None}}
    assert result_of(flow, 1, signals={"approval": "ok"}) == {"yes": "ok"}


def test_a_port_that_is_followed_does_not_hide_the_result_of_the_other():
    flow = (
        Flow("f")
        .wait_for_signal("approval", timeout="1d", on_timeout="late")
        .node("remind", show, after="approval:late")
        .build()
    )

    assert result_of(flow, 1, signals={"approval": "ok"}) == "ok"
    assert result_of(flow, 1) == {"shown": None}


def test_an_error_leads_on_from_its_port():
    flow = (
        Flow("f")
        .then(fail, on_error="declined")
        .node("mend", lambda error: error["message"], after="fail:declined")
        .then(show, name="show", after=["fail", "mend"], gathers=False)
        .build()
    )

    assert result_of(flow, 7) == {"shown": "no 7"}


def test_a_child_flow_gives_its_result():
    assert result_of(Flow("f").flow(doubled).then(add_one).build(), 4) == 9


def test_a_graph_of_named_predecessors():
    flow = (
        Flow("f")
        .node("e", collect, after={"left": "b", "right": "d"})
        .node("d", collect, after=["b", "c"])
        .node("c", square, after="a")
        .node("b", double, after="a")
        .node("a", add_one)
        .build()
    )

    assert result_of(flow, 2) == {"left": 6, "right": {"b": 6, "c": 9}}


def test_several_starts_all_get_the_input():
    flow = Flow("f").node("a", double).node("b", square).then(collect, after=["a", "b"]).build()

    assert result_of(flow, 3) == {"a": 6, "b": 9}


def test_a_skipped_branch_is_left_out_of_what_a_join_gets():
    flow = (
        Flow("f")
        .route(name_kind, {"even": None, "odd": None})
        .node("x", double, after="route:even")
        .node("y", square, after="route:odd")
        .node("z", collect, after=["x", "y"])
        .build()
    )
    run = Driven(flow, 3)

    assert run.result == {"y": 9}
    assert run.state.nodes["x"].status is NodeStatus.SKIPPED
    assert run.calls == ["route", "y", "z"]


def test_a_task_without_parameters_is_called_with_nothing():
    flow = Flow("f").then(lambda: 7, name="seven").then(double).build()

    assert result_of(flow, {"ignored": True}) == 14


def test_completed_nodes_are_undone_when_the_run_fails():
    undone: list[int] = []
    flow = Flow("f").then(double, undo=undone.append).then(fail).build()

    run = Driven(flow, 4)

    assert run.failure.message == "no 8"
    assert undone == [8]
