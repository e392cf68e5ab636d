"""What the builder refuses: all at once, each fault with node and place."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from perdure import Concurrency, Flow, task
from perdure.errors import InvalidFlow, InvalidInput
from perdure.flows.built import BuiltFlow
from perdure.flows.check import INVALID_NODE
from tests.unit.flow_samples import charge, decide, fetch


@task(limits=[Concurrency(1, key=lambda order: order["customer"])])
def limited(order: Any) -> Any:
    return order


@task
def needs_two(one: Any, other: Any) -> Any:
    return one, other


child = Flow("child").then(fetch).build()
anything: Any = object()
UNUSABLE: Any = {"retries": -1, "timeout": "blah", "priority": 9, "tags": 3, "queue": ""}


def faults(flow: Flow) -> list[str]:
    with pytest.raises(InvalidFlow) as caught:
        flow.build()
    assert caught.value.flow == ("unnamed" if flow.name is None else flow.name)
    return list(caught.value.errors)


def only_fault(flow: Flow) -> str:
    [fault] = faults(flow)
    return fault


def test_all_faults_are_told_at_once() -> None:
    flow = (
        Flow("orders")
        .then(lambda order: order)
        .then(charge)
        .then(charge)
        .node("late", fetch, after="chrge")
        .map(decide, concurrency=0)
        .loop(fetch, until="done", max_iterations=0)
    )

    assert faults(flow) == [
        ".then number 1: a lambda has no name of its own; give the node one: name=...",
        "node 'charge' (.then number 3): there is a node of this id already (.then number 2); "
        "give one of them another name=...",
        "node 'decide' (.map number 1): concurrency=0 must be at least 1",
        "node 'fetch' (.loop number 1): max_iterations=0 must be at least 1",
        "node 'late' (.node number 1): follows 'chrge', which is unknown; "
        "did you mean 'charge' or 'charge-2'? "
        "Known: 'unnamed', 'charge', 'charge-2', 'decide', 'fetch'",
    ]


def test_the_error_is_one_of_input_and_lists_every_fault() -> None:
    with pytest.raises(InvalidInput, match=r"flow 'orders' cannot be built:\n  - .*\n  - "):
        Flow("orders").then(lambda a: a).then(lambda b: b).build()


class TestNames:
    def test_a_plain_function_needs_one(self) -> None:
        def plain(order: Any) -> Any:
            return order

        fault = only_fault(Flow("orders").then(plain))
        assert fault.startswith(".then number 1: <function")
        assert "decorate it with @task, or give name=..." in fault

    def test_a_lambda_in_a_branch_says_where_it_is(self) -> None:
        branch: Any = [fetch, lambda order: order]
        flow = Flow("orders").fork(a=branch, b=charge)

        assert only_fault(flow).startswith(".fork number 1, branch 'a', item 2: a lambda")

    def test_are_told_with_both_places_if_used_twice(self) -> None:
        flow = Flow("orders").fork(a=fetch, b=Flow().then(charge).then(fetch))

        assert only_fault(flow) == (
            "node 'fetch' (.fork number 1, branch 'b', .then number 2): there is a node of this "
            "id already (.fork number 1, branch 'a'); give one of them another name=..."
        )

    @pytest.mark.parametrize("name", ["", "a b", "-a", ".a", "a:b", "a#1", "a[0]", "ä", "x" * 129])
    def test_of_nodes_must_be_usable(self, name: str) -> None:
        assert "cannot be an id" in only_fault(Flow("orders").then(fetch, name=name))

    @pytest.mark.parametrize("name", ["a", "_a", "9", "a.b-c_d", "x" * 128])
    def test_of_nodes_may_be_these(self, name: str) -> None:
        assert list(Flow("orders").then(fetch, name=name).build().graph.nodes) == [name]

    def test_of_nodes_must_be_texts(self) -> None:
        name: Any = 7
        assert "name=7 must be a text" in only_fault(Flow("orders").then(fetch, name=name))

    def test_of_tasks_that_cannot_be_ids_need_another(self) -> None:
        spaced = task(name="two words")(lambda order: order)

        assert "give it with name=..." in only_fault(Flow("orders").then(spaced))
        assert Flow("orders").then(spaced, name="two-words").build().name == "orders"

    @pytest.mark.parametrize("name", [None, "", "a@b", "x" * 201])
    def test_of_flows_must_be_usable(self, name: str | None) -> None:
        assert only_fault(Flow(name).then(fetch)).startswith("the flow: ")

    def test_too_long_together_are_refused(self) -> None:
        flow = Flow("f" * 150).then(lambda order: order, name="n" * 100)

        assert "must be a non-empty string of at most 200 characters" in only_fault(flow)

    def test_of_different_tasks_must_differ(self) -> None:
        other = task(name="fetch")(lambda order: order)
        flow = Flow("orders").then(fetch).then(other, name="again")

        assert "another task is also named 'fetch' (node 'fetch'" in only_fault(flow)


class TestTasks:
    def test_with_limits_computed_from_the_input_are_refused(self) -> None:
        fault = only_fault(Flow("orders").then(limited))

        assert "node 'limited' (.then number 1)" in fault
        assert "key is computed from the input" in fault

    def test_with_such_limits_are_refused_wherever_they_are_called(self) -> None:
        flow = (
            Flow("orders")
            .then(fetch, undo=limited)
            .map(limited)
            .loop(decide, until=limited)
            .route(limited, {"a": None})
        )

        assert len([each for each in faults(flow) if "computed from the input" in each]) == 4

    def test_must_be_callable_with_one_value(self) -> None:
        fault = only_fault(Flow("orders").then(needs_two))

        assert "cannot be called with one value" in fault

    def test_must_have_parameters_that_can_be_told(self) -> None:
        assert "Wrap it in a function" in only_fault(Flow("orders").then(dict, name="as_dict"))

    @pytest.mark.parametrize("body", [None, 7, "fetch"])
    def test_must_be_tasks(self, body: Any) -> None:
        flow = Flow("orders").then(body, name="x")

        assert "is neither a task nor a function" in only_fault(flow)

    @pytest.mark.parametrize(
        "options",
        [
            {"retries": -1},
            {"timeout": "soon"},
            {"timeout": 0},
            {"priority": 99},
            {"queue": ""},
            {"tags": "gpu"},
            {"on_error": ""},
            {"on_error": None},
            {"undo": 7},
            {"retrys": 3},
        ],
    )
    def test_are_called_with_usable_options(self, options: dict[str, Any]) -> None:
        assert "node 'fetch' (.then number 1)" in only_fault(Flow("orders").then(fetch, **options))

    @pytest.mark.parametrize("add", [Flow.then, Flow.map, Flow.join])
    def test_are_told_of_every_option_that_is_not_usable(self, add: Any) -> None:
        flow = Flow("orders").fork(a=charge, b=decide)
        told = faults(add(flow, fetch, **UNUSABLE, undo=limited, on_error=""))

        wanted = (
            "queue",
            "priority",
            "tags",
            "retries must be between",
            "timeout",
            "undo=",
            "on_error",
        )
        for option in wanted:
            [fault] = [each for each in told if option in each.partition(")")[2]]
            assert fault.startswith("node 'fetch' (.")

    def test_are_told_of_every_option_of_what_decides(self) -> None:
        flow = (
            Flow("orders")
            .loop(fetch, until=needs_two, max_iterations=0, on_max="", **UNUSABLE)
            .route(limited, {"a": None}, **UNUSABLE)
        )

        told = faults(flow)

        assert len([each for each in told if "node 'fetch' (.loop number 1)" in each]) == 8
        assert len([each for each in told if "node 'route' (.route number 1)" in each]) == 6

    @pytest.mark.parametrize("body", [limited, needs_two, None])
    def test_that_cannot_be_called_hide_no_option(self, body: Any) -> None:
        assert len(faults(Flow("orders").then(body, name="x", **UNUSABLE))) == 6

    def test_are_told_of_every_option_that_there_is_not(self) -> None:
        options: Any = {"retrys": 3, "undoing": fetch}
        told = faults(Flow("orders").then(fetch, **options).route("kind", {"a": None}, **options))

        assert [("retrys" in each, "undoing" in each) for each in told] == [
            (True, False),
            (False, True),
        ] * 2


class TestForks:
    def test_must_be_joined_before_anything_follows(self) -> None:
        flow = Flow("orders").fork(a=fetch, b=charge).then(decide)

        assert only_fault(flow) == (
            "node 'decide' (.then number 1): follows a fork (.fork number 1) that is not joined; "
            "join it first with .join(task), or attach this to one node with after=..."
        )

    def test_must_be_joined_before_they_divide_again(self) -> None:
        flow = Flow("orders").fork(a=fetch).fork(b=charge)

        assert ".fork number 2: follows a fork (.fork number 1)" in only_fault(flow)

    def test_must_be_joined_inside_the_branch_of_a_route_that_goes_on(self) -> None:
        inner = Flow().fork(a=fetch, b=charge)
        flow = Flow("orders").route("kind", {"x": inner}).then(decide)

        assert "follows a fork (.route number 1, branch 'x', .fork number 1)" in only_fault(flow)

    def test_must_be_joined_inside_the_branch_of_a_fork(self) -> None:
        flow = Flow("orders").fork(a=Flow().fork(b=fetch, c=charge)).join(decide)

        assert "branch 'a' ends in a fork" in only_fault(flow)

    def test_need_branches(self) -> None:
        assert "needs at least one branch" in faults(Flow("orders").then(fetch).fork())[0]

    @pytest.mark.parametrize("branch", [[], Flow(), 7, "fetch", {"a": 1}])
    def test_need_branches_with_something_in_them(self, branch: Any) -> None:
        flow = Flow("orders").then(fetch).fork({"a": branch, "b": charge})

        assert only_fault(flow).startswith(".fork number 1, branch 'a': ")

    def test_have_nothing_to_hand_on_at_the_start(self) -> None:
        assert "nothing comes before the fork" in only_fault(Flow("o").fork(a=None, b=fetch))

    def test_cannot_hand_a_value_on_to_nobody(self) -> None:
        flow = Flow("orders").then(fetch).fork(a=None, b=charge)

        assert only_fault(flow) == (
            ".fork number 1, branch 'a': nothing joins the fork and takes its value"
        )


class TestJoins:
    def test_of_nothing_are_refused(self) -> None:
        assert only_fault(Flow("orders").then(fetch).join(decide)) == (
            "node 'decide' (.join number 1): it joins nothing: a .join(...) follows a .fork(...)"
        )

    @pytest.mark.parametrize("after", [[], {}, ()])
    def test_of_no_names_are_refused(self, after: Any) -> None:
        flow = Flow("orders").then(fetch).then(decide, after=after)

        assert "joins nothing" in only_fault(flow)

    def test_take_a_task(self) -> None:
        body: Any = child
        flow = Flow("orders").fork(a=fetch, b=charge).join(body)

        assert "a child flow cannot join" in faults(flow)[0]

    def test_are_needed_where_a_node_takes_one_value(self) -> None:
        flow = Flow("orders").fork(a=fetch, b=charge).delay("1s", after=["fetch", "charge"])

        assert "takes one value, but more than one" in only_fault(flow)

    def test_name_what_they_gather_by_id(self) -> None:
        after: Any = [fetch]
        flow = Flow("orders").then(fetch).then(decide, after=after)

        assert "must name nodes by their ids" in only_fault(flow)

    def test_name_each_once(self) -> None:
        flow = Flow("orders").then(fetch).then(decide, after=["fetch", "fetch"])

        assert "follows 'fetch' 2 times alike" in only_fault(flow)


class TestRoutes:
    def test_need_a_branch_for_every_declared_key(self) -> None:
        flow = Flow("orders").route("kind", {"pay": charge}, keys=["pay", "reject", True])

        assert faults(flow) == [
            "node 'route' (.route number 1): no branch for the declared key 'reject', and no "
            "default=",
            "node 'route' (.route number 1): no branch for the declared key 'true', and no "
            "default=",
        ]

    def test_declare_keys_in_a_list(self) -> None:
        keys: Any = "pay"
        flow = Flow("orders").route("kind", {"pay": charge}, keys=keys)

        assert only_fault(flow).endswith("keys must be a list of keys (got 'pay')")

    def test_may_leave_declared_keys_to_the_default(self) -> None:
        flow = Flow("o").route("kind", {"pay": charge}, default=fetch, keys=["pay", "reject"])

        assert flow.build().name == "o"

    def test_have_no_branch_for_a_key_that_is_not_declared(self) -> None:
        flow = Flow("orders").route("kind", {"pay": charge, "rejct": fetch}, keys=["pay", "reject"])

        assert "branch 'rejct' is for no declared key; did you mean 'reject'?" in faults(flow)[1]

    def test_need_branches(self) -> None:
        assert "needs at least one branch" in only_fault(Flow("orders").route("kind", {}))

    @pytest.mark.parametrize("branches", [{1.5: charge}, {None: charge}, {1: charge, "1": fetch}])
    def test_need_keys_that_tell_branches_apart(self, branches: Any) -> None:
        assert "key" in faults(Flow("orders").route("kind", branches))[0]

    def test_have_one_default(self) -> None:
        flow = Flow("orders").route("kind", {"default": charge}, default=fetch)

        assert "are the same" in only_fault(flow)

    def test_cannot_go_on_without_a_key(self) -> None:
        flow = Flow("orders").route("kind", {"pay": charge}, on_error="continue")

        assert "no branch to go on with" in only_fault(flow)

    def test_have_to_be_left_from_a_port(self) -> None:
        flow = Flow("o").route("kind", {"pay": None, "no": None}).node("x", fetch, after="route")

        assert "has to say from which port: 'route:no', 'route:pay'" in only_fault(flow)

    def test_do_not_take_an_undo(self) -> None:
        options: Any = {"undo": fetch}
        flow = Flow("orders").route("kind", {"pay": charge}, **options)

        assert "unknown option 'undo'" in only_fault(flow)


class TestOtherKinds:
    def test_delays_need_a_duration(self) -> None:
        assert "node 'delay' (.delay number 1): " in only_fault(Flow("orders").delay("soon"))

    @pytest.mark.parametrize(
        "options", [{"timeout": 0}, {"timeout": "x"}, {"on_timeout": "late"}, {"name": 3}]
    )
    def test_waits_need_usable_options(self, options: dict[str, Any]) -> None:
        assert ".wait_for_signal number 1" in faults(Flow("o").wait_for_signal("go", **options))[0]

    @pytest.mark.parametrize("signal", ["", None, 7])
    def test_waits_need_a_signal(self, signal: Any) -> None:
        assert "signal" in only_fault(Flow("orders").wait_for_signal(signal))

    @pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, "2"])
    def test_maps_need_a_usable_concurrency(self, concurrency: Any) -> None:
        fault = only_fault(Flow("orders").map(fetch, concurrency=concurrency))

        assert "node 'fetch' (.map number 1): concurrency" in fault

    @pytest.mark.parametrize("over", ["", 7])
    def test_maps_need_a_usable_key(self, over: Any) -> None:
        assert "over" in only_fault(Flow("orders").map(fetch, over=over))

    @pytest.mark.parametrize("most", [0, -1, 1.5, None, "2", True])
    def test_loops_need_a_usable_bound(self, most: Any) -> None:
        fault = only_fault(Flow("orders").loop(fetch, until="done", max_iterations=most))

        assert "node 'fetch' (.loop number 1): max_iterations" in fault

    def test_loops_need_an_end(self) -> None:
        until: Any = None

        assert "until=: None is neither" in only_fault(Flow("orders").loop(fetch, until=until))

    @pytest.mark.parametrize("flow", [Flow("o").then(fetch), fetch, None])
    def test_child_flows_must_be_built(self, flow: Any) -> None:
        assert "is no flow that was built" in only_fault(Flow("orders").then(charge).flow(flow))

    def test_bodies_that_are_flows_must_be_built(self) -> None:
        body: Any = Flow().then(fetch)

        assert "once it is built" in faults(Flow("orders").map(body))[0]

    def test_child_flows_have_their_own_settings(self) -> None:
        assert "retries= is for tasks" in only_fault(Flow("orders").map(child, retries=3))

    def test_child_flows_do_not_gather(self) -> None:
        flow = Flow("orders").fork(a=fetch, b=charge).node("c", child, after=["fetch", "charge"])

        assert "takes one value" in only_fault(flow)

    @pytest.mark.parametrize("options", [{"on_error": "x"}, {"on_max": "x"}])
    def test_ports_must_be_followed(self, options: dict[str, Any]) -> None:
        [option] = options
        fault = only_fault(Flow("orders").loop(fetch, until="done", **options))

        assert f"{option}='x' is a port that nothing follows" in fault
        assert 'after="fetch:x"' in fault


class TestFlows:
    def test_without_nodes_are_refused(self) -> None:
        assert only_fault(Flow("orders")).startswith("it has no nodes")

    def test_with_a_cycle_are_refused(self) -> None:
        flow = Flow("orders").node("a", fetch, after="b").node("b", charge, after="a")

        assert "a cycle: a → b → a" in only_fault(flow)

    def test_cannot_be_part_of_themselves(self) -> None:
        flow = Flow("orders").then(fetch)
        flow.fork(a=flow, b=charge)

        assert "a flow cannot be a part of itself" in only_fault(flow)

    def test_cannot_be_nested_without_end(self) -> None:
        flow = Flow().then(fetch)
        for _ in range(60):
            flow = Flow("orders").then(flow)

        assert "nested more than 50 deep" in faults(flow)[0]

    def test_that_are_not_built_take_no_name_of_their_own(self) -> None:
        assert "build it" in only_fault(Flow("orders").then(Flow().then(fetch), name="x"))

    def test_say_what_follows_failure(self) -> None:
        on_failure: Any = "ignore"

        assert "on_failure must be one of 'stop', 'finish'" in only_fault(
            Flow("o", on_failure=on_failure).then(fetch)
        )

    def test_are_still_open_to_be_mended(self) -> None:
        flow = Flow("orders").then(fetch).node("x", charge, after="decide")
        assert faults(flow)

        built = flow.then(decide, after="fetch").build()

        assert isinstance(built, BuiltFlow)


class TestFaultsAsData:
    """What programs match on; the texts are for people, and for the loader of YAML."""

    @pytest.mark.parametrize(
        "flow, code, where",
        [
            (Flow("f").then(fetch, retries=-3), "argument.range", ("fetch", "retries")),
            (Flow("f").then(fetch, timeout="blah"), "argument.duration", ("fetch", "timeout")),
            (
                Flow("f").then(fetch, input_schema={"type": 5}),
                "form.any_of",
                ("fetch", "input_schema", "type"),
            ),
            (Flow("f").use("http", {"url": 5}), "config.type", ("http", "config", "url")),
            (
                Flow("f").use("http", {"url": "{{"}),
                "template.not_closed",
                ("http", "config", "url"),
            ),
            (Flow("f").map(fetch, concurrency=0), "flow.invalid_node", ("fetch", "concurrency")),
            (
                Flow("f").then(fetch, inputs={"number": "lod.output"}),
                "flow.invalid_node",
                ("fetch", "inputs", "number"),
            ),
            (Flow("f").then(limited), "flow.computed_limit", ("limited",)),
            (Flow("f").then(fetch, after="x"), "flow.invalid_node", ("fetch",)),
        ],
    )
    def test_have_a_code_and_a_place(self, flow: Flow, code: str, where: tuple[str, ...]) -> None:
        with pytest.raises(InvalidFlow) as caught:
            flow.build()

        [fault] = caught.value.faults
        assert fault.code == code
        assert fault.where == ("nodes", *where)

    def test_of_no_single_node_have_no_node(self) -> None:
        cycle = Flow("f").node("a", fetch, after="b").node("b", charge, after="a")
        for flow in (cycle, Flow("f")):
            with pytest.raises(InvalidFlow) as caught:
                flow.build()

            [fault] = caught.value.faults
            assert (fault.code, fault.where) == ("flow.invalid_structure", ())
            assert fault.args["message"] == caught.value.errors[0]

    def test_keep_all_of_it_when_pickled_or_copied(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            Flow("f").then(fetch, retries=-3).then(charge, after="x").build()

        for same in (pickle.loads(pickle.dumps(caught.value)), copy.deepcopy(caught.value)):
            assert same.faults == caught.value.faults
            assert same.errors == caught.value.errors

    def test_are_texts_too_where_there_is_nothing_but_data(self) -> None:
        error = InvalidFlow(INVALID_NODE.fault(("nodes", "a"), node="a", message="no"), flow="f")

        assert error.errors == ("node 'a': no",)
        assert str(error) == "flow 'f' cannot be built:\n  - node 'a': no"
