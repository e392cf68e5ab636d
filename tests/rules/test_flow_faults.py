"""What the builder refuses: all at once, each fault with node and place."""

from __future__ import annotations

import copy
import inspect
import pickle
from functools import partial
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
    pack,
    path_of,
    refuse,
)
from tests.support.refusal import refused


@task
def needs_two(one: Any, other: Any) -> Any:
    return one, other


child = Flow("child").then(fetch).build()
spaced = task(name="two words")(lambda order: order)
other_fetch = task(name="fetch")(lambda order: order)
itself = Flow("o").then(fetch)
itself.fork(a=itself, b=charge)
anything: Any = object()
NO_TASKS: Any = (None, 7, "fetch")
NOTHING: Any = ([], {}, ())
NO_BRANCHES: Any = ([], "x")
NO_PARTS: Any = (7, {"a": 1})
NOT_BUILT: Any = (Flow("x").then(fetch), fetch, None)
NO_NAMES: Any = ("", None, 7)
NAMELESS: Any = lambda order: order  # noqa: E731  # it is a lambda that is refused
TOO_MANY = MAP_ITEMS_LIMIT + 1
LOOP = partial(Flow.loop, until="done")
UNUSABLE: Any = {"retries": -1, "timeout": "blah", "priority": 9, "tags": 3, "queue": ""}


def plain(order: Any) -> Any:
    return order


def forked() -> Flow:
    return Flow("o").fork(a=fetch, b=charge)


def followed_by(body: Any, **given: Any) -> Flow:
    return Flow("o").then(body, **given)


def routed(**options: Any) -> Flow:
    return Flow("o").route("kind", {"pay": charge}, **options)


class TestOneFault:
    """What the builder itself refuses; ``test_graph`` has the faults of definitions."""

    @pytest.mark.parametrize(
        "add, options, code",
        [
            (Flow.then, {"retries": -1}, "argument.range"),
            (Flow.then, {"timeout": "soon"}, "argument.duration"),
            (Flow.then, {"timeout": 0}, "argument.not_positive"),
            (Flow.then, {"priority": 99}, "argument.range"),
            (Flow.then, {"queue": ""}, "argument.name"),
            (Flow.then, {"tags": "gpu"}, "argument.type"),
            (Flow.then, {"on_error": ""}, "argument.name"),
            (Flow.then, {"on_error": None}, "argument.name"),
            (Flow.then, {"undo": 7}, "flow.not_callable"),
            (Flow.then, {"retrys": 3}, "argument.unknown"),
            (Flow.then, {"after": "x"}, "flow.unknown_node"),
            *((Flow.map, {"items_max": most}, "argument.range") for most in (0, TOO_MANY)),
            *((Flow.map, {"items_max": most}, "argument.type") for most in (True, "2")),
            *((Flow.map, {"concurrency": most}, "argument.range") for most in (0, -1)),
            *((Flow.map, {"concurrency": most}, "argument.type") for most in (1.5, True, "2")),
            *((Flow.map, {"over": key}, "argument.name") for key in ("", 7)),
            *((LOOP, {"max_iterations": most}, "argument.range") for most in (0, -1)),
            *((LOOP, {"max_iterations": most}, "argument.type") for most in (1.5, None, "2", True)),
            (Flow.loop, {"until": None}, "flow.not_callable"),
        ],
    )
    def test_of_an_option(self, add, options, code):
        fault = only_fault(add(Flow("o"), fetch, **options))
        [option] = options
        assert (fault.code, path_of(fault)) == (code, f"fetch.{option}")
        assert call_of(fault) in (".then number 1", ".map number 1", ".loop number 1")

    @pytest.mark.parametrize(
        "flow, code, path",
        [
            (Flow("o").then(plain), "flow.function_name", ""),
            (Flow("o").then(fetch, name=anything), "argument.type", "name"),
            (Flow("o").then(spaced), "flow.node_id", "two words.name"),
            (
                Flow("f" * 150).then(plain, name="n" * 100),
                "argument.name",
                "n" * 100 + ".body.name",
            ),
            (Flow(None).then(fetch), "flow.needs_name", "name"),
            (Flow("").then(fetch), "argument.name", "name"),
            (Flow("a@b").then(fetch), "flow.name_reserved", "name"),
            (Flow("x" * 201).then(fetch), "argument.name", "name"),
            (Flow("o", on_failure=anything).then(fetch), "argument.choice", "on_failure"),
            (itself, "flow.contains_itself", ""),
            (Flow("o").then(needs_two), "flow.one_value", "needs_two.body"),
            (Flow("o").then(dict, name="as_dict"), "flow.no_signature", "as_dict.body"),
            *((Flow("o").then(x, name="x"), "flow.not_callable", "x.body") for x in NO_TASKS),
            (Flow("o").then(Flow().then(fetch), name="x"), "flow.inlined_options", ""),
            (
                Flow("o").then(fetch, input_schema={"type": 5}),
                "form.any_of",
                "fetch.input_schema.type",
            ),
            (
                Flow("o").then(fetch, inputs={"number": "lod.output"}),
                "flow.unknown_node",
                "fetch.inputs.number",
            ),
            (Flow("o").use("http", {"url": 5}), "config.type", "http.config.url"),
            (Flow("o").use("http", {"url": "{{"}), "template.not_closed", "http.config.url"),
            (Flow("o").then(fetch).fork(a=None, b=charge), "flow.lost_branch", ""),
            (Flow("o").fork(a=None, b=fetch), "flow.nothing_before", ""),
            (Flow("o").then(fetch).fork(a=Flow(), b=charge), "flow.empty_part", ""),
            *(
                (Flow("o").fork({"a": x, "b": charge}), "flow.not_a_branch", "")
                for x in NO_BRANCHES
            ),
            *((Flow("o").fork({"a": x, "b": charge}), "flow.not_a_part", "") for x in NO_PARTS),
            (Flow("o").then(fetch).join(decide), "flow.no_fork", "decide"),
            *((Flow("o").then(pack, after=x), "flow.joins_nothing", "pack.after") for x in NOTHING),
            (Flow("o").then(fetch).then(pack, after=[anything]), "flow.not_an_id", "pack.after"),
            (forked().delay("1s", after=["fetch", "charge"]), "flow.takes_one_value", "delay"),
            (forked().node("c", child, after=["fetch", "charge"]), "flow.takes_one_value", "c"),
            (Flow("o").route("kind", {"a": charge}, keys=anything), "argument.type", "route.keys"),
            (
                Flow("o").route("kind", {1: pack, "1": fetch}),
                "flow.duplicate_branch",
                "route.branches",
            ),
            (
                Flow("o").route("kind", {"default": pack}, fetch),
                "flow.two_defaults",
                "route.default",
            ),
            *(
                (routed(**{x: fetch}), "argument.unknown", f"route.{x}")
                for x in ("undo", "ports", "inputs")
            ),
            (Flow("o").delay("soon"), "argument.duration", "delay.delay"),
            *((Flow("o").wait_for_signal(x), "argument.name", "signal.signal") for x in NO_NAMES),
            (Flow("o").wait_for_signal("go", timeout=0), "argument.not_positive", "go.timeout"),
            (Flow("o").wait_for_signal("go", timeout="x"), "argument.duration", "go.timeout"),
            (Flow("o").wait_for_signal("go", name=anything), "argument.type", "name"),
            *((Flow("o").then(pack).flow(x), "flow.not_built", "") for x in NOT_BUILT),
            (Flow("o").map(child, retries=3), "flow.task_option", "child.retries"),
            (Flow("o").map(pack, delay="1h"), "flow.child_option", "pack.delay"),
            (followed_by(pack, delay="1h"), "flow.child_option", "pack.delay"),
            *(
                (followed_by(child, **{x: "1h"}), "argument.unknown", f"child.{x}")
                for x in ("run_at", "deadline")
            ),
            # Finding 14: UnicodeEncodeError, and only when a run was submitted.
            (Flow("o").approve("\ud800"), "flow.unstorable_text", "approve"),
            (Flow("o").approve("ok?", message="\ud800"), "flow.unstorable_text", "approve"),
            (
                Flow("o").approve("ok?", inputs={"x": "input.\ud800"}),
                "flow.unstorable_text",
                "approve",
            ),
        ],
    )
    def test_of_a_call(self, flow, code, path):
        fault = only_fault(flow)
        assert (fault.code, path_of(fault)) == (code, path)

    @pytest.mark.parametrize(
        "flow, expected",
        [
            (
                Flow("o").fork(a=[fetch, NAMELESS], b=charge),
                ("flow.lambda_name", ".fork number 1, branch 'a', item 2", {}),
            ),
            (
                Flow("o").fork(a=fetch, b=Flow().then(charge).then(fetch)),
                (
                    "flow.duplicate_node",
                    ".fork number 1, branch 'b', .then number 2",
                    {"there": ".fork number 1, branch 'a'"},
                ),
            ),
            (
                Flow("o").then(fetch).then(other_fetch, name="again"),
                (
                    "flow.duplicate_task",
                    ".then number 2",
                    {"there": "node 'fetch' (.then number 1)"},
                ),
            ),
            (
                forked().then(decide),
                ("flow.fork_not_joined", ".then number 1", {"fork": ".fork number 1"}),
            ),
            (
                forked().fork(b=decide),
                ("flow.fork_not_joined", ".fork number 2", {"fork": ".fork number 1"}),
            ),
            (
                Flow("o").route("kind", {"x": Flow().fork(a=fetch, b=charge)}).then(decide),
                (
                    "flow.fork_not_joined",
                    ".then number 1",
                    {"fork": ".route number 1, branch 'x', .fork number 1"},
                ),
            ),
            (
                Flow("o").fork(a=Flow().fork(b=fetch, c=charge)).join(decide),
                ("flow.branch_forks", ".join number 1", {"branch": "a"}),
            ),
            (
                Flow("o").route("kind", {"x": None, "y": None}).node("x", fetch, after="route"),
                ("flow.port_needed", ".node number 1", {"ports": ("route:x", "route:y")}),
            ),
            (
                Flow("o").node("a", fetch, after="b").node("b", charge, after="a"),
                ("flow.cycle", None, {"ids": ("a", "b")}),
            ),
        ],
    )
    def test_says_where_it_is_and_what_it_is_about(self, flow, expected):
        fault, (code, call, args) = only_fault(flow), expected
        assert fault.code == code
        assert (fault.source and fault.source.call) == call
        assert args.items() <= dict(fault.args).items()


class TestNames:
    @pytest.mark.parametrize("name", ["", "a b", "-a", ".a", "a:b", "a#1", "a[0]", "ä", "x" * 129])
    def test_of_nodes_must_be_usable(self, name):
        assert codes(Flow("orders").then(fetch, name=name)) == ["flow.node_id"]

    @pytest.mark.parametrize("name", ["a", "_a", "9", "a.b-c_d", "x" * 128])
    def test_of_nodes_may_be_these(self, name):
        assert list(Flow("orders").then(fetch, name=name).build().graph.nodes) == [name]

    def test_of_tasks_that_cannot_be_ids_need_another(self):
        assert Flow("orders").then(spaced, name="two-words").build().name == "orders"


class TestRoutes:
    def test_need_a_branch_for_every_declared_key(self):
        flow = Flow("orders").route("kind", {"pay": charge}, keys=["pay", "reject", True])
        assert [(each.code, each.args["key"]) for each in faults(flow)] == [
            ("flow.missing_branch", "reject"),
            ("flow.missing_branch", "true"),
        ]

    def test_may_leave_declared_keys_to_the_default(self):
        flow = Flow("o").route("kind", {"pay": charge}, default=fetch, keys=["pay", "reject"])
        assert flow.build().name == "o"

    def test_have_no_branch_for_a_key_that_is_not_declared(self):
        flow = Flow("orders").route("kind", {"pay": charge, "rejct": fetch}, keys=["pay", "reject"])
        fault = faults(flow)[1]
        assert (fault.code, fault.args["nearest"]) == ("flow.undeclared_branch", ("reject",))

    @pytest.mark.parametrize("key", [1.5, None])
    def test_need_keys_that_can_be_ports(self, key):
        assert codes(Flow("orders").route("kind", {key: charge}))[0] == "flow.branch_key"


class TestSeveralFaults:
    @pytest.mark.parametrize("add", [Flow.then, Flow.map, Flow.join])
    def test_of_options_are_all_reported(self, add):
        flow = Flow("orders").fork(a=charge, b=decide)
        found = faults(add(flow, fetch, **UNUSABLE, undo=needs_two, on_error=""))
        for option in (*UNUSABLE, "undo", "on_error"):
            assert [each.where[:3] for each in found].count(("nodes", "fetch", option)) == 1

    def test_of_what_decides_are_all_reported(self):
        flow = (
            Flow("orders")
            .loop(fetch, until=needs_two, max_iterations=0, on_max="", **UNUSABLE)
            .route(needs_two, {"a": None}, **UNUSABLE)
        )
        calls = [call_of(each) for each in faults(flow)]
        assert calls.count(".loop number 1") == 8
        assert calls.count(".route number 1") == 6

    @pytest.mark.parametrize("body", [needs_two, None])
    def test_are_not_hidden_by_a_body_that_cannot_be_called(self, body):
        assert len(faults(Flow("orders").then(body, name="x", **UNUSABLE))) == 6

    def test_of_unknown_options_are_all_reported(self):
        options: Any = {"retrys": 3, "undoing": fetch}
        found = faults(Flow("orders").then(fetch, **options).route("kind", {"a": None}, **options))
        assert [(each.code, each.where[2]) for each in found] == [
            ("argument.unknown", "retrys"),
            ("argument.unknown", "undoing"),
        ] * 2

    @pytest.mark.parametrize(
        "flow, first",
        [
            (Flow("orders").then(fetch).fork(), "flow.empty_fork"),
            (Flow("orders").fork(a=fetch, b=charge).join(child), "flow.child_joins"),  # type: ignore[arg-type]
            (Flow("orders").map(Flow().then(fetch)), "flow.not_built"),  # type: ignore[arg-type]
            (Flow("o").wait_for_signal("go", on_timeout="late"), "flow.needs_timeout"),
        ],
    )
    def test_start_with_what_is_wrong(self, flow, first):
        assert codes(flow)[0] == first

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

    def test_of_nesting_have_an_end(self):
        flow = Flow().then(fetch)
        for _ in range(60):
            flow = Flow("orders").then(flow)
        assert codes(flow)[0] == "flow.nested_too_deep"

    def test_can_be_fixed(self):
        flow = Flow("orders").then(fetch).node("x", charge, after="decide")
        assert faults(flow)
        built = flow.then(decide, after="fetch").build()
        assert isinstance(built, BuiltFlow)


class TestFaultsAsData:
    """What programs match on; the texts are for people."""

    def test_have_the_call_of_their_node(self):
        assert only_fault(Flow("f").map(fetch, over="")).source == Source(call=".map number 1")

    def test_keep_all_of_it_when_pickled_or_copied(self):
        with pytest.raises(InvalidFlow) as caught:
            Flow("f").then(fetch, retries=-3).then(charge, after="x").build()
        for same in (pickle.loads(pickle.dumps(caught.value)), copy.deepcopy(caught.value)):
            assert same.faults == caught.value.faults
            assert same.errors == caught.value.errors


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
