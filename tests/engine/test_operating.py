"""What operators ask for: pause, cancel, retry, fork."""

from __future__ import annotations

import pytest

from perdure.engine.decide import submit
from perdure.errors import InvalidInput, RunEnded, RunNotPaused, RunNotRetryable
from perdure.model.event import Effects, Origin, RunForked
from perdure.model.run import LiveType, NodeStatus, RunStatus
from perdure.model.trigger import CancelRun, PauseRun, ResumeRun, SendSignal
from tests.engine.graphs import (
    CHILD,
    chain,
    child,
    delay,
    graph,
    loop,
    mapped,
    route,
    signal,
    task,
)
from tests.engine.played import PARENT, Log, Played
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

    def test_pausing_again_changes_nothing(self):
        run = Played(chain(task("a")))
        run.pause(by="first")

        assert run.pause(by="second").events == []
        assert run.decision.suspend is None
        assert run.state.by == "first"

    def test_the_run_goes_on_where_it_was(self):
        run = Played(chain(task("a"), task("b")))
        run.pause()
        run.unpause(by="ops")

        assert run.decision.suspend is False
        assert run.status == RunStatus.RUNNING
        assert (run.state.reason, run.state.by) == (None, None)
        run.finish("a")
        assert run.live == {"b": JOB}

    def test_nothing_that_comes_in_a_pause_starts_anything(self):
        nodes = task("a"), delay("d"), child("c"), signal("s", timeout_ms=1), task("end")
        run = Played(graph(*nodes, edges="a end, d end, c end, s end"))
        run.pause()

        for late in (
            run.finish("a"),
            run.fail("a"),
            run.attempt_failed("a"),
            run.due("d"),
            run.due("s"),
            run.child_completed("c"),
        ):
            assert (late.events, late.close_waits) == ([], [])

        run.unpause()
        for now in (run.due("d"), run.child_completed("c"), run.finish("a")):
            assert now.events != []

    def test_signals_that_come_in_a_pause_are_kept_for_its_end(self):
        run = Played(chain(signal("s"), task("end")))
        run.pause()
        run.signal("go", 1)
        assert run.live == {"s": WAIT}

        run.unpause()
        assert run.inputs["end"] == 1
        assert run.decision.close_waits == ["s"]

    def test_open_waits_come_before_those_that_open_at_the_end_of_the_pause(self):
        run = Played(
            graph(
                signal("first", "t"), signal("then", "s"), signal("open", "s"), edges="first then"
            )
        )
        run.pause()
        run.signal("t", 0)
        run.signal("s", 1)
        run.unpause()

        assert run.output("open") == 1
        assert run.live == {"then": WAIT}

    def test_unpausing_a_run_that_is_not_paused_is_refused(self):
        run = Played(chain(task("a")))

        with pytest.raises(RunNotPaused, match="cannot resume run 'run': it is running"):
            run.unpause()

    def test_an_ended_run_refuses(self):
        run = Played(chain(task("a")))
        run.finish("a")

        for act in (
            PauseRun(),
            ResumeRun(),
            CancelRun(),
            SendSignal(name="go", payload=b"1"),
        ):
            with pytest.raises(RunEnded, match="it is completed"):
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
    def test_goes_on_from_the_failed_node_keeping_what_is_completed(self):
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

    def test_a_skipped_branch_stays_skipped(self):
        nodes = route("r", "x", "y"), task("x"), task("y"), task("join")
        run = Played(graph(*nodes, edges="r.x x, r.y y, x join, y join"))
        run.finish("r", "x")
        run.fail("x")
        run.retry()
        run.finish("x", 1)

        assert run.inputs["join"] == 1

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

    def test_of_a_loop_the_same_iteration_runs_again(self):
        run = Played(chain(loop("l")), 0)
        run.finish("l#1", 10, is_done=False)
        run.fail("l#2")
        run.retry()

        assert run.live == {"l#2": JOB}
        assert run.inputs["l#2"] == 10

    def test_of_a_loop_the_same_question_is_asked_again(self):
        run = Played(chain(loop("l")), 0)
        run.finish("l#1", 10)
        run.fail("check:l#1")
        run.retry()

        assert run.live == {"check:l#1": JOB}
        assert run.inputs["check:l#1"] == 10

    def test_the_first_iteration_starts_with_the_input_again(self):
        run = Played(chain(loop("l", iterations_max=1)), 5)
        run.finish("l#1", 6, is_done=False)
        assert run.status == RunStatus.FAILED
        run.retry()

        assert run.inputs["l#1"] == 5

    def test_a_child_starts_anew_under_another_id(self):
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

    def test_starts_a_cancelled_run_anew(self):
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

        with pytest.raises(RunNotRetryable, match="was undone; submit it anew, or fork it"):
            run.retry()

    def test_is_refused_for_a_run_that_did_not_fail(self):
        run = Played(chain(task("a")))
        with pytest.raises(RunNotRetryable, match="it is running"):
            run.retry()

        run.finish("a")
        with pytest.raises(RunNotRetryable, match="it is completed"):
            run.retry()


class TestFork:
    def ended(self) -> Played:
        run = Played(chain(task("a"), task("b"), task("c")), 0)
        for id in ("a", "b", "c"):
            run.finish(id, f"did {id}")
        return run

    def test_goes_on_from_an_earlier_point(self):
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

    def test_with_another_output(self):
        other = self.ended().fork(after=2, patch={"a": "changed"})

        assert other.output("a") == "changed"
        assert other.inputs == {"b": "changed"}

    def test_at_the_very_end_it_has_another_result(self):
        run = self.ended()
        other = run.fork(after=run.state.number, patch={"c": "changed"})

        assert other.result == "changed"

    @pytest.mark.parametrize("after", range(1, 6))
    def test_goes_on_from_any_event(self, after):
        other = self.ended().fork(after=after)
        for id in ("a", "b", "c"):
            if id in other.live:
                other.finish(id, f"did {id}")

        assert other.result == "did c"

    def test_between_the_last_item_and_the_end_of_a_map(self):
        run = Played(chain(mapped("m"), task("end")), [1, 2])
        run.finish("m[0]", "a")
        run.finish("m[1]", "b")
        assert run.types[2:] == ["ItemCompleted", "NodeCompleted"]
        other = run.fork(after=3)

        assert other.inputs == {"end": ["a", "b"]}

    def test_a_map_over_a_changed_list_starts_anew(self):
        run = Played(chain(task("a"), mapped("m"), task("end")))
        run.finish("a", [1, 2])
        run.finish("m[0]")
        other = run.fork(after=3, patch={"a": [7, 8, 9]})

        assert other.inputs == {"m[0]": 7, "m[1]": 8, "m[2]": 9}
        assert run.fork(after=3).inputs == {"m[1]": 2}

    def test_a_loop_on_a_changed_output_starts_anew(self):
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

    def test_belongs_to_nobody(self):
        only = chain(task("a"))
        run = Played(only)
        run.log = Log()
        decision, run.state = submit(only, run.id, b"1", run.log, aging_ms=1, parent=PARENT)
        run.log.add(decision)

        assert run.state.parent == PARENT
        assert run.fork(after=1).state.parent is None

    def test_refuses_to_change_what_is_not_there(self):
        with refused("run.patch_not_completed", nodes=("b", "x"), completed=("a",)):
            self.ended().fork(after=2, patch={"a": 1, "b": 1, "x": 1})

    def test_refuses_to_go_on_from_what_was_undone(self):
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.fail("b")
        run.finish("undo:a")

        with refused("run.fork_after_undo", InvalidInput):
            run.fork(after=run.state.number)
        assert run.fork(after=2).live == {"b": JOB}
