"""Runs across versions: moving to another, snapshots, and logs that were recorded once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from perdure.engine import snapshot
from perdure.engine.fold import fold
from perdure.engine.migration import differences
from perdure.errors import RunEnded
from perdure.model.event import EdgeCounts, Effects, Event, RunMigrated, decode_event
from perdure.model.graph import FlowRef, Graph, Node, OutputCheck
from perdure.model.ids import RunId
from perdure.model.run import LiveType, NodeStatus, RunState, RunStatus, Snapshot
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
    route,
    signal,
    task,
)
from tests.rules.played import Played
from tests.rules.recording import LOGS, RUNS, plain, read, written
from tests.support.refusal import refused

JOB, WAIT = LiveType.JOB, LiveType.WAIT


def waiting_after(*nodes: Node) -> tuple[Played, Node]:
    """A run that waits for a signal, with these nodes completed before."""
    wait = signal("wait")
    run = Played(chain(*nodes, wait, task("old_end")))
    for node in nodes:
        run.finish(node.id, node.id)
    return run, wait


def obstacles(run: Played, new: Graph) -> list[tuple[str, ...]]:
    """The code of each difference, its node and that node's status."""
    return [
        (found.code, *(found.args[each] for each in ("node", "status") if each in found.args))
        for found in differences(run.graph, new, run.state)
    ]


class TestDifferences:
    @pytest.mark.parametrize("call_now", ["a", "better"])
    def test_none_where_only_what_lies_ahead_or_a_completed_call_differs(self, call_now):
        run, wait = waiting_after(task("a"))
        new = chain(replace(task("a"), call=call(call_now)), wait, delay("new"), task("end"))
        assert obstacles(run, new) == []

    def test_another_flow(self):
        run, _ = waiting_after()
        assert obstacles(run, chain(task("a"), name="other")) == [("migration.other_flow",)]

    def test_all_are_named_at_once(self):
        run, wait = waiting_after(task("a"), task("b"))
        new = chain(delay("b"), wait)
        assert obstacles(run, new) == [
            ("migration.node_missing", "a", "completed"),
            ("migration.other_type", "b", "completed"),
        ]

    @pytest.mark.parametrize(
        "old, new, code",
        [
            (task("a"), replace(task("a"), call=call("other")), "other_call"),
            (mapped("a", call("pack")), mapped("a", CHILD), "other_call"),
            (mapped("a"), mapped("a", over="lines"), "other_list"),
            (loop("a"), replace(loop("a"), check=call("is_it")), "other_call"),
            (signal("a", "go"), signal("a", "stop"), "other_signal"),
            (task("a", type="http"), task("a", type="script"), "other_node_type"),
            (signal("a"), approval("a"), "other_type"),
            (approval("a"), approval("a", deciders=("cfo",)), "other_approval"),
            (signal("a"), signal("a", where={"property": "n", "op": "exists"}), "other_signals"),
            (child("a"), child("a", FlowRef(name="niece", version="c1")), "other_call"),
        ],
    )
    def test_a_live_node_must_end_as_it_began(self, old, new, code):
        run = Played(chain(old, task("end")), [1])
        assert obstacles(run, chain(new, task("end"))) == [(f"migration.{code}", "a", "live")]

    @pytest.mark.parametrize(
        "old, new",
        [
            (mapped("a", CHILD), mapped("a", FlowRef(name="child", version="c2"), concurrency=1)),
            (loop("a"), loop("a", iterations_max=99)),
            (delay("a", 1), delay("a", 2)),
            (signal("a"), signal("a", timeout_ms=5)),
            (task("a"), task("a", on_error="continue")),
            (task("a"), task("a", check=OutputCheck(schema=True))),
        ],
    )
    def test_a_live_node_may_change_in_what_lies_ahead_of_it(self, old, new):
        run = Played(chain(old, task("end")), [1])
        assert obstacles(run, chain(new, task("end"))) == []

    def test_nothing_new_may_come_before_what_was_reached(self):
        run, wait = waiting_after(task("a"))
        new = graph(task("a"), task("extra"), wait, edges="a wait, a extra, extra wait")
        assert obstacles(run, new) == [("migration.not_reached", "wait", "live")]

    def test_what_was_started_must_still_be_on_the_way_that_was_taken(self):
        run = Played(graph(route("r", "x", "y"), signal("s"), task("t"), edges="r.x s, r.y t"))
        run.finish("r", "x")
        new = graph(route("r", "x", "y"), signal("s"), task("t"), edges="r.y s, r.x t")
        assert obstacles(run, new) == [
            ("migration.other_way", "s", "live"),
            ("migration.other_way", "t", "skipped"),
        ]

    def test_what_was_blocked_must_still_be_and_what_follows_is(self):
        nodes = task("a"), task("b"), signal("s")
        run = Played(graph(*nodes, edges="a b", on_failure="finish"))
        run.fail("a")
        assert run.nodes["b"] is NodeStatus.BLOCKED
        assert obstacles(run, run.graph) == []
        new = graph(*nodes, on_failure="finish")
        assert obstacles(run, new) == [("migration.other_way", "b", "blocked")]
        run.migrate(graph(*nodes, task("c"), edges="a b, b c", on_failure="finish"))
        assert run.nodes["c"] is NodeStatus.BLOCKED
        run.signal("go")
        assert run.status == RunStatus.FAILED

    def test_what_is_to_be_undone_must_be_undone_the_same_way(self):
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.cancel(compensates=True)
        assert obstacles(run, chain(task("a"), task("b"))) == [
            ("migration.other_call", "a", "completed")
        ]
        assert obstacles(run, chain(task("a", undo=True), task("new"), task("b"))) == []


class TestMigrating:
    def test_continues_in_the_new_version(self):
        run, wait = waiting_after(task("a"))
        new = chain(task("a"), wait, task("new"), task("end"))
        run.migrate(new)
        assert run.decision.version == run.state.version == new.version
        assert run.log.events[-1] == RunMigrated(version=new.version, by="ops")
        assert run.status == RunStatus.WAITING
        run.signal("go", 1)
        assert run.live == {"new": JOB}

    def test_to_the_same_version_changes_nothing(self):
        run, _ = waiting_after()
        assert run.migrate(run.graph).events == []
        assert run.decision.version is None

    def test_edges_are_recounted(self):
        nodes = task("a"), task("b"), task("c"), task("join", gathers=True)
        run = Played(graph(*nodes, edges="a join, b join"))
        run.finish("a", "A")
        assert dict(run.state.edge_counts) == {"join": (1, 1, 0)}
        new = graph(*nodes, edges="b join, c join")
        assert obstacles(run, new) == []
        run.migrate(new)

        assert dict(run.state.edge_counts) == {}
        run.finish("b", "B")
        run.finish("c", "C")
        assert run.inputs["join"] == {"b": "B", "c": "C"}

    def test_the_event_has_all_counts(self):
        nodes = task("a"), task("b"), task("c"), task("join"), task("far")
        run = Played(graph(*nodes, edges="a join, b join, join far"))
        run.finish("a")
        run.migrate(graph(*nodes, edges="a join, b join, a far, join far"))

        counts = (
            EdgeCounts(node="join", decided=1, active=1),
            EdgeCounts(node="far", decided=1, active=1),
        )
        [event] = [each for each in run.log.events if isinstance(each, RunMigrated)]
        assert event.effects == Effects(edge_counts=counts)

    def test_what_is_ready_in_the_new_version_starts(self):
        nodes = task("a"), signal("s"), task("end")
        run = Played(graph(*nodes, edges="a end, s end"), 1)
        run.finish("a", "A")
        run.migrate(
            graph(*nodes, task("audit"), task("more"), edges="a audit, a end, s end, audit end")
        )

        assert run.live == {"s": WAIT, "audit": JOB, "more": JOB}
        assert (run.inputs["audit"], run.inputs["more"]) == ("A", 1)
        run.signal("go")
        run.finish("audit")
        assert run.started.count("end") == 1

    def test_what_is_skipped_in_the_new_version_does_not_block(self):
        nodes = route("r", "x", "y"), signal("x"), task("y"), task("end")
        run = Played(graph(*nodes, edges="r.x x, r.y y, x end, y end"))
        run.finish("r", "x")
        extra = task("y1"), task("y2")
        run.migrate(
            graph(*nodes, *extra, edges="r.x x, r.y y, r.y y1, y1 y2, x end, y end, y2 end")
        )

        assert (run.nodes["y1"], run.nodes["y2"]) == (NodeStatus.SKIPPED, NodeStatus.SKIPPED)
        run.signal("go")
        assert run.live == {"end": JOB}

    def test_what_is_ready_waits_for_the_end_of_a_pause(self):
        run = Played(graph(task("a"), signal("s")), 1)
        run.finish("a", "A")
        run.pause()
        run.migrate(graph(task("a"), signal("s"), task("b"), task("c"), edges="a b"))
        assert (run.status, run.live) == (RunStatus.PAUSED, {"s": WAIT})

        run.unpause()
        assert run.live == {"s": WAIT, "b": JOB, "c": JOB}
        assert (run.inputs["b"], run.inputs["c"]) == ("A", 1)
        assert not run.state.edge_counts

    def test_a_map_continues_where_it_was(self):
        run = Played(chain(mapped("m", concurrency=1), task("old")), [1, 2, 3])
        run.finish("m[0]", "a")
        run.migrate(chain(mapped("m", concurrency=1), task("new")))
        run.finish("m[1]", "b")
        run.finish("m[2]", "c")
        assert run.inputs["new"] == ["a", "b", "c"]

    def test_a_run_that_is_being_undone_starts_nothing_new(self):
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.cancel(compensates=True)
        run.migrate(graph(task("a", undo=True), task("b"), task("c"), edges="a b"))
        assert run.live == {"undo:a": JOB}
        run.finish("undo:a")
        assert run.status == RunStatus.CANCELLED

    def test_an_ended_run_refuses(self):
        run = Played(chain(task("a")))
        run.finish("a")
        with refused("run.ended", RunEnded, operation="migrate", status=RunStatus.COMPLETED):
            run.migrate(chain(task("a"), task("b")))


# Snapshots: a state comes back as it was, or not at all; and they are not taken too often.


def full() -> RunState:
    """With something in every map."""
    run = Played(chain(mapped("m", concurrency=2), task("end")), [1, 2, 3])
    run.finish("m[0]")
    run.signal("go", 1)
    return run.state


class TestRestore:
    @pytest.mark.parametrize("data", [b"", b"no json", b"{}", b"[]", b'{"format":1}'])
    def test_what_cannot_be_read_is_not_trusted(self, data):
        assert snapshot.restore(Snapshot(number=1, data=data)) is None

    def test_one_that_was_changed_or_of_another_event_or_format_is_not_trusted(self):
        kept = snapshot.take(full())
        fields = msgspec.json.decode(kept.data)
        changed = kept.data.replace(b'"running"', b'"waiting"')
        newer = msgspec.json.encode(fields | {"format": snapshot.FORMAT + 1})
        assert changed != kept.data
        for number, data in ((0, changed), (1, kept.data), (0, newer)):
            found = Snapshot(number=kept.number + number, data=data)
            assert snapshot.restore(found) is None


class TestIsDue:
    def test_after_so_many_events(self):
        state = full()
        assert not snapshot.is_due(state, state.number - snapshot.SPACING + 1)
        assert snapshot.is_due(state, state.number - snapshot.SPACING)

    def test_less_often_for_a_large_state(self):
        count = 3 * snapshot.SPACING
        run = Played(chain(mapped("m"), task("end")), [0] * count, checks=False)
        taken = [0]
        for item in range(count):
            run.finish(f"m[{item}]")
            if snapshot.is_due(run.state, taken[-1]):
                taken.append(run.state.number)

        written = sum(min(number, count) for number in taken)  # about the items in each
        assert len(taken) > 1
        assert written <= 3 * count


PATHS = sorted(LOGS.glob("*.json"))


def comparable(recorded: Any) -> Any:
    """Without the codes that failures have got since, and reasons, which are worded for people.

    So are the messages of our own errors.
    """
    if isinstance(recorded, list):
        return [comparable(each) for each in recorded]
    if not isinstance(recorded, dict):
        return recorded
    is_failure = {"type", "message", "causes"} <= recorded.keys()
    is_own = is_failure and recorded["type"].startswith("perdure.")
    return {
        name: comparable(value)
        for name, value in recorded.items()
        if not (is_failure and name == "code")
        and not (is_own and name == "message")
        and not (recorded.get("type") == "NodeSkipped" and name == "reason")
    }


NEW = frozenset({"attempt", "failed_attempts", "gathered_max_bytes"})
"""Fields of a state that are also known from older logs, or zero, but not recorded with them."""


def known_then(found: Any, recorded: Any) -> Any:
    """Without new fields that the recording does not have."""
    if isinstance(found, dict) and isinstance(recorded, dict):
        return {
            name: known_then(value, recorded.get(name))
            for name, value in found.items()
            if name in recorded or name not in NEW
        }
    if isinstance(found, list) and isinstance(recorded, list) and len(found) == len(recorded):
        return [known_then(*pair) for pair in zip(found, recorded, strict=True)]
    return found


class TestRecordedRun:
    """Recorded logs still fold to the same states, and are still decided the same."""

    def test_there_is_a_log_of_every_run(self):
        assert {path.stem for path in PATHS} >= RUNS.keys()

    @pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
    def test_a_recorded_log_folds_to_the_state_that_was_recorded(self, path):
        recording = read(path)
        state = RunState()
        for number, data in enumerate(recording.events, start=1):
            state = fold(state, decode_event(RunId("run"), number, bytes(data)))
        assert known_then(plain(state), recording.state) == recording.state

    @pytest.mark.parametrize("name", RUNS)
    def test_the_same_happenings_are_decided_as_they_were(self, name):
        decided = msgspec.json.decode(written(RUNS[name]()))
        recorded = msgspec.json.decode((LOGS / f"{name}.json").read_bytes())
        assert comparable(known_then(decided, recorded)) == comparable(recorded)

    def test_every_event_type_was_recorded(self):
        recorded = {
            msgspec.json.decode(data)["type"] for path in PATHS for data in read(path).events
        }
        assert recorded == {each.__struct_config__.tag for each in Event.__args__}
