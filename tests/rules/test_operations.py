"""Operations on runs: pause, cancel, retry, fork; and what follows when a node fails for good."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure import ExternalFailed, Retry
from perdure.engine.decide import submit
from perdure.errors import InvalidInput, RunAlreadyPaused, RunEnded, RunNotPaused, RunNotRetryable
from perdure.model.event import CompensationStarted, Effects, Origin, RunForked, UndoFailed
from perdure.model.failure import Failure
from perdure.model.ids import RUN_START, RUN_TIMEOUT
from perdure.model.outcome import Failed
from perdure.model.retry import decode_policy, encode_policy
from perdure.model.run import LiveType, NodeStatus, RunStatus
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.model.trigger import CancelRun, PauseRun, ResumeRun, SendSignal
from perdure.store.admission import starting
from tests.rules.graphs import (
    CHILD,
    call,
    chain,
    child,
    delay,
    graph,
    loop,
    mapped,
    signal,
    task,
)
from tests.rules.played import PARENT, Log, Played, failure
from tests.support.refusal import refused

JOB, WAIT = LiveType.JOB, LiveType.WAIT


class TestPause:
    def test_holds_everything_and_keeps_why(self):
        run = Played(graph(task("a"), signal("s")))
        run.pause(reason="maintenance", by="ops")
        assert run.status == RunStatus.PAUSED
        assert run.decision.suspend is True
        assert (run.state.reason, run.state.by) == ("maintenance", "ops")
        assert run.live == {"a": JOB, "s": WAIT}

    def test_pausing_again_is_refused(self):
        """Finding 38: a second pause was acknowledged without an event."""
        run = Played(chain(task("a")))
        run.pause(reason="first")
        number = run.state.number
        with pytest.raises(RunAlreadyPaused):
            run.pause(reason="second")

        assert run.state.number == number

    def test_the_run_continues_where_it_was(self):
        run = Played(chain(task("a"), task("b")))
        run.pause()
        run.unpause(by="ops")
        assert run.decision.suspend is False
        assert run.status == RunStatus.RUNNING
        assert (run.state.reason, run.state.by) == (None, None)
        run.finish("a")
        assert run.live == {"b": JOB}

    def test_signals_that_come_in_a_pause_are_kept_for_its_end(self):
        """Open waits come before those that open at the end of the pause."""
        run = Played(
            graph(
                signal("first", "t"), signal("then", "s"), signal("open", "s"), edges="first then"
            )
        )
        run.pause()
        run.signal("t", 0)
        run.signal("s", 1)
        assert run.live == {"first": WAIT, "open": WAIT}
        run.unpause()

        assert run.output("open") == 1
        assert sorted(run.decision.close_waits) == ["first", "open"]
        assert run.live == {"then": WAIT}

    def test_an_ended_run_refuses_and_one_that_is_not_paused_to_continue(self):
        run = Played(chain(task("a")))
        with refused("run.not_paused", RunNotPaused, status=RunStatus.RUNNING):
            run.unpause()
        run.finish("a")
        for act in (PauseRun(), ResumeRun(), CancelRun(), SendSignal(name="go", payload=b"1")):
            with refused("run.ended", RunEnded, status=RunStatus.COMPLETED):
                run.happen(act)


class TestCancel:
    def test_ends_everything_that_is_live(self):
        run = Played(graph(task("a"), child("c"), delay("d")))
        run.cancel(reason="out of stock")
        assert run.status == RunStatus.CANCELLED
        assert run.decision.cancel_all
        assert run.live == {}
        assert set(run.nodes.values()) == {NodeStatus.CANCELLED}

    @pytest.mark.parametrize("compensates", [True, False])
    def test_wins_over_a_pause(self, compensates):
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.pause(reason="maintenance")
        run.cancel(reason="out of stock", compensates=compensates)

        assert not run.state.is_paused
        assert run.decision.suspend is False  # or waits of a retry would never be due
        assert run.state.reason == "out of stock"
        expected = RunStatus.COMPENSATING if compensates else RunStatus.CANCELLED
        assert run.status == expected


class TestRetry:
    def test_continues_from_the_failed_node_keeping_what_is_completed(self):
        run = Played(chain(task("a"), task("b"), task("c")))
        run.finish("a", 1)
        run.fail("b")
        run.retry()

        assert run.status == RunStatus.RUNNING
        assert run.live == {"b": JOB}
        assert run.inputs["b"] == 1
        assert (run.state.failure, run.state.failed_node) == (None, "")
        run.finish("b", 2)
        run.finish("c", 3)
        assert run.result == 3
        assert run.started == ["a", "b", "b", "c"]

    def test_starts_siblings_again_that_were_cancelled(self):
        nodes = task("a"), task("b"), delay("d"), task("join", gathers=True)
        run = Played(graph(*nodes, edges="a join, b join, d join"), 9)
        run.finish("a", "kept")
        run.fail("b")
        run.retry()

        assert run.live == {"b": JOB, "d": WAIT}
        run.finish("b", "again")
        run.due("d")
        assert run.inputs["join"] == {"a": "kept", "b": "again", "d": 9}

    def test_starts_what_was_blocked_once_its_way_is_free(self):
        nodes = task("a"), task("b"), task("join"), task("end")
        run = Played(graph(*nodes, edges="a join, b join, join end", on_failure="finish"))
        run.fail("a")
        run.finish("b")
        assert run.nodes["end"] is NodeStatus.BLOCKED
        run.retry()

        assert run.nodes == {"a": NodeStatus.LIVE, "b": NodeStatus.COMPLETED}
        run.finish("a")
        run.finish("join")
        run.finish("end", 1)
        assert run.result == 1

    @pytest.mark.parametrize("concurrency", [None, 2])
    def test_of_a_map_only_unfinished_items_run_again(self, concurrency):
        run = Played(chain(mapped("m", concurrency=concurrency)), ["a", "b", "c", "d"])
        run.finish("m[1]", "B")
        run.fail("m[0]")
        run.retry()

        expected = ["m[0]", "m[2]", "m[3]"] if concurrency is None else ["m[0]", "m[2]"]
        assert sorted(run.live) == expected
        assert run.inputs["m[2]"] == "c"
        for item in (2, 0, 3):
            run.finish(f"m[{item}]", item)
        assert run.result == [0, "B", 2, 3]

    @pytest.mark.parametrize("is_done, key", [(False, "l#2"), (None, "check:l#1")])
    def test_of_a_loop_the_same_part_runs_again(self, is_done, key):
        run = Played(chain(loop("l")), 0)
        run.finish("l#1", 10, is_done=is_done)
        run.fail(key)
        run.retry()
        assert run.live == {key: JOB}
        assert run.inputs[key] == 10

    def test_the_first_iteration_starts_with_the_input_again(self):
        run = Played(chain(loop("l", iterations_max=1)), 5)
        run.finish("l#1", 6, is_done=False)
        assert run.status == RunStatus.FAILED
        run.retry()
        assert run.inputs["l#1"] == 5

    def test_a_child_restarts_under_another_id(self):
        run = Played(chain(child("c"), task("end")), 1)
        run.child_ended("c", RunStatus.FAILED)
        run.retry()
        [started] = run.decision.children
        assert started.id == run.state.children["c"] == "run/c~4"
        assert run.child_completed("c", 1, run="run/c").events == []
        run.child_completed("c", 2)
        assert run.inputs["end"] == 2

    def test_an_unusable_input_fails_again(self):
        run = Played(chain(mapped("m")), "no list")
        assert run.status == RunStatus.FAILED
        run.retry()
        assert run.status == RunStatus.FAILED
        assert run.types[-3:] == ["RunRetried", "NodeFailed", "RunFailed"]

    def test_takes_up_a_signal_that_is_still_there(self):
        run = Played(graph(task("a"), signal("s"), edges="a s"))
        run.signal("go", 1)
        run.fail("a")
        run.retry()
        run.finish("a")
        assert run.result == 1

    def test_restarts_a_cancelled_run(self):
        run = Played(graph(task("a"), signal("s", timeout_ms=5)))
        run.pause()
        run.cancel(reason="wrong button")
        run.retry()
        assert run.live == {"a": JOB, "s": WAIT}
        assert [wait.name for wait in run.decision.waits] == ["go"]
        assert (run.state.reason, run.state.by) == (None, None)

    @pytest.mark.parametrize("is_broken_off", [True, False])
    def test_is_refused_once_anything_was_undone(self, is_broken_off):
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.fail("b")
        if is_broken_off:
            run.cancel()
        else:
            run.finish("undo:a")

        with refused("run.not_retryable", RunNotRetryable):
            run.retry()

    def test_is_refused_for_a_run_that_did_not_fail(self):
        run = Played(chain(task("a")))
        for _ in ("running", "completed"):
            with refused("run.not_retryable", RunNotRetryable):
                run.retry()
            run.finish("a")


class TestFork:
    def ended(self) -> Played:
        run = Played(chain(task("a"), task("b"), task("c")), 0)
        for id in ("a", "b", "c"):
            run.finish(id, f"did {id}")
        return run

    def test_continues_from_an_earlier_point(self):
        run = self.ended()
        other = run.fork(after=2)

        assert other.live == {"b": JOB}
        assert other.inputs == {"b": "did a"}
        assert other.log.events[-1] == RunForked(
            origin=Origin(run=run.id, number=2), effects=Effects(started=("b",))
        )
        other.finish("b")
        other.finish("c", "otherwise")
        assert other.result == "otherwise"
        assert run.result == "did c"

    def test_with_another_output_or_another_result_at_the_very_end(self):
        run = self.ended()
        other = run.fork(after=2, patch={"a": "changed"})
        assert other.output("a") == "changed"
        assert other.inputs == {"b": "changed"}
        assert run.fork(after=run.state.number, patch={"c": "changed"}).result == "changed"

    def test_between_the_last_item_and_the_end_of_a_map(self):
        run = Played(chain(mapped("m"), task("end")), [1, 2])
        run.finish("m[0]", "a")
        run.finish("m[1]", "b")
        assert run.types[2:] == ["ItemCompleted", "NodeCompleted"]
        other = run.fork(after=3)
        assert other.inputs == {"end": ["a", "b"]}

    def test_a_map_over_a_changed_list_restarts(self):
        run = Played(chain(task("a"), mapped("m"), task("end")))
        run.finish("a", [1, 2])
        run.finish("m[0]")
        other = run.fork(after=3, patch={"a": [7, 8, 9]})
        assert other.inputs == {"m[0]": 7, "m[1]": 8, "m[2]": 9}
        assert run.fork(after=3).inputs == {"m[1]": 2}

    def test_a_loop_on_a_changed_output_restarts(self):
        run = Played(chain(task("a"), loop("l")))
        run.finish("a", 1)
        run.finish("l#1", 2, is_done=False)
        other = run.fork(after=3, patch={"a": 5})
        assert other.inputs == {"l#1": 5}

    def test_of_a_paused_failed_or_cancelled_run_is_running(self):
        for act in ("pause", "cancel"):
            run = Played(chain(task("a")))
            getattr(run, act)()
            other = run.fork(after=run.state.number)

            assert (other.status, other.live) == (RunStatus.RUNNING, {"a": JOB})

    def test_starts_children_of_its_own(self):
        run = Played(chain(mapped("m", CHILD)), [1, 2])
        other = run.fork(after=1)
        assert [each.id for each in other.decision.children] == ["fork/m[0]~2", "fork/m[1]~2"]

    def test_belongs_to_no_parent(self):
        only = chain(task("a"))
        run = Played(only)
        run.log = Log()
        decision, run.state = submit(
            only,
            run.id,
            b"1",
            run.log,
            aging_ms=1,
            map_window=1,
            gathered_max_bytes=0,
            parent=PARENT,
        )
        run.log.add(decision)
        assert run.state.parent == PARENT
        assert run.fork(after=1).state.parent is None

    def test_refuses_to_change_what_is_not_there(self):
        with refused("run.patch_not_completed", nodes=("b", "x"), completed=("a",)):
            self.ended().fork(after=2, patch={"a": 1, "b": 1, "x": 1})

    def test_refuses_to_continue_from_what_was_undone(self):
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.fail("b")
        run.finish("undo:a")
        with refused("run.fork_after_undo", InvalidInput):
            run.fork(after=run.state.number)
        assert run.fork(after=2).live == {"b": JOB}


# What follows when a node fails for good: handled, the run's end, and what is undone.


class TestHandled:
    def test_continue_passes_null(self):
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

    def test_the_first_of_several_failures_is_reported(self):
        run = Played(graph(task("a"), task("b"), on_failure="finish"))
        run.fail("b", "first")
        run.fail("a", "second")
        assert run.state.failed_node == "b"

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

    def test_what_failed_and_was_continued_from_is_not_undone(self):
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

    def test_a_map_that_fails_is_undone_item_by_item_the_last_completed_first(self):
        """Finding 21: its completed items stayed done, because the map had not completed."""
        nodes = task("a", undo=True), mapped("m", undo=call("undo_m")), task("b", undo=True)
        run = Played(graph(*nodes, edges="a m, a b"))
        run.finish("a", [1, 2, 3])
        run.finish("m[2]", "two")
        run.finish("b", "b")
        run.finish("m[0]", "zero")
        run.fail("m[1]", "broken")

        undone = []
        while run.status == RunStatus.COMPENSATING:
            [key] = run.live
            undone.append((key, run.inputs[key]))
            run.fail(key) if key == "undo:m[0]" else run.finish(key)

        assert undone == [
            ("undo:m[0]", ["zero"]),
            ("undo:b", "b"),
            ("undo:m[2]", ["two"]),
            ("undo:a", [1, 2, 3]),
        ]
        assert (run.status, run.state.failed_node) == (RunStatus.FAILED, "m")
        assert run.nodes["m"] is NodeStatus.FAILED
        with pytest.raises(RunNotRetryable):
            run.retry()

    @pytest.mark.parametrize("on_error, undone", [("continue", "m[2]"), ("oops", "m[0]")])
    def test_items_of_a_map_are_undone_unless_they_failed(self, on_error, undone):
        """Finding 21: also those of a map that the run went on from, or that was cancelled."""
        nodes = mapped("m", on_error=on_error, undo=call("undo_m")), task("b"), task("c")
        run = Played(graph(*nodes, edges="m.oops b"), [1, 2, 3])
        run.finish("m[0]" if on_error == "oops" else "m[2]")
        run.fail("m[1]")
        assert ("b" in run.live) is (on_error == "oops")
        run.cancel(compensates=True)

        [started] = [e for e in run.log.events if isinstance(e, CompensationStarted)]
        assert started.undoes == (undone,)
        assert run.inputs[f"undo:{undone}"] == [None]
        run.cancel(compensates=False)
        assert (run.status, run.live) == (RunStatus.CANCELLED, {})

    def test_a_run_of_an_earlier_version_ends_as_it_would_have(self):
        run = Played(chain(mapped("m", undo=call("undo_m"))), [1, 2], map_window=0)
        run.finish("m[0]")
        run.fail("m[1]")
        assert run.status == RunStatus.FAILED

    def test_a_late_outcome_of_the_run_does_not_matter_meanwhile(self):
        run = self.failed()
        assert run.finish("d").events == []
        assert run.signal("go").events != []  # stored, and received by no node
        assert run.status == RunStatus.COMPENSATING

    @pytest.mark.parametrize("compensates", [True, False])
    @pytest.mark.parametrize("has_begun", [True, False])
    def test_a_cancelled_run_is_undone_if_asked_and_there_is_anything(self, compensates, has_begun):
        run = Played(self.GRAPH)
        if has_begun:
            run.finish("a", 1)
        run.cancel(compensates=compensates, reason="out of stock")

        if compensates and has_begun:
            assert run.status == RunStatus.COMPENSATING
            run.finish("undo:a")
        assert run.status == RunStatus.CANCELLED
        assert (run.state.reason, run.state.by) == ("out of stock", "ops")
        assert run.nodes["b" if has_begun else "a"] is NodeStatus.CANCELLED

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

    def test_cancelling_meanwhile_does_not_stop_it_but_without_compensation(self):
        run = self.failed()
        assert run.cancel(compensates=True).events == []
        run.pause()
        run.cancel(compensates=True)
        assert run.decision.suspend is False
        assert run.status == RunStatus.COMPENSATING
        run.cancel()
        assert run.status == RunStatus.CANCELLED
        assert run.decision.cancel_all
        assert run.state.nodes["c"].is_undone  # its progress is unknown
        assert not run.state.nodes["a"].is_undone


def test_a_retry_policy_stores_the_earlier_name_of_an_error():
    stored = encode_policy(Retry(3, on=ExternalFailed), None)
    assert stored is not None
    assert b'"perdure.errors.OutsideFailed"' in stored
    assert decode_policy(stored).retry == Retry(3, on=ExternalFailed)


def test_an_error_port_hands_on_the_earlier_name_of_an_error():
    run = Played(graph(task("a", on_error="oops"), task("mend"), edges="a.oops mend"), 1)
    failure = Failure(type="perdure.errors.ExternalFailed", message="no")
    run.end("a", Failed(failure=failure))
    assert run.inputs["mend"] == {"type": "perdure.errors.OutsideFailed", "message": "no"}


# Runs that wait for a place: what is queued, and what a retry or a fork of them starts.


PLACED = RunSettings(max_running=1, running_key="acme", delay_ms=5, timeout_ms=1000)


@pytest.mark.parametrize(
    "held, limits, started",
    [
        (0, [2, 2, 2], 2),
        (1, [2, 2], 1),
        (2, [2], 0),
        (3, [2, 9], 0),  # the second does not overtake the first
        (0, [1, 3, 3], 1 + 2),
        (0, [], 0),
    ],
)
def test_as_many_start_as_have_a_place_in_order(held: int, limits: list[int], started: int):
    queue = list(enumerate(limits))
    assert starting(held, queue) == list(range(started))


def started(run: Played) -> Played:
    run.due(RUN_START)
    return run


def of_a_map(settings: RunSettings) -> Played:
    run = submitted(chain(task("a"), mapped("m"), task("end")), settings)
    run.finish("a", [1, 2, 3])
    run.finish("m[0]", 1)
    run.fail("m[1]")
    return run


def of_a_loop(settings: RunSettings) -> Played:
    run = submitted(chain(task("a"), loop("l"), task("end")), settings)
    run.finish("a", 1)
    run.finish("l#1", 2)
    run.finish("check:l#1", False)
    run.fail("l#2")
    return run


def submitted(graph: Any, settings: RunSettings) -> Played:
    run = Played(graph, settings=settings)
    if settings is PLACED:
        assert (run.status, run.live, run.started) == ("queued", {}, [])
        started(run)
    return run


def numbered_alike(run: Played) -> Any:
    """What is live, with what input, and how far its nodes are."""
    nodes = {id: replace(node, ref=0, end_number=0) for id, node in run.state.nodes.items()}
    return run.status, run.live, nodes, {key: run.inputs[key] for key in run.live}


class TestAQueuedRun:
    @pytest.mark.parametrize("scenario", [of_a_map, of_a_loop])
    def test_that_was_retried_restarts_when_it_has_a_place(self, scenario):
        run, plain = scenario(PLACED), scenario(NO_SETTINGS)

        decision = run.retry()
        plain.retry()

        assert (run.status, run.live, decision.is_started) == ("queued", {}, False)
        [wait] = decision.waits
        assert (wait.key, wait.delay, wait.due_at) == (RUN_START, None, None)
        decision = run.due(RUN_START)
        assert (decision.is_started, decision.close_waits) == (True, [RUN_START])
        assert RUN_TIMEOUT in [wait.key for wait in decision.waits]
        assert numbered_alike(run) == numbered_alike(plain)

    @pytest.mark.parametrize(
        "scenario, patch",
        [
            (of_a_map, {}),
            (of_a_map, {"a": [7, 8]}),
            (of_a_loop, {}),
            (of_a_loop, {"a": 5}),
            (of_a_loop, {"l#1": 9}),
        ],
    )
    def test_that_was_forked_starts_as_any_fork(self, scenario, patch):
        run, plain = scenario(PLACED), scenario(NO_SETTINGS)
        after = len(plain.log.events)

        fork = run.fork(len(run.log.events), patch)

        assert (fork.status, fork.live, fork.state.settings.delay_ms) == ("queued", {}, None)
        assert numbered_alike(started(fork)) == numbered_alike(plain.fork(after, patch))

    def test_stays_queued_while_it_is_paused_and_can_be_cancelled(self):
        run = Played(chain(task("a")), settings=PLACED)
        run.pause()
        assert not run.due(RUN_START).events
        run.unpause()
        assert run.status == "queued"
        run.cancel()
        assert run.status == "cancelled"
        run.retry()
        assert started(run).live.keys() == {"a"}
