"""What follows when a node fails for good: handled, the run's end, and what is undone."""

from __future__ import annotations

import pytest

from perdure.model.event import CompensationStarted, UndoFailed
from perdure.model.run import LiveType, NodeStatus, RunStatus
from tests.engine.graphs import call, chain, child, delay, graph, loop, mapped, signal, task
from tests.engine.played import Played, failure

JOB, WAIT = LiveType.JOB, LiveType.WAIT


class TestHandled:
    def test_continue_goes_on_with_null(self):
        run = Played(chain(task("a", on_error="continue"), task("b")))
        run.fail("a")

        assert run.inputs["b"] is None
        assert run.status == RunStatus.RUNNING
        assert run.state.nodes["a"].has_failed

    def test_a_port_gets_what_went_wrong(self):
        nodes = task("a", on_error="oops"), task("b"), task("mend")
        run = Played(graph(*nodes, edges="a b, a.oops mend"))
        run.fail("a", "no money")

        assert run.inputs["mend"] == {"type": "OSError", "message": "no money"}
        assert run.nodes["b"] is NodeStatus.SKIPPED

    def test_a_port_of_errors_is_skipped_when_all_is_well(self):
        nodes = task("a", on_error="oops"), task("b"), task("mend"), task("join")
        run = Played(graph(*nodes, edges="a b, a.oops mend, b join, mend join"))
        run.finish("a", 1)
        assert run.nodes["mend"] is NodeStatus.SKIPPED

        run.finish("b", 2)
        assert run.inputs["join"] == 2


class TestStop:
    GRAPH = graph(task("a"), task("b"), signal("s"), task("join"), edges="a join, b join, s join")

    def test_a_failure_ends_the_run_and_whatever_is_live(self):
        run = Played(self.GRAPH)
        run.fail("b", "broken")

        assert run.status == RunStatus.FAILED
        assert (run.state.failure, run.state.failed_node) == (failure("broken"), "b")
        assert run.live == {}
        assert run.decision.cancel_all
        assert run.nodes == {
            "a": NodeStatus.CANCELLED,
            "b": NodeStatus.FAILED,
            "s": NodeStatus.CANCELLED,
        }

    def test_nothing_counts_after_the_end(self):
        run = Played(self.GRAPH)
        run.fail("b")
        number = run.state.number

        for late in (run.finish("a"), run.fail("a"), run.due("s")):
            assert late.events == []
        assert run.attempt_failed("a").events == []
        assert run.state.number == number

    def test_what_the_same_decision_was_to_start_is_not_started(self):
        run = Played(graph(task("a"), task("b"), mapped("m"), child("c"), edges="a b, a m, a c"))
        decision = run.finish("a", "no list")

        assert run.status == RunStatus.FAILED
        assert (decision.schedules, decision.waits, decision.children) == ([], [], [])
        assert run.nodes["b"] is NodeStatus.CANCELLED


class TestFinish:
    def test_other_branches_are_finished_first(self):
        nodes = task("a"), task("b"), task("after_b"), task("join")
        run = Played(graph(*nodes, edges="b after_b, a join, after_b join", on_failure="finish"))
        run.fail("a", "first")
        assert run.status == RunStatus.RUNNING
        assert run.live == {"b": JOB}

        run.finish("b")
        assert run.live == {"after_b": JOB}
        run.finish("after_b")

        assert run.status == RunStatus.FAILED
        assert run.nodes["join"] is NodeStatus.BLOCKED
        assert (run.state.failed_node, run.state.failure) == ("a", failure("first"))

    def test_the_first_of_several_failures_is_told(self):
        run = Played(graph(task("a"), task("b"), on_failure="finish"))
        run.fail("b", "first")
        run.fail("a", "second")

        assert run.state.failed_node == "b"

    def test_a_join_behind_a_failure_is_blocked_though_others_arrive(self):
        run = Played(graph(task("a"), task("b"), task("j"), edges="a j, b j", on_failure="finish"))
        run.finish("b")
        run.fail("a")

        assert run.nodes["j"] is NodeStatus.BLOCKED
        assert "j" not in run.started

    def test_everything_behind_is_blocked(self):
        run = Played(chain(task("a"), task("b"), delay("d"), on_failure="finish"))
        run.fail("a")

        assert (run.nodes["b"], run.nodes["d"]) == (NodeStatus.BLOCKED, NodeStatus.BLOCKED)
        assert run.status == RunStatus.FAILED

    def test_the_items_of_a_failed_map_are_given_up(self):
        run = Played(graph(mapped("m"), task("other"), on_failure="finish"), [1, 2, 3])
        run.finish("m[0]")
        run.fail("m[2]")

        assert run.decision.cancel_keys == ["m[1]"]
        assert run.live == {"other": JOB}

    def test_a_node_with_an_unusable_input_does_not_stop_the_others(self):
        nodes = task("a"), mapped("m"), task("b")
        run = Played(graph(*nodes, edges="a m, a b", on_failure="finish"))
        run.finish("a", "no list")

        assert run.live == {"b": JOB}
        run.finish("b")
        assert (run.status, run.state.failed_node) == (RunStatus.FAILED, "m")


class TestCompensation:
    GRAPH = chain(task("a", undo=True), task("b"), task("c", undo=True), task("d", undo=True))

    def failed(self) -> Played:
        run = Played(self.GRAPH)
        for id in ("a", "b", "c"):
            run.finish(id, f"did {id}")
        run.fail("d", "broken")
        return run

    def test_completed_nodes_are_undone_in_reverse(self):
        run = self.failed()
        assert run.status == RunStatus.COMPENSATING
        assert run.live == {"undo:c": JOB}
        assert run.inputs["undo:c"] == "did c"
        assert [each.call.task for each in run.decision.schedules] == ["undo_c"]
        assert run.decision.cancel_all

        run.finish("undo:c")
        assert run.inputs["undo:a"] == "did a"
        run.finish("undo:a")

        assert run.status == RunStatus.FAILED
        assert (run.state.failed_node, run.state.failure) == ("d", failure("broken"))
        assert run.live == {}

    def test_the_order_is_that_of_completion(self):
        run = Played(
            graph(
                task("x", undo=True),
                loop("l", undo=call("undo_l")),
                task("end"),
                edges="x end, l end",
            )
        )
        run.finish("l#1", "looped")
        run.finish("x")
        run.finish("check:l#1", True)  # whose output is older than that of x
        run.fail("end")

        [started] = [e for e in run.log.events if isinstance(e, CompensationStarted)]
        assert started.undoes == ("l", "x")
        assert run.inputs["undo:l"] == "looped"

    def test_an_undo_that_fails_does_not_keep_the_others_from_it(self):
        run = self.failed()
        run.attempt_failed("undo:c")
        run.fail("undo:c", "cannot")

        assert isinstance(run.log.events[-1], UndoFailed)
        assert run.live == {"undo:a": JOB}
        run.finish("undo:a")
        assert run.status == RunStatus.FAILED

    def test_what_failed_and_was_gone_on_from_is_not_undone(self):
        run = Played(chain(task("a", undo=True, on_error="continue"), task("b")))
        run.fail("a")
        run.fail("b")

        assert run.status == RunStatus.FAILED

    def test_a_map_is_undone_with_all_its_outputs(self):
        run = Played(chain(mapped("m", undo=call("undo_m")), task("b")), [1, 2])
        run.finish("m[0]", "a")
        run.finish("m[1]", "b")
        run.fail("b")

        assert run.inputs["undo:m"] == ["a", "b"]

    def test_a_late_outcome_of_the_run_does_not_matter_meanwhile(self):
        run = self.failed()

        assert run.finish("d").events == []
        assert run.signal("go").events != []  # kept, and taken by nobody
        assert run.status == RunStatus.COMPENSATING

    @pytest.mark.parametrize("compensates", [True, False])
    def test_a_cancelled_run_is_undone_if_asked(self, compensates):
        run = Played(self.GRAPH)
        run.finish("a", 1)
        run.cancel(compensates=compensates, reason="out of stock")

        if compensates:
            assert run.status == RunStatus.COMPENSATING
            run.finish("undo:a")
        assert run.status == RunStatus.CANCELLED
        assert (run.state.reason, run.state.by) == ("out of stock", "ops")
        assert run.nodes["b"] is NodeStatus.CANCELLED

    def test_a_cancelled_run_with_nothing_to_undo_ends_at_once(self):
        run = Played(self.GRAPH)
        run.cancel(compensates=True)

        assert run.status == RunStatus.CANCELLED

    def test_a_pause_meanwhile_keeps_why_it_was_cancelled(self):
        run = Played(self.GRAPH)
        run.finish("a")
        run.cancel(compensates=True, reason="out of stock")
        run.pause(reason="maintenance", by="night shift")
        assert run.status == RunStatus.PAUSED
        assert run.finish("undo:a").events == []

        run.unpause()
        assert run.status == RunStatus.COMPENSATING
        run.finish("undo:a")
        assert (run.state.reason, run.state.by) == ("out of stock", "ops")

    def test_cancelling_meanwhile_lets_it_go_on(self):
        run = self.failed()
        assert run.cancel(compensates=True).events == []

        run.pause()
        run.cancel(compensates=True)
        assert run.decision.suspend is False
        assert run.status == RunStatus.COMPENSATING

    def test_cancelling_without_compensation_breaks_it_off(self):
        run = self.failed()
        run.cancel()

        assert run.status == RunStatus.CANCELLED
        assert run.decision.cancel_all
        assert run.state.nodes["c"].is_undone  # nobody knows how far it came
        assert not run.state.nodes["a"].is_undone
