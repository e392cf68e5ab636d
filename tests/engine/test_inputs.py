"""Inputs that nodes name: from the outputs before them, the run's input, or not there at all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from perdure.model.graph import DelayNode, Input, OnMissing
from perdure.model.run import NodeStatus, RunStatus, WaitType
from tests.engine.graphs import chain, child, graph, loop, mapped, named, route, signal, task
from tests.engine.played import Played


class TestNamedInputs:
    def test_are_gathered_from_outputs_and_the_runs_input(self):
        takes = named(total="price.output.sum", who="input.customer.name", whole="load.output")
        run = Played(
            graph(
                task("load"),
                task("price"),
                task("ship", inputs=takes),
                edges="load price, price ship",
            ),
            {"customer": {"name": "Ann"}},
        )
        run.finish("load", [1, 2])
        run.finish("price", {"sum": 3})

        assert run.inputs["ship"] == {"total": 3, "who": "Ann", "whole": [1, 2]}

    @pytest.mark.parametrize("value", [0, False, "", [], {}, None])
    def test_what_is_empty_is_not_missing(self, value):
        run = Played(chain(task("a"), task("b", inputs=named(x="a.output.x"))))
        run.finish("a", {"x": value})

        assert run.inputs["b"] == {"x": value}

    def test_come_from_far_behind_whatever_is_between(self):
        run = Played(
            chain(task("a"), route("r", "x"), task("b"), task("c", inputs=named(far="a.output")))
        )
        run = Played(
            graph(
                task("a"),
                route("r", "x"),
                task("b"),
                task("c", inputs=named(far="a.output")),
                edges="a r, r.x b, b c",
            )
        )
        run.finish("a", "early")
        run.finish("r", "x")
        run.finish("b", "late")

        assert run.inputs["c"] == {"far": "early"}

    def test_are_the_input_of_maps_loops_and_children(self):
        run = Played(
            graph(
                mapped("m", over="rows", inputs=named(rows="input.rows")),
                loop("l", inputs=named(n="input.n")),
                child("f", inputs=named(n="input.n")),
            ),
            {"rows": [1, 2], "n": 5},
        )

        assert run.inputs["m[1]"] == 2
        assert run.inputs["l#1"] == {"n": 5}
        assert run.inputs["f"] == {"n": 5}

    def test_secrets_are_left_to_the_worker(self):
        key = Input(name="key", secret="API_KEY")
        run = Played(chain(task("a", inputs=(key, *named(n="input")))), 1)

        assert run.inputs["a"] == {"n": 1}


def _skipping(on_missing: OnMissing, default: Any = None) -> Played:
    """``b`` wants the output of ``x``, a branch that the run does not take."""
    takes = (Input(name="got", source="x", path=("v",), default=default),)
    run = Played(
        graph(
            route("r", "left", "right"),
            task("x"),
            task("y"),
            task("b", inputs=takes, on_missing=on_missing),
            task("end"),
            edges="r.left x, r.right y, x b, y b, b end",
        )
    )
    run.finish("r", "right")
    run.finish("y")
    return run


class TestWhatIsMissing:
    def test_fails_the_node_and_says_what_and_where_from(self):
        run = _skipping("error")

        assert run.status == RunStatus.FAILED
        assert run.state.failure is not None
        assert "node 'b': its input 'got' is missing" in run.state.failure.message
        assert "'x'" in run.state.failure.message

    def test_may_have_a_default(self):
        assert _skipping("default", default=7).inputs["b"] == {"got": 7}
        assert _skipping("default").inputs["b"] == {"got": None}

    def test_may_skip_the_node_and_what_follows_only_it(self):
        run = _skipping("skip")

        assert run.nodes["b"] is NodeStatus.SKIPPED
        assert run.nodes["end"] is NodeStatus.SKIPPED
        assert run.status == RunStatus.COMPLETED
        assert "NodeSkipped" in run.types

    def test_a_key_that_is_not_there_is_named_with_those_that_are(self):
        run = Played(chain(task("a"), task("b", inputs=named(x="a.output.totl"))))
        run.finish("a", {"total": 1})

        assert run.state.failure is not None
        assert "'totl'" in run.state.failure.message
        assert "'total'" in run.state.failure.message

    def test_goes_on_from_the_port_for_errors_if_there_is_one(self):
        run = Played(
            graph(
                task("a"),
                task("b", inputs=named(x="a.output.x"), on_error="oops"),
                task("mend"),
                edges="a b, b.oops mend",
            )
        )
        run.finish("a", {})

        assert run.inputs["mend"]["type"] == "perdure.errors.InvalidInput"


class TestPorts:
    def test_a_result_chooses_which_edges_are_taken(self):
        run = Played(
            graph(
                task("a", ports=("big", "small")),
                task("b"),
                task("c"),
                task("join", inputs=named(a="a.output")),
                edges="a.big b, a.small c, b join, c join",
            )
        )
        run.finish("a", 1, port="big")

        assert run.nodes["c"] is NodeStatus.SKIPPED
        run.finish("b")
        assert run.inputs["join"] == {"a": 1}

    def test_a_port_without_an_edge_ends_the_branch(self):
        run = Played(graph(task("a", ports=("none",)), task("b"), edges="a b"))
        run.finish("a", "end", port="none")

        assert run.nodes["b"] is NodeStatus.SKIPPED
        assert run.result == "end"

    def test_a_port_that_the_node_does_not_have_fails_it(self):
        run = Played(chain(task("a", ports=("x",)), task("b")))
        run.finish("a", 1, port="y")

        assert run.state.failure is not None
        assert "port 'y'" in run.state.failure.message
        assert "'x'" in run.state.failure.message

    def test_two_ports_to_one_node_are_one_way_there(self):
        run = Played(graph(task("a", ports=("x", "y")), task("b"), edges="a.x b, a.y b"))
        run.finish("a", 1, port="y")

        assert run.inputs["b"] == 1
        run.finish("b", 2)
        assert run.result == 2


class TestSkipping:
    def test_a_body_may_have_its_node_skipped(self):
        run = Played(graph(task("a"), task("b"), task("c"), task("j"), edges="a b, a c, b j, c j"))
        run.finish("a")
        run.skip("b", "nothing to do")
        run.finish("c", 3)

        assert run.nodes["b"] is NodeStatus.SKIPPED
        assert run.inputs["j"] == 3

    def test_a_skipped_item_is_null_in_the_list(self):
        run = Played(graph(mapped("m")), [1, 2])
        run.skip("m[0]")
        run.finish("m[1]", 4)

        assert run.result == [None, 4]


class TestDelaysUntilATime:
    def test_fail_where_a_template_gives_no_time(self):
        run = Played(graph(DelayNode(id="d", delay_ms=0, until="{{ value.at }}")), {"at": "x"})
        assert run.state.failure is not None
        assert "'x' is not a valid time" in run.state.failure.message

    def test_need_to_say_of_which_zone_it_is(self):
        nowhere = {"at": "2027-01-01T08:00:00"}
        run = Played(graph(DelayNode(id="d", delay_ms=0, until="{{ value.at }}")), nowhere)

        assert run.state.failure is not None
        assert "zone" in run.state.failure.message

    def test_are_over_at_that_time(self):
        at = "2027-01-01T08:00:00+01:00"
        run = Played(graph(DelayNode(id="d", delay_ms=0, until="{{ value.at }}")), {"at": at})
        [wait] = run.decision.waits
        assert (wait.type, wait.due_at) == (WaitType.TIMER, datetime(2027, 1, 1, 7, tzinfo=UTC))
        run.due("d")
        assert run.result == {"at": at}


class TestFilteredSignals:
    WHERE: ClassVar[dict[str, str]] = {"property": "order", "op": "eq", "value": "{{ id }}"}

    def _run(self) -> Played:
        node = replace(signal("s"), where=self.WHERE, inputs=named(id="input.id"))
        return Played(chain(node, task("end")), {"id": 7})

    def test_take_only_a_payload_that_fits(self):
        run = self._run()
        [wait] = run.decision.waits
        assert b'"value":7' in wait.detail

        run.signal("go", {"order": 8})
        run.signal("go", "no object")
        assert run.status == RunStatus.WAITING
        run.signal("go", {"order": 7, "paid": True})

        assert run.inputs["end"] == {"order": 7, "paid": True}
        assert dict(run.state.signals) == {"go": (2, 3)}

    def test_a_payload_that_is_no_object_has_no_properties(self):
        first = {"property": "0", "op": "eq", "value": "x"}
        none = {"property": "0", "op": "exists", "value": False}
        run = Played(graph(signal("s", where=first), signal("other", where=none)))
        run.signal("go", ["x"])

        assert list(run.live) == ["s"]
        assert run.output("other") == ["x"]

    def test_find_the_one_that_fits_among_those_that_came_before(self):
        node = replace(signal("s"), where=self.WHERE, inputs=named(id="input.id"))
        run = Played(chain(task("a"), node, task("end")), {"id": 7})
        run.signal("go", {"order": 8})
        run.signal("go", {"order": 7})
        run.finish("a")

        assert run.inputs["end"] == {"order": 7}

    def test_two_waits_each_get_their_own(self):
        nodes = [
            replace(signal(f"s{n}"), where={"property": "n", "op": "eq", "value": n})
            for n in (1, 2)
        ]
        run = Played(graph(*nodes))
        run.signal("go", {"n": 2})
        run.signal("go", {"n": 1})

        assert (run.output("s1"), run.output("s2")) == ({"n": 1}, {"n": 2})
