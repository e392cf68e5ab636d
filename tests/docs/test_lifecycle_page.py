"""The page that draws the lives of jobs and runs says what the rules say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.engine.fold import fold
from perdure.errors import PerdureError
from perdure.model.event import RunForked, RunSubmitted
from perdure.model.ids import RUN_START, RUN_TIMEOUT, Key
from perdure.model.run import RunState
from perdure.model.settings import RunSettings
from perdure.model.trigger import CancelRun, PauseRun, ResumeRun, RetryRun, Trigger, WaitDue
from perdure.model.wait import Report, ReportStatus
from perdure.operations.run_log import event_type
from perdure.store.lifecycle import TRANSITIONS, Transition
from proof.reference.drawing import graphs, worlds
from proof.reference.driving import Driver
from tests.rules.graphs import (
    CHILD,
    approval,
    call,
    chain,
    delay,
    graph,
    loop,
    mapped,
    named,
    signal,
    task,
)
from tests.rules.played import Played

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "lifecycle.md"
JOBS, RUNS = PAGE.read_text().split("\n## Run lifecycle\n")
NEW = ""
Row = tuple[str, str, str]


class TestJobs:
    ROW = re.compile(r"^\| ([a-z ]+) \| (\w+) \| ([\w, ]+) \| .+ \|$", re.MULTILINE)
    EDGE = re.compile(r"^    (\w+) --> (\w+): ([a-z ]+)$", re.MULTILINE)

    def wanted(self) -> set[Row]:
        return {
            (operation.value, before.value, after.value)
            for operation, moves in TRANSITIONS.items()
            for before, afters in moves.items()
            for after in afters
        }

    def test_the_table_on_the_page_is_the_transition_table(self):
        rows = self.ROW.findall(JOBS)
        shown = {(op, before, after) for op, before, to in rows for after in to.split(", ")}
        assert shown - {("operation", "from", "to")} == self.wanted()

    def test_the_picture_shows_every_transition_but_replace(self):
        edges = self.EDGE.findall(JOBS)
        shown = {(operation, before, after) for before, after, operation in edges}
        assert shown == {row for row in self.wanted() if row[0] != Transition.REPLACE.value}


class TestRuns:
    ROW = re.compile(r"^\| `(\w+)` \| ([\w, ]*?) ?\| ([\w, ]+) \| .+ \|$", re.MULTILINE)
    EDGE = re.compile(r"^    (\[\*\]|\w+) --> (\w+)", re.MULTILINE)

    def shown(self) -> set[Row]:
        return {
            (event, before, after)
            for event, befores, afters in self.ROW.findall(RUNS)
            for before in befores.split(", ")
            for after in afters.split(", ")
        }

    def test_every_row_of_the_table_can_happen_and_no_other_does(self):
        seen = {each for run in lives() for each in transitions(run)}
        assert seen == self.shown()

    def test_the_picture_shows_what_the_table_says(self):
        drawn = {(before.replace("[*]", NEW), after) for before, after in self.EDGE.findall(RUNS)}
        assert drawn == {(before, after) for _, before, after in self.shown()}

    @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
    @given(graphs(has_undo=True), worlds(failures=30), st.integers(0, 2**31), st.data())
    def test_nothing_else_happens_in_any_flow(self, graph, world, seed, data):
        run = Played(graph, [1, 2], checks=False)
        driver = Driver(run, world, seed)
        asks: list[Trigger | None] = [
            PauseRun(),
            ResumeRun(),
            CancelRun(),
            CancelRun(compensates=True),
            RetryRun(),
            *[None] * 6,
        ]
        for asked in data.draw(st.lists(st.sampled_from(asks), max_size=30)):
            try:
                if asked is not None:
                    run.happen(asked)
                elif not (run.state.is_ended or run.state.is_paused or driver.is_stuck):
                    driver.step()
            except PerdureError:
                pass  # it was refused

        assert set(transitions(run)) <= self.shown()


def transitions(run: Played) -> Iterator[Row]:
    """Every change of status in the log of a run, with the event that led to it."""
    state = RunState()
    for event in run.log.events:
        is_new = isinstance(event, RunSubmitted | RunForked)
        before = NEW if is_new else str(state.status)
        state = fold(state, event)
        if before != state.status:
            yield event_type(event), before, str(state.status)


def lives() -> Iterator[Played]:
    """Runs that, taken together, go through everything that can become of one."""
    yield from completing()
    yield from failing()
    yield from operated()
    yield from compensating()
    yield from awaiting_reports()
    yield from awaiting_people()
    yield from skipping()
    yield from queued()


def completing() -> Iterator[Played]:
    run = Played(chain(task("a"), delay("d"), task("b")))
    run.finish("a")
    yield run.fork(1)
    yield run.fork(2)
    run.due("d")
    run.finish("b")
    yield run
    run = Played(chain(signal("s"), task("a")))
    run.signal("go")
    yield run
    run = Played(graph(mapped("m"), delay("d")), [1])
    run.finish("m[0]")
    yield run
    run = Played(graph(mapped("m", CHILD, concurrency=1)), [1])
    run.child_completed("m[0]")
    yield run
    run = Played(graph(loop("l", CHILD)))
    run.child_completed("l#1")
    run.finish("check:l#1", False)
    yield run


def failing() -> Iterator[Played]:
    run = Played(graph(task("a"), delay("d")))
    run.fail("a")
    run.retry()
    yield run
    run = Played(chain(task("a", on_error="continue"), delay("d")))
    run.fail("a")
    yield run
    run = Played(chain(signal("s", timeout_ms=1)))
    run.due("s")
    run.retry()
    yield run
    run = Played(graph(task("a", on_error="continue"), delay("d")))
    run.pause_body("a", deadline_ms=1, cancels=True)
    run.due("a")
    run.finish("cancel:a")
    yield run


def operated() -> Iterator[Played]:
    for node in (task("a"), delay("a")):
        run = Played(chain(node))
        run.pause()
        run.unpause()
        run.cancel()
        run.retry()
        run.pause()
        run.cancel()
        yield run
    run = Played(chain(delay("d")))
    run.migrate(graph(delay("d"), task("more")))
    yield run


def compensating() -> Iterator[Played]:
    for second in (task("b"), delay("b")):
        run = Played(chain(task("a", undo=True), second))
        run.finish("a")
        run.cancel(compensates=True)
        run.pause()
        run.unpause()
        run.finish("undo:a")
        yield run
    run = Played(chain(task("a", undo=True), task("b")))
    run.finish("a")
    run.pause()
    run.cancel(compensates=True)
    run.cancel()
    yield run
    run = Played(chain(task("a", undo=True), task("b")))
    run.finish("a")
    run.fail("b")
    run.finish("undo:a")
    yield run


def awaiting_reports() -> Iterator[Played]:
    for answer in (None, Report(status=ReportStatus.PROGRESS, progress=50)):
        run = Played(chain(task("a"), task("b")))
        run.pause_body("a", poll_ms=1000)
        run.due("poll:a")
        run.finish("poll:a", answer)
        run.report("a", "completed", result=1)
        yield run


def awaiting_people() -> Iterator[Played]:
    run = Played(chain(approval("a", notify=call("tell"), reminders_ms=(1000,)), task("b")))
    run.finish("notify:a")
    run.due("remind:a")
    run.finish("notify:a#1")
    run.answer("a")
    yield run


def skipping() -> Iterator[Played]:
    run = Played(graph(task("a"), delay("d")))
    run.skip("a")
    yield run
    lacking = task("a", inputs=named(x="input.x"), on_missing="skip")
    run = Played(graph(delay("d"), lacking, task("b", gathers=True), edges="d a, d b, a b"))
    run.due("d")
    yield run


def queued() -> Iterator[Played]:
    late = RunSettings(delay_ms=60_000, timeout_ms=60_000)
    start, timeout = WaitDue(key=Key.parse(RUN_START)), WaitDue(key=Key.parse(RUN_TIMEOUT))
    for node in (task("a"), delay("a")):
        run = Played(chain(node), settings=late)
        run.pause()
        run.unpause()
        run.happen(start)
        run.pause()
        run.happen(timeout)
        yield run
    run = Played(chain(task("a")), settings=late)
    run.cancel()
    yield run
    run = Played(chain(task("a")), settings=late)
    run.happen(timeout)  # as of a deadline
    yield run
    placed = RunSettings(max_running=1)
    run = Played(chain(task("a", undo=True), task("b")), settings=placed)
    run.happen(start)
    run.finish("a")
    yield run.fork(after=3)
    run.cancel()
    run.retry()
    run.cancel(compensates=True)
    yield run
    run = Played(chain(task("a")), settings=placed)
    run.happen(start)
    run.fail("a")
    run.retry()
    yield run
