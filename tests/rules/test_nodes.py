"""How each node type starts, continues, waits and ends."""

from __future__ import annotations

import tracemalloc
from datetime import timedelta

import pytest
from msgspec import UNSET

from perdure import Flow
from perdure.engine.completion import MAP_OUTPUT_MAX_BYTES
from perdure.engine.decider import MAP_CONCURRENCY_MAX
from perdure.engine.plan import MAP_WINDOW
from perdure.errors import InvalidFlow, InvalidInput, ValueMissing
from perdure.model.event import NodeFailed
from perdure.model.graph import MAP_ITEMS_MAX, FlowRef
from perdure.model.ids import Key
from perdure.model.run import LiveType, NewWait, NodeStatus, RunStatus, WaitType
from tests.rules.flow_samples import pack
from tests.rules.graphs import (
    CHILD,
    approval,
    call,
    chain,
    child,
    delay,
    graph,
    loop,
    mapped,
    named,
    route,
    signal,
    task,
)
from tests.rules.played import Played, failure
from tests.support.refusal import refused

JOB, WAIT = LiveType.JOB, LiveType.WAIT
RUNNING, WAITING = RunStatus.RUNNING, RunStatus.WAITING
COMPLETED, FAILED = RunStatus.COMPLETED, RunStatus.FAILED


class TestTasks:
    def test_a_run_starts_every_node_that_nothing_comes_before(self):
        run = Played(graph(task("a"), task("b"), task("c"), edges="a c, b c"), 7)
        assert run.live == {"a": JOB, "b": JOB}
        assert run.inputs == {"a": 7, "b": 7}
        assert run.status == RUNNING

    def test_a_chain_hands_outputs_on_and_ends_with_the_last(self):
        run = Played(chain(task("a"), task("b")), 1)
        run.finish("a", 2)
        assert run.inputs["b"] == 2
        run.finish("b", 3)
        assert run.result == 3
        assert run.types == ["RunSubmitted", "NodeCompleted", "NodeCompleted", "RunCompleted"]

    @pytest.mark.parametrize("value", [0, False, "", [], {}, None])
    def test_falsy_values_come_through_as_they_are(self, value):
        run = Played(chain(task("a"), task("b")), value)
        assert run.inputs["a"] == value
        run.finish("a", value)
        assert run.inputs["b"] == value
        run.finish("b", value)
        assert run.result == value
        assert type(run.result) is type(value)

    def test_a_failed_attempt_is_reported_and_changes_nothing_else(self):
        run = Played(chain(task("a")))
        before = run.state
        run.attempt_failed("a")
        assert run.types[-1] == "NodeRetried"
        assert (run.state.live, run.state.nodes) == (before.live, before.nodes)

    def test_an_outcome_counts_once(self):
        run = Played(chain(task("a"), task("b")))
        run.finish("a", 1)
        assert run.finish("a", 2).events == []
        assert run.fail("a").events == []
        assert run.output("a") == 1


class TestForkAndJoin:
    GRAPH = graph(
        task("a"),
        task("left"),
        task("right"),
        task("join", gathers=True),
        edges="a left, a right, left join as l, right join as r",
    )

    @pytest.mark.parametrize("order", [("left", "right"), ("right", "left")])
    def test_a_join_waits_for_all_and_gets_them_by_name(self, order):
        run = Played(self.GRAPH)
        run.finish("a", 5)
        assert run.live == {"left": JOB, "right": JOB}
        assert (run.inputs["left"], run.inputs["right"]) == (5, 5)
        run.finish(order[0], f"from {order[0]}")
        assert "join" not in run.nodes
        run.finish(order[1], f"from {order[1]}")
        assert run.inputs["join"] == {"l": "from left", "r": "from right"}
        assert run.started.count("join") == 1

    def test_several_ends_give_the_first_or_all_by_name(self):
        nodes = task("a"), task("b"), task("c")
        one = Played(graph(*nodes, edges="a b, a c"))
        all = Played(graph(*nodes, edges="a b, a c", gathers=True))
        for run in (one, all):
            run.finish("a")
            run.finish("c", "c")
            run.finish("b", "b")

        assert one.result == "b"
        assert all.result == {"b": "b", "c": "c"}

    def test_a_fast_branch_does_not_wait_for_its_sibling(self):
        run = Played(graph(task("slow"), task("a"), task("b"), edges="a b"))
        run.finish("a")
        assert run.live == {"slow": JOB, "b": JOB}


def large(size: int = 48) -> dict[str, str]:
    """A value of so many bytes."""
    return {"k": "x" * (size - 8)}


class TestValuesTogether:
    """Values that become one, or that one commit writes, are bounded together."""

    def joined(self, **options):
        nodes = task("a"), task("b"), task("c", gathers=True, **options), task("end")
        return graph(*nodes, edges="a c, b c, c end, c.large end")

    def named(self, **options):
        inputs = named(x="a.output", y="a.output.k", z="b.output.none")
        node = task("c", inputs=inputs, on_missing="default", **options)
        nodes = task("a"), task("b"), node, task("end")
        return graph(*nodes, edges="a b, b c, c end, c.large end")

    def played(self, graph, most):
        run = Played(graph, gathered_max_bytes=most)
        run.finish("a", large())
        run.finish("b", large())
        return run

    @pytest.mark.parametrize("form, size", [("joined", 96), ("named", 48 + 42 + 4)])
    def test_inputs_that_are_too_large_fail_their_node(self, form, size):
        """Finding 8: 250 inputs of one output of 1 MB took 1 GB; each use of it counts.

        Runs of earlier versions have no limit.
        """
        flow = getattr(self, form)()
        assert "c" in self.played(flow, size).live
        assert "c" in self.played(flow, 0).live
        run = self.played(flow, size - 1)
        for _ in range(2):
            assert (run.status, run.state.failed_node) == (FAILED, "c")
            assert run.failure.code == "node.inputs_too_large"
            run.retry()

    @pytest.mark.parametrize("form", ["joined", "named"])
    @pytest.mark.parametrize("on_error", ["continue", "large"])
    def test_the_on_error_of_their_node_applies(self, form, on_error):
        """Finding 8: the failure is one of the node."""
        run = self.played(getattr(self, form)(on_error=on_error, ports=("large",)), 90)
        assert list(run.live) == ["end"]

    def test_one_value_alone_is_never_too_large(self):
        """Finding 8: it is a payload, or the output of a map, which have limits of their own."""
        nodes = task("a"), task("b", inputs=named(x="a.output")), task("c", gathers=True)
        run = Played(chain(*nodes, gathers=True), large(), gathered_max_bytes=9)
        for node in "abc":
            run.finish(node, large())
        assert run.result == {"c": large()}

    def test_a_result_that_is_too_large_fails_the_run_which_is_undone(self):
        """Finding 8: a fork without a join stored a result of 250 MB."""
        ends = graph(task("a", undo=True), task("b"), gathers=True)
        assert self.played(ends, 96).result == {"a": large(), "b": large()}
        run = self.played(ends, 95)
        run.finish("undo:a")
        assert (run.status, run.state.failed_node) == (FAILED, "")
        assert run.failure.code == "run.result_too_large"

    def test_nodes_that_start_at_once_are_bounded_together(self):
        """Finding 8: a fork stored a copy of its input for each of its 250 branches."""
        branches = (task(id, on_error="continue") for id in "bcde")
        run = Played(
            graph(task("a"), *branches, edges="a b, a c, a d, a e"), gathered_max_bytes=100
        )
        run.finish("a", large())
        failed = [event for event in run.log.events if isinstance(event, NodeFailed)]
        assert {each.key: each.failure.code for each in failed} == dict.fromkeys(
            "de", "node.starts_too_large"
        )
        assert run.live.keys() == {"b", "c"}

    def test_requests_of_approvals_count_with_them(self):
        """Finding 8: each of them shows the input."""
        run = Played(graph(approval("a"), approval("b")), large(500), gathered_max_bytes=2_000)
        assert (run.status, run.state.failed_node) == (FAILED, "b")
        assert run.failure.code == "node.starts_too_large"

    def test_small_values_count_more_than_their_json(self):
        """Finding 8: 50 inputs of 1 MB with 340,000 empty objects each took 1.3 GB."""
        inputs = named(**{f"i{n}": "a.output" for n in range(50)})
        flow = chain(task("a"), task("b", inputs=inputs))
        for value, is_refused in (([{}] * 9, True), ("x" * 30, False), (',"[{' * 7, False)):
            run = Played(flow, gathered_max_bytes=3_000)
            run.finish("a", value)
            assert (run.status == FAILED) is is_refused

    def test_what_was_live_starts_again_however_large(self):
        """Finding 8: nodes that did not start at once would fail each retry of their run."""
        run = Played(graph(*map(task, "abcd"), edges="a c, b d"), gathered_max_bytes=50)
        run.finish("a", large())
        run.finish("b", large())
        run.fail("c")
        run.retry()
        assert run.live.keys() == {"c", "d"}

    def test_a_decision_that_refuses_takes_no_memory(self):
        """Finding 8: a node with 250 inputs of 1 MB each took 1,042 MB."""
        inputs = named(**{f"i{n}": "a.output" for n in range(250)})
        run = Played(chain(task("a"), task("b", inputs=inputs)), checks=False)
        tracemalloc.start()
        try:
            run.finish("a", large(2**20))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert run.failure.code == "node.inputs_too_large"
        assert peak < 16 * 2**20


class TestRoutes:
    GRAPH = graph(
        route("kind", "pay", "default"),
        task("charge"),
        task("ask"),
        task("join"),
        edges="kind.pay charge, kind.default ask, charge join, ask join",
    )

    def test_continues_from_the_port_of_the_key_with_its_own_input(self):
        run = Played(self.GRAPH, {"amount": 3})
        run.finish("kind", "pay")
        assert run.live == {"charge": JOB}
        assert run.inputs["charge"] == {"amount": 3}
        assert run.nodes["ask"] is NodeStatus.SKIPPED
        run.finish("charge", "paid")
        assert run.inputs["join"] == "paid"  # which the skipped branch does not block

    @pytest.mark.parametrize("key", ["other", None, 1.5, ["pay"], {}])
    def test_an_unknown_key_takes_the_default(self, key):
        run = Played(self.GRAPH)
        run.finish("kind", key)
        assert run.live == {"ask": JOB}

    def test_an_unknown_key_without_a_default_fails(self):
        run = Played(graph(route("kind", "a", "b"), task("x"), edges="kind.a x"))
        run.finish("kind", "c")
        assert run.status == FAILED
        assert run.failure.code == "node.no_branch"

    @pytest.mark.parametrize("key, port", [(True, "true"), (False, "false"), (7, "7")])
    def test_booleans_and_numbers_are_keys(self, key, port):
        run = Played(graph(route("kind", port, "no"), task("x"), edges=f"kind.{port} x"))
        run.finish("kind", key)
        assert run.live == {"x": JOB}

    def test_both_ports_may_lead_to_one_node(self):
        run = Played(graph(route("r", "a", "b"), task("x"), edges="r.a x, r.b x"), 4)
        run.finish("r", "b")
        assert run.inputs["x"] == 4
        assert run.started.count("x") == 1

    def test_skipping_continues_to_the_end(self):
        run = Played(
            graph(route("r", "a", "b"), task("x"), task("y"), task("z"), edges="r.a x, x y, r.b z")
        )
        run.finish("r", "b")
        assert (run.nodes["x"], run.nodes["y"]) == (NodeStatus.SKIPPED, NodeStatus.SKIPPED)
        run.finish("z", 1)
        assert run.result == 1

    def test_a_run_that_ends_on_a_port_that_leads_nowhere_gives_its_input(self):
        run = Played(graph(route("r", "a", "b"), task("x"), edges="r.a x"), 1)
        run.finish("r", "b")
        assert run.nodes["x"] is NodeStatus.SKIPPED
        assert run.result == 1


class TestMaps:
    def test_runs_one_job_for_each_item_and_keeps_their_order(self):
        run = Played(chain(mapped("m"), task("end")), ["x", "y", "z"])
        assert run.inputs == {"m[0]": "x", "m[1]": "y", "m[2]": "z"}
        for item in (2, 0, 1):
            run.finish(f"m[{item}]", f"did {item}")
        assert run.inputs["end"] == ["did 0", "did 1", "did 2"]
        assert not run.state.maps  # done with

    def test_an_empty_list_is_completed_at_once(self):
        run = Played(chain(mapped("m"), task("end")), [])
        assert run.inputs == {"end": []}
        assert run.live == {"end": JOB}

    def test_goes_over_the_list_under_a_key(self):
        run = Played(chain(mapped("m", over="lines")), {"lines": [1, 2]})
        assert run.inputs == {"m[0]": 1, "m[1]": 2}

    @pytest.mark.parametrize(
        "over, input, code",
        [
            (None, {"a": 1}, "node.not_a_list"),
            ("lines", [1], "node.input_not_an_object"),
            ("lines", {"x": 1}, "node.no_such_key"),
            ("lines", {}, "node.no_such_key"),
            ("lines", {"lines": 3}, "node.not_a_list"),
        ],
    )
    def test_an_input_without_a_list_fails_the_node(self, over, input, code):
        run = Played(chain(task("a"), mapped("m", over=over)))
        run.finish("a", input)
        assert (run.status, run.state.failed_node) == (FAILED, "m")
        assert run.failure.code == code

    def test_a_window_lets_so_many_run_at_once(self):
        run = Played(chain(mapped("m", concurrency=2)), [10, 11, 12, 13])
        assert sorted(run.live) == ["m[0]", "m[1]"]

        run.finish("m[1]")
        assert sorted(run.live) == ["m[0]", "m[2]"]
        assert run.inputs["m[2]"] == 12

        for key in ("m[0]", "m[3]", "m[2]"):
            run.finish(key, key)
        assert run.result == ["m[0]", None, "m[2]", "m[3]"]
        assert run.started == ["m[0]", "m[1]", "m[2]", "m[3]"]

    def test_a_long_list_is_started_in_windows_and_keeps_its_order(self):
        """Finding 8: a map over 520,000 items started them all in one commit."""
        count, window = 3 * MAP_WINDOW, MAP_WINDOW
        run = Played(chain(mapped("m")), list(range(count)), checks=False)
        assert len(run.live) == len(run.decision.schedules) == window
        steps = [0]
        for item in reversed(range(window)):
            run.finish(f"m[{item}]", item)
            steps.append(len(run.decision.schedules))
            assert len(run.live) <= window
        assert set(steps) == {0, window // 2}  # many at a time, not one by one

        while run.live:
            run.finish(next(iter(run.live)), Key.parse(next(iter(run.live))).item)
        assert run.result == list(range(count))
        assert len(set(run.started)) == len(run.started) == count

    @pytest.mark.parametrize("window, concurrency, started", [(0, None, 9), (4, 6, 6), (4, 99, 9)])
    def test_a_concurrency_is_the_window_and_earlier_runs_have_none(
        self, window, concurrency, started
    ):
        run = Played(chain(mapped("m", concurrency=concurrency)), [0] * 9, map_window=window)
        assert len(run.live) == started

    def test_no_concurrency_makes_one_commit_larger_than_this(self):
        """Finding 8: what one commit writes is bounded, whatever a definition says."""
        nodes = mapped("m", concurrency=10**9, items_max=10**6)
        run = Played(chain(nodes), [0] * (MAP_CONCURRENCY_MAX + 2), checks=False)
        assert len(run.live) == MAP_CONCURRENCY_MAX
        run.finish("m[0]")
        assert len(run.live) == MAP_CONCURRENCY_MAX

    def test_a_map_in_a_child_may_start_with_few_items_and_catches_up(self):
        """Finding 8: a map in a map started the items of all its children in one commit."""
        run = Played(chain(mapped("m")), [0] * 9, map_window=8, first_items=2)
        assert len(run.live) == 2
        run.finish("m[0]")
        assert len(run.live) == 8

    @pytest.mark.parametrize("items_max, code", [(3, "node.too_many_items"), (4, None)])
    def test_items_max_bounds_the_list(self, items_max, code):
        """Finding 8: a list of any length was accepted; the failure is one of the node."""
        run = Played(chain(task("a"), mapped("m", items_max=items_max), task("end")))
        run.finish("a", [1, 2, 3, 4])
        assert (run.state.failure and run.failure.code) == code
        assert run.state.failed_node == ("m" if code else "")
        node = mapped("m", items_max=items_max, on_error="continue")
        run = Played(chain(node, task("end")), [1, 2, 3, 4])
        assert ("end" in run.live) is (code is not None)

    def test_items_max_has_a_default_that_runs_of_earlier_versions_do_not_have(self):
        """Finding 8: nor are runs refused that were stored before there was a limit."""
        many = [0] * (MAP_ITEMS_MAX + 1)
        for window, live in ((MAP_WINDOW, 0), (0, len(many))):
            run = Played(chain(task("a"), mapped("m")), map_window=window, checks=False)
            run.finish("a", many)
            assert len(run.live) == live

    @pytest.mark.parametrize("body", [None, CHILD])
    @pytest.mark.parametrize("on_error", ["fail", "continue"])
    def test_outputs_that_are_too_large_together_fail_their_items(self, on_error, body):
        """Finding 8: the outputs of all items were loaded at once, whatever their size."""
        large = "x" * (MAP_OUTPUT_MAX_BYTES // 2 - 100)
        nodes = mapped("m", body, on_error=on_error)
        run = Played(chain(nodes), [0, 1, 2, 3], checks=False)
        finish = run.child_completed if body else run.finish
        for item, output in ((0, large), (3, large), (1, "small"), (2, large)):
            if f"m[{item}]" in run.live:
                finish(f"m[{item}]", output)

        failed = [event for event in run.log.events if isinstance(event, NodeFailed)]
        assert [(each.key, each.failure.code) for each in failed] == [
            ("m[2]", "node.outputs_too_large")
        ]
        if on_error == "continue":
            assert run.result == [large, "small", None, large]
        else:
            assert run.status == FAILED

    def test_a_retry_in_the_middle_starts_the_window_again(self):
        run = Played(chain(mapped("m"), task("end")), list(range(9)), map_window=4)
        run.finish("m[2]", 2)
        run.finish("m[0]", 0)
        assert sorted(run.live) == ["m[1]", "m[3]", "m[4]", "m[5]"]
        run.fail("m[3]")
        assert run.status == FAILED

        run.retry()

        assert sorted(run.live) == ["m[1]", "m[3]", "m[4]", "m[5]"]
        while "end" not in run.live:
            run.finish(next(iter(run.live)), Key.parse(next(iter(run.live))).item)
        assert run.inputs["end"] == list(range(9))

    def test_a_version_with_another_concurrency_keeps_to_it(self):
        run = Played(chain(mapped("m")), list(range(9)), map_window=4)
        run.migrate(chain(mapped("m", concurrency=1)))
        for item in range(4):
            run.finish(f"m[{item}]", item)
        assert list(run.live) == ["m[4]"]
        run.migrate(chain(mapped("m", concurrency=3)))
        run.finish("m[4]", 4)
        assert sorted(run.live) == ["m[5]", "m[6]", "m[7]"]

    def test_items_are_not_remembered_from_a_decision_that_came_to_nothing(self):
        run = Played(chain(task("a"), mapped("m", concurrency=1), task("end")))
        refused = Played(run.graph)
        refused.log.lists = run.log.lists
        refused.finish("a", ["wrong", "wrong"])
        run.finish("a", [1, 2])
        run.finish("m[0]")
        assert run.inputs["m[1]"] == 2

    def test_a_failed_item_fails_the_run(self):
        run = Played(chain(mapped("m"), task("end")), [1, 2, 3])
        run.finish("m[0]")
        run.fail("m[1]", "no")
        assert run.status == FAILED
        assert (run.nodes["m"], run.live) == (NodeStatus.FAILED, {})
        assert run.decision.cancel_all

    def test_a_failed_item_may_count_as_null(self):
        run = Played(chain(mapped("m", on_error="continue", concurrency=1)), [1, 2, 3])
        run.finish("m[0]", "a")
        run.fail("m[1]")
        run.finish("m[2]", "c")
        assert run.result == ["a", None, "c"]

    def test_a_failed_item_may_lead_to_a_port_and_the_others_are_given_up(self):
        run = Played(
            graph(
                mapped("m", on_error="oops", concurrency=3),
                task("after"),
                task("mend"),
                edges="m after, m.oops mend",
            ),
            [1, 2, 3, 4],
        )
        run.finish("m[0]")
        run.fail("m[2]", "no")

        assert sorted(run.decision.cancel_keys) == ["m[1]", "m[3]"]
        assert run.inputs["mend"] == {"type": "OSError", "message": "no"}
        assert run.live == {"mend": JOB}
        assert run.nodes["after"] is NodeStatus.SKIPPED
        assert run.finish("m[1]").events == []

    def test_items_may_be_runs_of_their_own(self):
        run = Played(chain(mapped("m", CHILD)), ["a", "b"])
        assert dict(run.state.children) == {"m[0]": "run/m[0]", "m[1]": "run/m[1]"}
        assert run.status == WAITING
        run.child_completed("m[1]", 2)
        run.child_completed("m[0]", 1)
        assert run.result == [1, 2]


class TestLoops:
    def test_goes_round_on_its_own_output_until_it_is_done(self):
        run = Played(chain(loop("l"), task("end")), 0)
        run.finish("l#1", 1, is_done=False)
        assert run.inputs["l#2"] == 1
        run.finish("l#2", 2, is_done=True)
        assert run.inputs["end"] == 2
        assert run.live == {"end": JOB}

    @pytest.mark.parametrize("body", [call("poll"), CHILD])
    def test_is_checked_unless_the_outcome_says_whether_it_is_done(self, body):
        run = Played(chain(loop("l", body), task("end")), 0)
        end_iteration = run.child_completed if isinstance(body, FlowRef) else run.finish
        end_iteration("l#1", 10)
        assert run.live == {"check:l#1": JOB}
        assert run.inputs["check:l#1"] == 10

        run.finish("check:l#1", False)
        assert run.inputs["l#2"] == 10
        end_iteration("l#2", 20)
        run.finish("check:l#2", True)

        assert run.inputs["end"] == 20
        assert run.output("l") == 20
        assert run.live == {"end": JOB}

    @pytest.mark.parametrize("is_asked_along", [True, False])
    @pytest.mark.parametrize("on_max", ["fail", "continue", "enough"])
    def test_after_the_last_iteration(self, on_max, is_asked_along):
        run = Played(
            graph(
                loop("l", iterations_max=2, on_max=on_max),
                task("end"),
                task("more"),
                edges="l end, l.enough more",
            ),
            0,
        )
        for iteration in (1, 2):
            if is_asked_along:
                run.finish(f"l#{iteration}", iteration, is_done=False)
            else:
                run.finish(f"l#{iteration}", iteration)
                run.finish(f"check:l#{iteration}", False)

        if on_max == "fail":
            assert run.status == FAILED
            assert run.failure.type == "perdure.errors.LoopExhausted"
            assert run.failure.code == "node.loop_not_done"
        else:
            target = "end" if on_max == "continue" else "more"
            assert run.live == {target: JOB}
            assert run.inputs[target] == 2

    @pytest.mark.parametrize("answer", [True, 1, "yes", [0], False, 0, "", None, []])
    def test_whatever_is_true_ends_it_and_what_is_false_continues_it(self, answer):
        run = Played(chain(loop("l")), 0)
        run.finish("l#1", 1)
        run.finish("check:l#1", answer)
        assert run.live == ({} if answer else {"l#2": JOB})
        assert run.status == (COMPLETED if answer else RUNNING)

    @pytest.mark.parametrize("key", ["l#1", "check:l#1"])
    def test_a_failed_part_fails_the_loop_or_leads_to_its_port(self, key):
        for on_error in ("fail", "continue", "oops"):
            nodes = loop("l", on_error=on_error), task("end"), task("mend")
            run = Played(graph(*nodes, edges="l end, l.oops mend"), 0)
            if key != "l#1":
                run.finish("l#1", 1)
            run.fail(key)

            assert (
                run.live == {"fail": {}, "continue": {"end": JOB}, "oops": {"mend": JOB}}[on_error]
            )


# What nodes that wait do: for a time, for a signal, for a child.


class TestDelays:
    def test_waits_and_hands_its_input_on(self):
        run = Played(chain(task("a"), delay("d", 5000), task("b")))
        run.finish("a", "kept")

        assert run.decision.waits == [
            NewWait(key="d", type=WaitType.TIMER, delay=timedelta(seconds=5))
        ]
        assert run.status == WAITING

        run.due("d")
        assert run.decision.close_waits == ["d"]
        assert run.inputs["b"] == "kept"
        assert run.due("d").events == []


WANTED = {"property": "order", "op": "eq", "value": 7}

COSTLY = {"any": [{"property": "list", "op": "contains", "value": 7}] * 500}
COSTLY_PAYLOAD = {"list": [1] * 20_000}


class TestSignals:
    def test_an_arriving_signal_is_the_only_one_looked_at(self):
        """Finding 3: each signal was compared with all unread ones, loaded one by one."""
        run = Played(chain(signal("s", where=WANTED), task("end")))
        for order in range(5):
            run.signal("go", {"order": order})
        for number in run.state.signals["go"]:
            del run.log.values[number]  # as of a run that was loaded from a snapshot
        run.signal("go", {"order": 7})
        assert run.inputs["end"] == {"order": 7}
        assert len(run.state.signals["go"]) == 5

    @pytest.mark.parametrize("is_resumed", [False, True])
    def test_unread_signals_are_asked_for_all_at_once(self, is_resumed):
        """Finding 3: each unread signal took a read and a decision of its own."""
        run = Played(chain(task("a"), signal("s", where=WANTED), task("end")))
        if is_resumed:
            run.finish("a")
            run.pause()
        for order in (5, 6, 7):
            run.signal("go", {"order": order})
        unread = run.state.signals["go"]
        kept = {number: run.log.values.pop(number) for number in unread}
        with pytest.raises(ValueMissing) as missing:
            run.unpause() if is_resumed else run.finish("a")
        assert missing.value.numbers == unread
        run.log.values |= kept
        run.unpause() if is_resumed else run.finish("a")
        assert run.inputs["end"] == {"order": 7}

    def test_one_too_costly_to_compare_is_refused_if_a_node_waits(self):
        """Finding 4: the sender gets the error, and nothing is written."""
        run = Played(chain(signal("s", where=COSTLY), task("end")))
        with refused("condition.too_costly", InvalidInput):
            run.signal("go", COSTLY_PAYLOAD)
        assert run.state.number == 1
        run.signal("go", {"list": [7]})
        assert run.inputs["end"] == {"list": [7]}

    @pytest.mark.parametrize("is_resumed", [False, True])
    def test_those_too_costly_to_compare_fail_a_node_that_reaches_them(self, is_resumed):
        """Finding 4: a run must neither hang nor become impossible to resume."""
        run = Played(chain(task("a"), signal("s", where=COSTLY)))
        if is_resumed:
            run.finish("a")
            run.pause()
        run.signal("go", COSTLY_PAYLOAD)
        run.unpause() if is_resumed else run.finish("a")
        assert run.status == RunStatus.FAILED
        assert run.failure.code == "node.invalid_template"
        assert not run.live

    def test_a_condition_that_renders_to_nothing_usable_fails_its_node(self):
        """Finding 3: it failed whoever sent the signal, or the worker that reached the node."""
        where = {"property": "order", "op": "in", "value": "{{ value }}"}
        run = Played(chain(task("a"), signal("s", where=where)))
        run.signal("go", {"order": 1})
        run.finish("a", "not a list")
        assert run.status == RunStatus.FAILED
        assert run.failure.code == "node.invalid_template"

    def test_waits_for_a_signal_and_hands_its_payload_on(self):
        run = Played(chain(signal("s"), task("end")))
        assert run.decision.waits == [NewWait(key="s", type=WaitType.SIGNAL, name="go")]
        assert run.live == {"s": WAIT}
        assert run.due("s").events == []  # it has no timeout
        assert run.decision.close_waits == []
        run.signal("go", {"ok": True})
        assert run.decision.close_waits == ["s"]
        assert run.inputs["end"] == {"ok": True}
        assert not run.state.signals

    def test_a_signal_that_came_before_is_kept(self):
        run = Played(chain(task("a"), signal("s"), task("end")))
        run.signal("go", 1)
        assert dict(run.state.signals) == {"go": (2,)}
        run.finish("a")
        assert run.inputs["end"] == 1
        assert run.decision.waits == []
        assert not run.state.signals

    def test_one_of_another_name_is_kept_too(self):
        run = Played(chain(signal("s"), task("end")))
        run.signal("other", 1)
        assert run.live == {"s": WAIT}
        assert dict(run.state.signals) == {"other": (2,)}

    def test_signals_are_taken_in_the_order_in_which_they_came(self):
        run = Played(chain(task("a"), signal("s1"), signal("s2"), task("end")))
        run.signal("go", "first")
        run.signal("go", "second")
        run.finish("a")
        assert (run.output("s1"), run.output("s2")) == ("first", "second")

    def test_one_signal_is_taken_by_one_wait(self):
        run = Played(chain(signal("s1"), signal("s2"), task("end")))
        run.signal("go", "first")
        assert run.live == {"s2": WAIT}
        run.signal("go", "second")
        assert run.inputs["end"] == "second"

    def test_of_two_waits_the_first_in_the_graph_is_served_first(self):
        run = Played(graph(signal("s1"), signal("s2"), gathers=True))
        run.signal("go", 1)
        assert run.live == {"s2": WAIT}
        run.signal("go", 2)
        assert run.result == {"s1": 1, "s2": 2}

    @pytest.mark.parametrize("value", [None, 0, "none", {"paid": False}, []])
    def test_a_timeout_may_have_a_default(self, value):
        """Finding 17: the wait continues with this value if no signal arrives in time."""
        flow = Flow("f").wait_for_signal("go", timeout="1s", on_timeout={"default": value})
        run = Played(flow.then(pack, name="end").build().graph)
        run.due("go")
        assert (run.inputs["end"], run.nodes["go"]) == (value, "completed")

    @pytest.mark.parametrize(
        "on_timeout, code",
        [
            ({}, "argument.type"),
            ({"value": 1}, "argument.unknown"),
            ({"default": object()}, "payload.not_serializable"),
            ({"default": 1}, "flow.needs_timeout"),
        ],
    )
    def test_a_default_is_checked(self, on_timeout, code):
        """Finding 17: what is no default, or would never be used, is refused."""
        timeout = None if code == "flow.needs_timeout" else "1s"
        flow = Flow("f").wait_for_signal("go", timeout=timeout, on_timeout=on_timeout)
        with refused(code, InvalidFlow):
            flow.build()

    @pytest.mark.parametrize("on_timeout", ["fail", "continue", "late"])
    def test_a_timeout_has_a_defined_outcome(self, on_timeout):
        run = Played(
            graph(
                signal("s", timeout_ms=1000, on_timeout=on_timeout),
                task("end"),
                task("chase"),
                edges="s end, s.late chase",
            )
        )
        assert run.decision.waits[0].delay == timedelta(seconds=1)
        run.due("s")

        if on_timeout == "fail":
            assert run.status == FAILED
            assert run.failure.type == "perdure.errors.WaitTimedOut"
            assert run.failure.code == "node.no_signal"
        else:
            target = "end" if on_timeout == "continue" else "chase"
            assert run.decision.close_waits == ["s"]
            assert run.live == {target: JOB}
            assert run.inputs[target] is None

    def test_a_signal_after_the_timeout_is_kept_and_changes_nothing(self):
        run = Played(chain(signal("s", timeout_ms=1, on_timeout="continue"), task("end")))
        run.due("s")
        run.signal("go", 1)
        assert run.live == {"end": JOB}
        assert dict(run.state.signals) == {"go": (3,)}


class TestChildren:
    def test_a_child_is_a_run_of_its_own(self):
        run = Played(chain(task("a"), child("c"), task("end")))
        run.finish("a", 5)

        [started] = run.decision.children
        assert (started.id, started.flow, started.input) == ("run/c", CHILD, b"5")
        assert run.decision.waits == [NewWait(key="c", type=WaitType.CHILD, name="run/c")]
        assert run.live == {"c": LiveType.CHILD}
        assert run.child_completed("c", 1, run="run/other").events == []
        assert run.decision.close_waits == []

        run.child_completed("c", "done")
        assert run.decision.close_waits == ["c"]
        assert run.inputs["end"] == "done"
        assert dict(run.state.children) == {"c": "run/c"}

    @pytest.mark.parametrize("on_error", ["fail", "continue", "oops"])
    @pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.CANCELLED])
    def test_a_child_that_ended_badly_is_an_error(self, status, on_error):
        nodes = child("c", on_error=on_error), task("end"), task("mend")
        run = Played(graph(*nodes, edges="c end, c.oops mend"))
        broken = failure("child broke") if status is RunStatus.FAILED else None
        run.child_ended("c", status, failure=broken)

        if on_error == "fail":
            assert run.status == FAILED
            assert broken in (run.failure, None)
            assert run.failure.code == (UNSET if broken else "run.child_cancelled")
        elif on_error == "continue":
            assert run.inputs == {"c": None, "end": None}
        else:
            type = "OSError" if broken else "perdure.errors.RunCancelled"
            assert run.inputs["mend"]["type"] == type
