"""What the builder refuses: all at once, each fault with node and place."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from perdure import Flow, task
from perdure.diagnostics import Fault, Source
from perdure.errors import InvalidFlow, InvalidInput
from perdure.flows import options
from perdure.flows.built import BuiltFlow
from perdure.flows.options import FORMS, NODE_TYPE, read_options
from perdure.flows.yaml.schema import NODE_KEYS
from perdure.model.graph import MAP_ITEMS_LIMIT
from tests.rules.flow_samples import (
    call_of,
    charge,
    codes,
    decide,
    faults,
    fetch,
    only_fault,
    refuse,
)
from tests.support.refusal import refused


@task
def needs_two(one: Any, other: Any) -> Any:
    return one, other


child = Flow("child").then(fetch).build()
anything: Any = object()
UNUSABLE: Any = {"retries": -1, "timeout": "blah", "priority": 9, "tags": 3, "queue": ""}


class TestNames:
    def test_a_plain_function_needs_one(self):
        def plain(order: Any) -> Any:
            return order

        fault = only_fault(Flow("orders").then(plain))
        assert (fault.code, call_of(fault)) == ("flow.function_name", ".then number 1")

    def test_a_lambda_in_a_branch_says_where_it_is(self):
        branch: Any = [fetch, lambda order: order]
        flow = Flow("orders").fork(a=branch, b=charge)
        fault = only_fault(flow)
        assert (fault.code, call_of(fault)) == (
            "flow.lambda_name",
            ".fork number 1, branch 'a', item 2",
        )

    def test_are_reported_with_both_places_if_used_twice(self):
        flow = Flow("orders").fork(a=fetch, b=Flow().then(charge).then(fetch))
        fault = only_fault(flow)
        assert (fault.code, fault.where) == ("flow.duplicate_node", ("nodes", "fetch"))
        assert call_of(fault) == ".fork number 1, branch 'b', .then number 2"
        assert fault.args["there"] == ".fork number 1, branch 'a'"

    @pytest.mark.parametrize("name", ["", "a b", "-a", ".a", "a:b", "a#1", "a[0]", "ä", "x" * 129])
    def test_of_nodes_must_be_usable(self, name):
        assert codes(Flow("orders").then(fetch, name=name)) == ["flow.node_id"]

    @pytest.mark.parametrize("name", ["a", "_a", "9", "a.b-c_d", "x" * 128])
    def test_of_nodes_may_be_these(self, name):
        assert list(Flow("orders").then(fetch, name=name).build().graph.nodes) == [name]

    def test_of_nodes_must_be_texts(self):
        name: Any = 7
        assert codes(Flow("orders").then(fetch, name=name)) == ["argument.type"]

    def test_of_tasks_that_cannot_be_ids_need_another(self):
        spaced = task(name="two words")(lambda order: order)
        assert codes(Flow("orders").then(spaced)) == ["flow.node_id"]
        assert Flow("orders").then(spaced, name="two-words").build().name == "orders"

    @pytest.mark.parametrize("name", [None, "", "a@b", "x" * 201])
    def test_of_flows_must_be_usable(self, name):
        fault = only_fault(Flow(name).then(fetch))
        assert fault.code in ("argument.name", "flow.name_reserved", "flow.needs_name")
        assert (fault.where, fault.source) == (("name",), None)

    def test_too_long_together_are_refused(self):
        flow = Flow("f" * 150).then(lambda order: order, name="n" * 100)
        assert codes(flow) == ["argument.name"]

    def test_of_different_tasks_must_differ(self):
        other = task(name="fetch")(lambda order: order)
        flow = Flow("orders").then(fetch).then(other, name="again")
        fault = only_fault(flow)
        assert (fault.code, fault.where) == ("flow.duplicate_task", ("nodes", "again", "body"))
        assert fault.args["there"] == "node 'fetch' (.then number 1)"


class TestTasks:
    def test_must_be_callable_with_one_value(self):
        assert codes(Flow("orders").then(needs_two)) == ["flow.one_value"]

    def test_must_have_parameters_that_are_known(self):
        assert codes(Flow("orders").then(dict, name="as_dict")) == ["flow.no_signature"]

    @pytest.mark.parametrize("body", [None, 7, "fetch"])
    def test_must_be_tasks(self, body):
        assert codes(Flow("orders").then(body, name="x")) == ["flow.not_callable"]

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
    def test_are_called_with_usable_options(self, options):
        fault = only_fault(Flow("orders").then(fetch, **options))
        assert fault.where[:3] == ("nodes", "fetch", *options)
        assert call_of(fault) == ".then number 1"

    @pytest.mark.parametrize("add", [Flow.then, Flow.map, Flow.join])
    def test_report_every_option_that_is_not_usable(self, add):
        flow = Flow("orders").fork(a=charge, b=decide)
        found = faults(add(flow, fetch, **UNUSABLE, undo=needs_two, on_error=""))
        for option in (*UNUSABLE, "undo", "on_error"):
            assert [each.where[:3] for each in found].count(("nodes", "fetch", option)) == 1

    def test_report_every_option_of_what_decides(self):
        flow = (
            Flow("orders")
            .loop(fetch, until=needs_two, max_iterations=0, on_max="", **UNUSABLE)
            .route(needs_two, {"a": None}, **UNUSABLE)
        )

        calls = [call_of(each) for each in faults(flow)]

        assert calls.count(".loop number 1") == 8
        assert calls.count(".route number 1") == 6

    @pytest.mark.parametrize("body", [needs_two, None])
    def test_that_cannot_be_called_hide_no_option(self, body):
        assert len(faults(Flow("orders").then(body, name="x", **UNUSABLE))) == 6

    def test_report_every_unknown_option(self):
        options: Any = {"retrys": 3, "undoing": fetch}
        found = faults(Flow("orders").then(fetch, **options).route("kind", {"a": None}, **options))
        assert [(each.code, each.where[2]) for each in found] == [
            ("argument.unknown", "retrys"),
            ("argument.unknown", "undoing"),
        ] * 2


class TestForks:
    def test_must_be_joined_before_anything_follows(self):
        flow = Flow("orders").fork(a=fetch, b=charge).then(decide)
        fault = only_fault(flow)
        assert (fault.code, fault.where) == ("flow.fork_not_joined", ("nodes", "decide"))
        assert fault.args["fork"] == ".fork number 1"

    def test_must_be_joined_before_they_divide_again(self):
        flow = Flow("orders").fork(a=fetch).fork(b=charge)
        fault = only_fault(flow)
        assert (fault.code, call_of(fault)) == ("flow.fork_not_joined", ".fork number 2")
        assert fault.args["fork"] == ".fork number 1"

    def test_must_be_joined_inside_the_branch_of_a_route_that_continues(self):
        inner = Flow().fork(a=fetch, b=charge)
        flow = Flow("orders").route("kind", {"x": inner}).then(decide)
        assert only_fault(flow).args["fork"] == ".route number 1, branch 'x', .fork number 1"

    def test_must_be_joined_inside_the_branch_of_a_fork(self):
        flow = Flow("orders").fork(a=Flow().fork(b=fetch, c=charge)).join(decide)
        fault = only_fault(flow)
        assert (fault.code, fault.args["branch"]) == ("flow.branch_forks", "a")

    def test_need_branches(self):
        assert codes(Flow("orders").then(fetch).fork())[0] == "flow.empty_fork"

    @pytest.mark.parametrize("branch", [[], Flow(), 7, "fetch", {"a": 1}])
    def test_need_branches_with_something_in_them(self, branch):
        flow = Flow("orders").then(fetch).fork({"a": branch, "b": charge})
        assert call_of(only_fault(flow)) == ".fork number 1, branch 'a'"

    def test_have_nothing_to_hand_on_at_the_start(self):
        assert codes(Flow("o").fork(a=None, b=fetch)) == ["flow.nothing_before"]

    def test_cannot_hand_a_value_on_to_nobody(self):
        flow = Flow("orders").then(fetch).fork(a=None, b=charge)
        fault = only_fault(flow)
        assert (fault.code, call_of(fault)) == ("flow.lost_branch", ".fork number 1, branch 'a'")


class TestJoins:
    def test_of_nothing_are_refused(self):
        fault = only_fault(Flow("orders").then(fetch).join(decide))
        assert (fault.code, call_of(fault)) == ("flow.no_fork", ".join number 1")

    @pytest.mark.parametrize("after", [[], {}, ()])
    def test_of_no_names_are_refused(self, after):
        flow = Flow("orders").then(fetch).then(decide, after=after)
        assert codes(flow) == ["flow.joins_nothing"]

    def test_take_a_task(self):
        body: Any = child
        flow = Flow("orders").fork(a=fetch, b=charge).join(body)
        assert codes(flow)[0] == "flow.child_joins"

    def test_are_needed_where_a_node_takes_one_value(self):
        flow = Flow("orders").fork(a=fetch, b=charge).delay("1s", after=["fetch", "charge"])
        assert codes(flow) == ["flow.takes_one_value"]

    def test_name_what_they_gather_by_id(self):
        after: Any = [fetch]
        flow = Flow("orders").then(fetch).then(decide, after=after)
        fault = only_fault(flow)
        assert (fault.code, fault.where) == ("flow.not_an_id", ("nodes", "decide", "after"))

    def test_name_each_once(self):
        flow = Flow("orders").then(fetch).then(decide, after=["fetch", "fetch"])
        assert codes(flow) == ["flow.duplicate_edge"]


class TestRoutes:
    def test_need_a_branch_for_every_declared_key(self):
        flow = Flow("orders").route("kind", {"pay": charge}, keys=["pay", "reject", True])
        assert [(each.code, each.args["key"]) for each in faults(flow)] == [
            ("flow.missing_branch", "reject"),
            ("flow.missing_branch", "true"),
        ]

    def test_declare_keys_in_a_list(self):
        keys: Any = "pay"
        flow = Flow("orders").route("kind", {"pay": charge}, keys=keys)
        fault = only_fault(flow)
        assert (fault.code, fault.where[2:]) == ("argument.type", ("keys",))

    def test_may_leave_declared_keys_to_the_default(self):
        flow = Flow("o").route("kind", {"pay": charge}, default=fetch, keys=["pay", "reject"])
        assert flow.build().name == "o"

    def test_have_no_branch_for_a_key_that_is_not_declared(self):
        flow = Flow("orders").route("kind", {"pay": charge, "rejct": fetch}, keys=["pay", "reject"])
        fault = faults(flow)[1]
        assert (fault.code, fault.args["nearest"]) == ("flow.undeclared_branch", ("reject",))

    def test_need_branches(self):
        assert codes(Flow("orders").route("kind", {})) == ["flow.empty_route"]

    @pytest.mark.parametrize("branches", [{1.5: charge}, {None: charge}, {1: charge, "1": fetch}])
    def test_need_keys_that_tell_branches_apart(self, branches):
        found = codes(Flow("orders").route("kind", branches))
        assert found[0] in ("flow.branch_key", "flow.duplicate_branch")

    def test_have_one_default(self):
        flow = Flow("orders").route("kind", {"default": charge}, default=fetch)
        assert codes(flow) == ["flow.two_defaults"]

    def test_cannot_continue_without_a_key(self):
        flow = Flow("orders").route("kind", {"pay": charge}, on_error="continue")
        assert codes(flow) == ["flow.route_continues"]

    def test_have_to_be_left_from_a_port(self):
        flow = Flow("o").route("kind", {"pay": None, "no": None}).node("x", fetch, after="route")
        fault = only_fault(flow)
        assert (fault.code, fault.args["ports"]) == ("flow.port_needed", ("route:no", "route:pay"))

    @pytest.mark.parametrize("option", ["undo", "ports", "inputs"])
    def test_do_not_take_what_only_other_nodes_do(self, option):
        options: Any = {option: fetch}
        flow = Flow("orders").route("kind", {"pay": charge}, **options)
        fault = only_fault(flow)
        assert (fault.code, fault.where[2:]) == ("argument.unknown", (option,))


class TestOtherKinds:
    def test_delays_need_a_duration(self):
        fault = only_fault(Flow("orders").delay("soon"))
        assert (fault.code, fault.where) == ("argument.duration", ("nodes", "delay", "delay"))

    @pytest.mark.parametrize(
        "options", [{"timeout": 0}, {"timeout": "x"}, {"on_timeout": "late"}, {"name": 3}]
    )
    def test_waits_need_usable_options(self, options):
        found = faults(Flow("o").wait_for_signal("go", **options))[0]
        assert call_of(found) == ".wait_for_signal number 1"

    @pytest.mark.parametrize("signal", ["", None, 7])
    def test_waits_need_a_signal(self, signal):
        fault = only_fault(Flow("orders").wait_for_signal(signal))
        assert (fault.code, fault.where[2:]) == ("argument.name", ("signal",))

    def test_child_flows_must_not_multiply(self):
        """Finding 8: three small definitions started a million nodes in one commit."""

        def side_by_side(name: str, child: BuiltFlow | None) -> Flow:
            nodes = range(50)
            branches = {
                f"b{n}": Flow().then(fetch, name=f"n{n}")
                if child is None
                else Flow().flow(child, name=f"n{n}")
                for n in nodes
            }
            return Flow(name).fork(branches)

        low = side_by_side("low", None).build()
        middle = side_by_side("middle", low).build()
        assert codes(side_by_side("high", middle)) == ["flow.starts_too_many"]
        assert codes(Flow("mapped").map(middle)) == ["flow.starts_too_many"]
        Flow("fine").map(low).loop(middle, until="done").build()

    @pytest.mark.parametrize("items_max", [0, True, "2", MAP_ITEMS_LIMIT + 1])
    def test_maps_need_a_usable_items_max(self, items_max):
        fault = only_fault(Flow("orders").map(fetch, items_max=items_max))
        assert fault.where == ("nodes", "fetch", "items_max")

    @pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, "2"])
    def test_maps_need_a_usable_concurrency(self, concurrency):
        fault = only_fault(Flow("orders").map(fetch, concurrency=concurrency))
        assert fault.where == ("nodes", "fetch", "concurrency")

    @pytest.mark.parametrize("over", ["", 7])
    def test_maps_need_a_usable_key(self, over):
        fault = only_fault(Flow("orders").map(fetch, over=over))
        assert (fault.code, fault.where[2:]) == ("argument.name", ("over",))

    @pytest.mark.parametrize("most", [0, -1, 1.5, None, "2", True])
    def test_loops_need_a_usable_bound(self, most):
        fault = only_fault(Flow("orders").loop(fetch, until="done", max_iterations=most))
        assert fault.where == ("nodes", "fetch", "max_iterations")

    def test_loops_need_an_end(self):
        until: Any = None
        fault = only_fault(Flow("orders").loop(fetch, until=until))
        assert (fault.code, fault.where[2:]) == ("flow.not_callable", ("until",))

    @pytest.mark.parametrize("flow", [Flow("o").then(fetch), fetch, None])
    def test_child_flows_must_be_built(self, flow):
        assert codes(Flow("orders").then(charge).flow(flow)) == ["flow.not_built"]

    def test_bodies_that_are_flows_must_be_built(self):
        body: Any = Flow().then(fetch)
        assert codes(Flow("orders").map(body))[0] == "flow.not_built"

    def test_child_flows_have_their_own_settings(self):
        fault = only_fault(Flow("orders").map(child, retries=3))
        assert (fault.code, fault.where[2:]) == ("flow.task_option", ("retries",))

    def test_child_flows_do_not_gather(self):
        flow = Flow("orders").fork(a=fetch, b=charge).node("c", child, after=["fetch", "charge"])
        assert codes(flow) == ["flow.takes_one_value"]

    @pytest.mark.parametrize("options", [{"on_error": "x"}, {"on_max": "x"}])
    def test_ports_must_be_followed(self, options):
        [option] = options
        fault = only_fault(Flow("orders").loop(fetch, until="done", **options))
        assert (fault.code, fault.where[2:]) == ("flow.unused_port", (option,))


class TestFlows:
    def test_without_nodes_are_refused(self):
        assert codes(Flow("orders")) == ["flow.empty"]

    @pytest.mark.parametrize(
        "flow",
        [
            Flow("orders").approve("\ud800"),
            Flow("orders").approve("ok?", message="\ud800"),
            Flow("orders").approve("ok?", inputs={"order": "input.\ud800"}),
        ],
    )
    def test_with_unstorable_text_are_refused(self, flow):
        """Finding 14: UnicodeEncodeError, and only when a run was submitted."""
        assert codes(flow) == ["flow.unstorable_text"]

    def test_with_a_cycle_are_refused(self):
        flow = Flow("orders").node("a", fetch, after="b").node("b", charge, after="a")
        fault = only_fault(flow)
        assert (fault.code, fault.args["ids"]) == ("flow.cycle", ("a", "b"))

    def test_cannot_be_part_of_themselves(self):
        flow = Flow("orders").then(fetch)
        flow.fork(a=flow, b=charge)
        assert codes(flow) == ["flow.contains_itself"]

    def test_cannot_be_nested_without_end(self):
        flow = Flow().then(fetch)
        for _ in range(60):
            flow = Flow("orders").then(flow)
        assert codes(flow)[0] == "flow.nested_too_deep"

    def test_that_are_not_built_take_no_name_of_their_own(self):
        assert codes(Flow("orders").then(Flow().then(fetch), name="x")) == ["flow.inlined_options"]

    def test_say_what_follows_failure(self):
        on_failure: Any = "ignore"
        fault = only_fault(Flow("o", on_failure=on_failure).then(fetch))
        assert (fault.code, fault.where) == ("argument.choice", ("on_failure",))

    def test_are_still_open_to_be_mended(self):
        flow = Flow("orders").then(fetch).node("x", charge, after="decide")
        assert faults(flow)
        built = flow.then(decide, after="fetch").build()
        assert isinstance(built, BuiltFlow)


class TestFaultsAsData:
    """What programs match on; the texts are for people."""

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
            (Flow("f").map(fetch, concurrency=0), "argument.range", ("fetch", "concurrency")),
            (
                Flow("f").then(fetch, inputs={"number": "lod.output"}),
                "flow.unknown_node",
                ("fetch", "inputs", "number"),
            ),
            (Flow("f").then(needs_two), "flow.one_value", ("needs_two", "body")),
            (Flow("f").then(fetch, after="x"), "flow.unknown_node", ("fetch", "after")),
        ],
    )
    def test_have_a_code_and_a_place(self, flow, code, where):
        with pytest.raises(InvalidFlow) as caught:
            flow.build()
        [fault] = caught.value.faults
        assert fault.code == code
        assert fault.where == ("nodes", *where)

    def test_of_no_single_node_have_no_node(self):
        cycle = Flow("f").node("a", fetch, after="b").node("b", charge, after="a")
        for flow, code in ((cycle, "flow.cycle"), (Flow("f"), "flow.empty")):
            fault = only_fault(flow)

            assert (fault.code, fault.where, fault.source) == (code, (), None)

    def test_have_the_call_of_their_node(self):
        assert only_fault(Flow("f").map(fetch, over="")).source == Source(call=".map number 1")

    def test_keep_all_of_it_when_pickled_or_copied(self):
        with pytest.raises(InvalidFlow) as caught:
            Flow("f").then(fetch, retries=-3).then(charge, after="x").build()
        for same in (pickle.loads(pickle.dumps(caught.value)), copy.deepcopy(caught.value)):
            assert same.faults == caught.value.faults
            assert same.errors == caught.value.errors

    def test_are_reported_with_node_and_call(self):
        with pytest.raises(InvalidFlow) as caught:
            Flow("f").then(fetch, undo=7).build()  # type: ignore[call-overload]
        assert str(caught.value) == (
            "flow 'f' cannot be built:\n"
            "  - node 'fetch' (.then number 1): undo: 7 is neither a task nor a function"
        )


class TestAllFaults:
    """What the builder refuses: all at once, each fault with node and place."""

    def test_all_faults_are_reported_at_once(self):
        flow = (
            Flow("orders")
            .then(lambda order: order)
            .then(charge)
            .then(charge)
            .node("late", fetch, after="chrge")
            .map(decide, concurrency=0)
            .loop(fetch, until="done", max_iterations=0)
        )

        with pytest.raises(InvalidFlow) as caught:
            flow.build()

        assert [(fault.code, call_of(fault)) for fault in caught.value.faults] == [
            ("flow.lambda_name", ".then number 1"),
            ("flow.duplicate_node", ".then number 3"),
            ("argument.range", ".map number 1"),
            ("argument.range", ".loop number 1"),
            ("flow.unknown_node", ".node number 1"),
        ]

    def test_the_error_is_one_of_input_and_lists_every_fault(self):
        with refused("flow.lambda_name", InvalidInput):
            Flow("orders").then(lambda a: a).then(lambda b: b).build()


METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "": ("use", {"config": "config"}),
    "task": ("then", {"body": "body"}),
    "route": ("route", {"key": "key", "branches": "branches"}),
    "map": ("map", {"body": "body"}),
    "loop": ("loop", {"body": "body"}),
    "delay": ("delay", {}),
    "signal": ("wait_for_signal", {}),
    "approval": ("approve", {}),
    "flow": ("flow", {"flow": "body"}),
}
"""The method of the builder for each form, and parameters that are called otherwise."""

NO_OPTIONS = {"self", "name", "after", "type", "node_type", "default", "keys", "options"}
ROWS = [(form, option) for form in (NODE_TYPE, *FORMS.values()) for option in form.options]


class TestOptions:
    """The table of node options: everything that describes or reads options follows from it."""

    @pytest.mark.parametrize(
        "form", [NODE_TYPE, *FORMS.values()], ids=lambda form: form.type or "node_type"
    )
    def test_signatures_of_the_builder_have_every_option_and_no_other(self, form):
        method, otherwise = METHODS[form.type]
        parameters = inspect.signature(getattr(Flow, method)).parameters
        typed = str(parameters["options"].annotation)  # Unpack[TaskOptions]
        own = getattr(options, typed.removeprefix("Unpack[").removesuffix("]"))
        given = {*parameters, *own.__optional_keys__} - NO_OPTIONS
        assert {otherwise.get(each, each) for each in given} | {*otherwise.values()} == {
            *form.parameters
        }

    @pytest.mark.parametrize(
        "form", [NODE_TYPE, *FORMS.values()], ids=lambda form: form.type or "node_type"
    )
    def test_every_option_has_one_place_in_a_file(self, form):
        places = [option.yaml for option in form.options]
        assert len(set(places)) == len(places)
        assert all(
            place[0] == "config" if len(place) > 1 else place[0] in NODE_KEYS for place in places
        )

    @pytest.mark.parametrize("form, option", ROWS, ids=lambda each: getattr(each, "name", ""))
    def test_what_cannot_be_read_has_a_path_and_a_stand_in(self, form, option):
        if option.read is options.as_given:
            return  # what it names is looked for by the maker of the node
        faults: list[Fault] = []
        values = read_options(form, {option.parameter: object()}, faults)
        assert option.parameter in {fault.where[0] for fault in faults if fault.where}
        assert values[option.parameter] == option.instead

    def test_what_is_wrong_already_is_not_read_again(self):
        faults: list[Fault] = []
        values = read_options(
            FORMS["approval"], {"title": "x"}, faults, wrong={"deadline", "title"}
        )
        assert (values["title"], values["deadline"]) == ("?", options.FOREVER_MS)
        assert faults == []

    @pytest.mark.parametrize("wrong", [{"on_error": 5}, {"on_timeout": ""}, {"ports": "late"}])
    def test_what_follows_a_port_that_could_not_be_read_is_not_blamed(self, wrong):
        flow = Flow("f").then(fetch, **wrong).then(refuse, after="fetch:late")
        [option] = wrong
        assert only_fault(flow).where == ("nodes", "fetch", option)

    def test_a_time_that_could_not_be_read_makes_no_other_fault(self):
        waits: Any = {"timeout": "soon", "on_timeout": "continue"}
        asks: Any = {"deadline": "soon", "on_timeout": "continue", "reminders": ["2d"]}
        assert codes(Flow("f").wait_for_signal("go", **waits)) == ["argument.duration"]
        assert codes(Flow("f").approve("Go?", **asks)) == ["argument.duration"]
