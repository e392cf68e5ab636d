"""What nodes that wait do: for a time, for a signal, for a child."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.model.run import LiveType, NewWait, RunStatus, WaitType
from tests.engine.graphs import (
    CHILD,
    chain,
    child,
    delay,
    graph,
    signal,
    task,
)
from tests.engine.played import Played, failure

JOB, WAIT = LiveType.JOB, LiveType.WAIT
RUNNING, WAITING = RunStatus.RUNNING, RunStatus.WAITING
COMPLETED, FAILED = RunStatus.COMPLETED, RunStatus.FAILED


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


class TestSignals:
    def test_waits_for_a_signal_and_hands_its_payload_on(self):
        run = Played(chain(signal("s"), task("end")))
        assert run.decision.waits == [NewWait(key="s", type=WaitType.SIGNAL, name="go")]
        assert run.live == {"s": WAIT}

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

    def test_one_that_is_there_already_is_taken_by_one_wait(self):
        run = Played(chain(task("a"), signal("s1"), signal("s2")))
        run.signal("go", "first")
        run.finish("a")

        assert run.live == {"s2": WAIT}
        assert run.output("s1") == "first"

    def test_of_two_waits_the_first_in_the_graph_is_served_first(self):
        run = Played(graph(signal("s1"), signal("s2"), gathers=True))
        run.signal("go", 1)
        assert run.live == {"s2": WAIT}

        run.signal("go", 2)
        assert run.result == {"s1": 1, "s2": 2}

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
            assert run.state.failure is not None
            assert run.state.failure.type == "perdure.errors.WaitTimedOut"
            assert run.state.failure.message == "no signal 'go' came within 1000 ms"
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

    def test_one_without_a_timeout_is_never_due(self):
        run = Played(chain(signal("s"), task("end")))

        assert run.due("s").events == []
        assert run.decision.close_waits == []


class TestChildren:
    def test_a_child_is_a_run_of_its_own(self):
        run = Played(chain(task("a"), child("c"), task("end")))
        run.finish("a", 5)

        [started] = run.decision.children
        assert (started.id, started.flow, started.input) == ("run/c", CHILD, b"5")
        assert run.decision.waits == [NewWait(key="c", type=WaitType.CHILD, name="run/c")]
        assert run.live == {"c": LiveType.CHILD}

        run.child_completed("c", "done")
        assert run.decision.close_waits == ["c"]
        assert run.inputs["end"] == "done"
        assert dict(run.state.children) == {"c": "run/c"}

    @pytest.mark.parametrize("on_error", ["fail", "continue", "oops"])
    @pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.CANCELLED])
    def test_a_child_that_ended_badly_is_an_error(self, status, on_error):
        nodes = child("c", on_error=on_error), task("end"), task("mend")
        run = Played(graph(*nodes, edges="c end, c.oops mend"))
        told = "child run run/c was cancelled"
        if status is RunStatus.FAILED:
            told = "child broke"
            run.child_ended("c", status, failure=failure(told))
        else:
            run.child_ended("c", status)

        if on_error == "fail":
            assert run.status == FAILED
            assert run.state.failure is not None
            assert run.state.failure.message == told
        elif on_error == "continue":
            assert run.inputs == {"c": None, "end": None}
        else:
            assert run.inputs["mend"]["message"] == told

    def test_news_of_another_run_are_ignored(self):
        run = Played(chain(child("c"), task("end")))

        assert run.child_completed("c", 1, run="run/other").events == []
        assert run.decision.close_waits == []
