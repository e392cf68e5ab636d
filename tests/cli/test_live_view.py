"""The picture of a run: what a line says, where it stands, and what is left out."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from perdure import Client, Flow, Progress, RunStatus, Status, task
from perdure.cli.commands.dev import RunWatch, news_text
from perdure.cli.views.live import PARTS_MAX, Line, Look, lines_of, places
from perdure.cli.views.screen import ASCII, UNICODE, LiveView, Signs, fit_lines, screen
from perdure.flows.built import BuiltFlow
from perdure.model.failure import Failure
from perdure.model.graph import Call, Definition, Edge, Graph, TaskNode
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import CLAIMED, Job, NodeRef
from perdure.model.run import LiveType, MapState, NodeState, NodeStatus, RunState, Wait, WaitType
from perdure.model.worker import WorkerState
from perdure.operations.records import EventRecord, RunRecord, RunSnapshot
from perdure.testing.contract.builders import worker_info
from tests.cli import sample_flows as sample

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
RUN = RunId("order-7")
LEASE = timedelta(seconds=10)


@task
def work(value: Any) -> Any:
    return value


def shop() -> BuiltFlow:
    """A fork with a map in it, an approval, and two ways on from there."""
    return (
        Flow("shop")
        .then(work, name="fetch")
        .fork(
            items=Flow().map(work, name="pack"),
            price=[Flow().then(work, name="price"), Flow().then(work, name="tax")],
        )
        .join(work, name="bill")
        .approve("Refund 120?", name="review", deciders=["finance"], on_reject="no")
        .then(work, name="ship")
        .node("refuse", work, after="review:no")
        .build()
    )


def snapshot(
    nodes: Mapping[str, NodeStatus | NodeState] | None = None,
    *,
    jobs: Sequence[Job] = (),
    waits: Sequence[Wait] = (),
    workers: Sequence[WorkerState] = (),
    failures: Mapping[str, Failure] | None = None,
    **more: Any,
) -> RunSnapshot:
    """``more`` are fields of the state, and ``flow`` or ``status`` of the run."""
    flow = more.pop("flow", None) or shop()
    status = more.pop("status", RunStatus.RUNNING)
    live = {job.node.key: LiveType.JOB for job in jobs if job.node}
    live |= {wait.key: LiveType.WAIT for wait in waits}
    states = {id: _node(each) for id, each in (nodes or {}).items()}
    state = RunState(status=status, nodes=Map(states), live=Map(live), **more)
    is_ended = state.is_ended
    run = RunRecord(
        id=RUN,
        namespace="default",
        flow=flow.name,
        version=flow.version,
        status=status,
        number=1,
        parent=None,
        created_at=NOW - timedelta(seconds=12),
        updated_at=NOW,
        finished_at=NOW if is_ended else None,
    )
    return RunSnapshot(
        run=run,
        graph=flow.graph,
        state=state,
        events=(),
        failures=failures or {},
        jobs=tuple(jobs),
        waits=tuple(waits),
        workers=tuple(workers),
        now=NOW,
    )


def _node(given: NodeStatus | NodeState) -> NodeState:
    return given if isinstance(given, NodeState) else NodeState(status=given)


def items(count: int, done: int) -> MapState:
    refs = Map({item: item + 2 for item in range(done)})
    return MapState(count=count, launched=count, refs=refs)


def job(key: str, status: Status = Status.ACTIVE, **more: Any) -> Job:
    """One that ``ann`` began three seconds ago, if it is held."""
    is_claimed = status in CLAIMED
    fields: dict[str, Any] = {
        "attempt": 1,
        "failures": 0,
        "crashes": 0,
        "snoozes": 0,
        "worker": WorkerId("ann") if is_claimed else None,
        "progress": Progress(percent=0),
        "started_at": NOW - timedelta(seconds=3) if is_claimed else None,
        "ready_at": NOW,
        "lease_until": NOW + timedelta(seconds=4) if is_claimed else None,
    }
    return Job(
        id=JobId(f"job-{key}"),
        namespace="default",
        queue="default",
        task="work",
        tags=(),
        status=status,
        priority=3,
        group=None,
        fingerprint=None,
        max_attempts=None,
        epoch=1,
        created_at=NOW,
        deadline_at=None,
        finished_at=None,
        node=NodeRef(run=RUN, key=key),
        **(fields | more),
    )


def wait(key: str, found_type: WaitType, name: str = "", **more: Any) -> Wait:
    fields: dict[str, Any] = {"due_at": None} | more
    return Wait(
        run=RUN, namespace="default", key=key, type=found_type, name=name, opened_at=NOW, **fields
    )


def worker(id: str, seen_seconds_ago: float = 0) -> WorkerState:
    info = worker_info(id=WorkerId(id), namespace="default", lease=LEASE)
    seen_at = NOW - timedelta(seconds=seen_seconds_ago)
    return WorkerState(info=info, started_at=NOW, seen_at=seen_at, running=())


def event(number: int, type: str = "node_completed", key: str = "fetch") -> EventRecord:
    return EventRecord(
        number=number,
        at=NOW,
        type=type,
        status=RunStatus.RUNNING,
        details={},
        node=key,
        key=key,
        value={"number": number},
    )


NOON = f"{NOW.astimezone():%H:%M:%S}"

LIVE, COMPLETED = NodeStatus.LIVE, NodeStatus.COMPLETED


def busy() -> RunSnapshot:
    """A map with items at work, one of them at a silent worker, beside a retry."""
    return snapshot(
        {"fetch": COMPLETED, "pack": LIVE, "price": LIVE},
        jobs=[
            job("pack[2]", progress=Progress(percent=50, message="a very long message " * 5)),
            job("pack[3]", worker="bob"),
            job("price", Status.SCHEDULED, failures=1),
        ],
        workers=[worker("bob", 6), worker("ann")],
        maps=Map({"pack": items(8, 2)}),
    )


def _screen(seen: RunSnapshot) -> list[Text]:
    return screen(seen, lines_of(seen), [], (80, 24), UNICODE)


def drawn(seen: RunSnapshot, width: int, height: int, signs: Signs = UNICODE) -> list[str]:
    events = [event(number) for number in range(1, 9)]
    return [line.plain for line in screen(seen, lines_of(seen), events, (width, height), signs)]


def long_chain(count: int) -> RunSnapshot:
    flow = Flow("chain")
    for number in range(count):
        flow.then(work, name=f"node{number}")
    nodes = {f"node{number}": COMPLETED for number in range(count // 2)}
    middle = f"node{count // 2}"
    return snapshot({**nodes, middle: LIVE}, jobs=[job(middle)], flow=flow.build())


class TestScreen:
    @pytest.mark.parametrize("signs", [UNICODE, ASCII])
    @pytest.mark.parametrize("height", [8, 14, 24, 60])
    @pytest.mark.parametrize("width", [20, 40, 69, 70, 80, 200])
    def test_fits(self, width, height, signs):
        for seen in (busy(), long_chain(50)):
            lines = drawn(seen, width, height, signs)
            assert len(lines) <= height
            assert max(map(cell_len, lines)) <= width

    def test_has_everything_where_there_is_room(self):
        assert drawn(busy(), 80, 24) == [
            "order-7 of shop running 12s, 1/8 nodes",
            "● ann 1 job  ✗ bob silent 6s",
            "",
            "✓ fetch       completed",
            "├ ● pack      running   ━━━─────────     2/8  2 running",
            "│   ● pack[3] running                         bob 3s",
            "│     bob is silent; others take over in 4s",
            "│   ● pack[2] running   ━━━━━━──────     50%  ann 3s, a very long message a ver…",
            "╰ ↻ price     retrying",
            "  · tax       to come",
            "· bill        to come",
            "· review      to come",
            "├ · refuse    to come",
            "╰ · ship      to come",
            "",
            *[f'{NOON} node completed fetch {{"number":{number}}}' for number in range(4, 9)],
        ]

    def test_shows_states_as_text_in_a_narrow_terminal_too(self):
        lines = drawn(busy(), 40, 24)
        assert "├ ● pack      running       2/8" in lines
        assert "╰ ↻ price     retrying" in lines

    def test_shows_a_question_with_the_command_in_full(self):
        seen = snapshot({"review": LIVE}, waits=[wait("review", WaitType.APPROVAL, "Refund 120?")])
        lines = drawn(seen, 24, 30)
        at = lines.index("  asks anyone: Refund")
        assert lines[at + 1 : at + 4] == ["  120?", "  → perdure decide order", "    -7:review"]

    def test_has_colours_for_states_and_not_for_names(self):
        [line] = [each for each in _screen(busy()) if "price" in each.plain]
        styles = {line.plain[span.start : span.end].strip(): span.style for span in line.spans}
        assert (styles["↻"], styles["retrying"]) == ("yellow", "yellow")
        assert "price" not in styles
        assert line.style == ""

    def test_counts_what_it_hides(self):
        lines = drawn(long_chain(50), 80, 14)
        assert any(line.startswith("● node25 running") for line in lines)
        assert "… and 21 to come, 22 completed" in lines

    def test_says_that_no_worker_is_live(self):
        assert "no live worker" in drawn(snapshot({"fetch": LIVE}), 80, 24)

    def test_counts_workers_that_are_too_many_to_name(self):
        crew = [worker(f"w{number}") for number in range(30)]
        seen = snapshot({"fetch": LIVE}, jobs=[job("fetch", worker="w3")], workers=crew)
        assert drawn(seen, 80, 24)[1] == "30 workers, 1 of them at this run"

    def test_of_an_ended_run_has_no_workers(self):
        seen = snapshot({"fetch": COMPLETED}, workers=[worker("ann")], status=RunStatus.COMPLETED)
        assert drawn(seen, 80, 24)[:2] == ["order-7 of shop completed 12s, 1/8 nodes", ""]

    def test_draws_in_ascii(self):
        assert all(line.replace("…", "").isascii() for line in drawn(busy(), 80, 24, ASCII))


class TestFitting:
    def test_gives_up_items_before_nodes(self):
        lines = lines_of(busy())
        kept = fit_lines(lines, 9, 80)
        assert [each.name for each in kept] == [each.name for each in lines if not each.is_part]

    def test_keeps_what_is_nearest_to_the_work(self):
        kept = fit_lines(lines_of(long_chain(20)), 6, 80)
        assert [each.name for each in kept] == ["node8", "node9", "node10", "node11", "node12"]

    def test_keeps_all_if_they_fit(self):
        lines = lines_of(busy())
        assert fit_lines(lines, 12, 80) == lines


class TestSigns:
    def test_every_look_has_its_own_sign(self):
        for signs in (UNICODE, ASCII):
            assert set(signs.looks) == set(Look)

    @pytest.mark.parametrize("width", [40, 80])
    def test_is_drawn_by_rich_with_what_stands_below_it(self, width):
        console = Console(
            file=io.StringIO(), width=width, height=20, force_terminal=True, record=True
        )
        console.print(LiveView(busy(), [event(1)], footer=[Text("told by the demo")]))
        lines = console.export_text().splitlines()

        assert lines[0].startswith("order-7 ")
        assert lines[-1].rstrip() == "told by the demo"
        assert len(lines) < 20


# What a line says of a node: its look, how much is done, who is at it, and what would help.


BUSY = Failure(type="ConnectionError", message="busy", traceback="", causes=())


def line(snapshot: RunSnapshot, name: str) -> Line:
    [found] = [each for each in lines_of(snapshot) if each.name == name]
    return found


def fetching(*jobs: Job, **more: Any) -> RunSnapshot:
    """``fetch`` is live, and has these jobs."""
    return snapshot({"fetch": LIVE}, jobs=jobs, **more)


class TestLook:
    @pytest.mark.parametrize(
        "seen, look",
        [
            (snapshot({"fetch": NodeStatus.COMPLETED}), Look.COMPLETED),
            (snapshot({"fetch": NodeStatus.FAILED}), Look.FAILED),
            (snapshot({"fetch": NodeStatus.SKIPPED}), Look.SKIPPED),
            (snapshot({"fetch": NodeStatus.BLOCKED}), Look.BLOCKED),
            (snapshot({"fetch": NodeStatus.CANCELLED}), Look.CANCELLED),
            (snapshot(), Look.TO_COME),
            (fetching(), Look.QUEUED),
            (fetching(job("fetch", Status.WAITING)), Look.QUEUED),
            (fetching(job("fetch", Status.ACTIVE)), Look.RUNNING),
            (fetching(job("fetch", Status.ABORTING)), Look.RUNNING),
            (fetching(job("fetch", Status.SCHEDULED, failures=1)), Look.RETRYING),
            (fetching(job("fetch", Status.SCHEDULED)), Look.QUEUED),
            (fetching(job("fetch", Status.PAUSED), is_paused=True), Look.PAUSED),
            (
                snapshot(
                    {"fetch": COMPLETED}, jobs=[job("undo:fetch")], status=RunStatus.COMPENSATING
                ),
                Look.UNDOING,
            ),
        ],
    )
    def test_of_a_node_is_that_of_its_state_and_of_its_job(self, seen, look):
        assert line(seen, "fetch").look is look

    def test_of_a_node_with_a_child_run(self):
        seen = snapshot(
            {"fetch": NodeStatus.LIVE}, waits=[wait("fetch", WaitType.CHILD, "child-1")]
        )
        assert line(seen, "fetch").look is Look.RUNNING
        assert line(seen, "fetch").command == "perdure runs explain child-1"

    def test_ignores_auxiliary_jobs_of_a_node(self):
        seen = snapshot(
            {"review": NodeStatus.LIVE},
            jobs=[job("notify:review")],
            waits=[wait("review", WaitType.APPROVAL), wait("remind:review", WaitType.TIMER)],
        )
        assert line(seen, "review").look is Look.ASKING

    def test_ignores_a_job_that_the_log_knows_to_be_over(self):
        seen = snapshot({"fetch": NodeStatus.COMPLETED}, jobs=[job("fetch")])
        seen = replace(seen, state=replace(seen.state, live=Map()))
        assert line(seen, "fetch").note == ""


class TestRunningNode:
    def test_shows_progress_worker_and_time(self):
        working = job("fetch", progress=Progress(percent=40, message="page 2"))
        found = line(fetching(working), "fetch")
        assert (found.share, found.amount) == (0.4, "40%")
        assert found.note == "ann 3s, page 2"

    @pytest.mark.parametrize(
        "attempt, note",
        [
            ({"attempt": 3}, "ann 3s, attempt 3"),
            ({"attempt": 2, "crashes": 1}, "ann 3s, taken over, attempt 2"),
        ],
    )
    def test_shows_which_attempt_it_is(self, attempt, note):
        assert line(fetching(job("fetch", **attempt)), "fetch").note == note

    @pytest.mark.parametrize(
        "seconds, remark", [(4, ""), (6, "ann is silent; others take over in 4s")]
    )
    def test_shows_that_its_worker_is_silent(self, seconds, remark):
        seen = fetching(job("fetch"), workers=[worker("ann", seconds)])
        assert line(seen, "fetch").remark == remark

    def test_of_a_loop_shows_the_iteration(self):
        state = NodeState(status=LIVE, iteration=3)
        seen = snapshot({"fetch": state}, jobs=[job("fetch#3")])
        assert line(seen, "fetch").amount == "iteration 3"


class TestTrouble:
    AGAIN = job("fetch", Status.SCHEDULED, failures=1, ready_at=NOW + timedelta(seconds=5))

    @pytest.mark.parametrize(
        "status, jobs, remark",
        [
            (LIVE, [AGAIN], "ConnectionError: busy; again in 5s"),
            (NodeStatus.FAILED, [], "ConnectionError: busy"),
            (COMPLETED, [], ""),
        ],
    )
    def test_has_the_error_until_the_node_is_completed(self, status, jobs, remark):
        seen = snapshot({"fetch": status}, jobs=jobs, failures={"fetch": BUSY})
        assert line(seen, "fetch").remark == remark


class TestMap:
    def test_counts_items_done_and_at_work(self):
        jobs = [job("pack[2]"), job("pack[3]", Status.WAITING), job("pack[4]", Status.WAITING)]
        seen = snapshot({"pack": NodeStatus.LIVE}, jobs=jobs, maps=Map({"pack": items(5, 2)}))
        found = line(seen, "pack")
        assert (found.share, found.amount) == (0.4, "2/5")
        assert found.note == "1 running, 2 queued"

    def test_shows_items_at_work_below_it_those_in_trouble_first(self):
        jobs = [
            job("pack[0]", progress=Progress(percent=80)),
            job("pack[1]", worker="bob"),
            job("pack[2]", Status.WAITING),
        ]
        seen = snapshot(
            {"pack": NodeStatus.LIVE},
            jobs=jobs,
            workers=[worker("ann"), worker("bob", 6)],
            maps=Map({"pack": items(3, 0)}),
        )
        parts = [each for each in lines_of(seen) if each.is_part]

        assert [(each.name, each.amount) for each in parts] == [("pack[1]", ""), ("pack[0]", "80%")]
        assert all(each.guide == "│   " for each in parts)

    def test_shows_only_some_items(self):
        count = PARTS_MAX + 5
        jobs = [job(f"pack[{item}]") for item in range(count)]
        seen = snapshot({"pack": NodeStatus.LIVE}, jobs=jobs, maps=Map({"pack": items(count, 0)}))
        assert sum(each.is_part for each in lines_of(seen)) == PARTS_MAX

    def test_over_nothing_has_no_share(self):
        seen = snapshot({"pack": NodeStatus.LIVE}, maps=Map({"pack": items(0, 0)}))
        assert (line(seen, "pack").share, line(seen, "pack").amount) == (None, "0/0")


class TestWaits:
    def test_of_an_approval_say_who_is_asked_what(self):
        asked = wait("review", WaitType.APPROVAL, "Refund 120?", deciders=("role:finance", "ann"))
        found = line(snapshot({"review": NodeStatus.LIVE}, waits=[asked]), "review")
        assert found.look is Look.ASKING
        assert found.remark == "asks role:finance, ann: Refund 120?"
        assert found.command == "perdure decide order-7:review --role finance"

    def test_show_how_long_they_last(self):
        asked = wait("review", WaitType.APPROVAL, "Go?", due_at=NOW + timedelta(hours=2))
        assert line(snapshot({"review": NodeStatus.LIVE}, waits=[asked]), "review").remark == (
            "asks anyone: Go?, 2h at most"
        )

    @pytest.mark.parametrize(
        "found_type, name, remark, command",
        [
            (
                WaitType.SIGNAL,
                "goods in",
                "waits for the signal goods in",
                "perdure signal order-7 'goods in'",
            ),
            (
                WaitType.EXTERNAL,
                "",
                "waits for a report",
                "perdure runs report order-7 fetch --status completed --result null",
            ),
        ],
    )
    def test_come_with_the_command_that_ends_them(self, found_type, name, remark, command):
        found = line(
            snapshot({"fetch": NodeStatus.LIVE}, waits=[wait("fetch", found_type, name)]), "fetch"
        )
        assert (found.look, found.remark, found.command) == (Look.WAITING, remark, command)

    def test_of_a_timer_end_by_themselves(self):
        timer = wait("fetch", WaitType.TIMER, due_at=NOW + timedelta(days=2))
        found = line(snapshot({"fetch": NodeStatus.LIVE}, waits=[timer]), "fetch")
        assert (found.remark, found.command) == ("continues in 2d", "")

    def test_have_the_options_that_their_commands_need(self):
        seen = snapshot({"review": NodeStatus.LIVE}, waits=[wait("review", WaitType.APPROVAL)])
        commands = [each.command for each in lines_of(seen, " --store x") if each.command]
        assert commands == ["perdure decide order-7:review --store x"]


def indented(graph: Graph) -> list[str]:
    return [f"{place.guide}{place.node}" for place in places(graph)]


def graph_of(count: int, edges: list[tuple[int, int]]) -> Graph:
    call = Call(task="work", queue="default", priority=3)
    nodes = tuple(TaskNode(id=f"n{number}", call=call) for number in range(count))
    lines = tuple(Edge(source=f"n{source}", target=f"n{target}") for source, target in edges)
    return Graph(Definition(name="made", nodes=nodes, edges=lines))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 12))
    pairs = [(source, target) for target in range(count) for source in range(target)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return graph_of(count, sorted(edges))


def _named(name: str) -> Flow:
    return Flow().then(work, name=name)


class TestTree:
    """Where nodes stand in the list: branches set in below their fork, joins back out."""

    def test_indents_branches_and_aligns_joins(self):
        assert indented(shop().graph) == [
            "fetch",
            "├ pack",
            "╰ price",
            "  tax",
            "bill",
            "review",
            "├ refuse",
            "╰ ship",
        ]

    def test_keeps_a_chain_in_one_column(self):
        flow = Flow("chain").then(work, name="a").then(work, name="b").then(work, name="c").build()
        assert indented(flow.graph) == ["a", "b", "c"]

    def test_sets_in_forks_within_forks(self):
        inner = Flow().then(work, name="b").fork(x=_named("c"), y=_named("d")).join(work, name="e")
        flow = (
            Flow("nested")
            .then(work, name="a")
            .fork(one=inner, two=_named("f"))
            .join(work, name="g")
            .build()
        )

        assert indented(flow.graph) == ["a", "├ b", "│ ├ c", "│ ╰ d", "│ e", "╰ f", "g"]

    def test_puts_a_join_below_what_all_ways_to_it_lead_through(self):
        # 0 forks into 1, 2, 3; 4 joins 1 and 2, 5 joins 2 and 3, and 6 those two.
        edges = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (2, 5), (3, 5), (4, 6), (5, 6)]
        assert indented(graph_of(7, edges)) == ["n0", "├ n1", "├ n2", "╰ n3", "n4", "n5", "n6"]

    def test_takes_several_starts(self):
        assert indented(graph_of(3, [(0, 2), (1, 2)])) == ["n0", "n1", "n2"]

    @given(graphs())
    def test_has_every_node_once_and_behind_those_it_follows(self, graph):
        order = [place.node for place in places(graph)]
        assert sorted(order) == sorted(graph.nodes)
        for edge in graph.definition.edges:
            assert order.index(edge.source) < order.index(edge.target)


VERSION = sample.orders.version


def news(watch: RunWatch, client: Client) -> list[str]:
    return [news_text(each) for each in watch.news(client.runs.list())]


class TestNews:
    """What is new about runs from one look to the next."""

    def test_runs_that_were_there_before_are_not_news(self, client):
        client.submit(sample.orders, 5, id="old")
        watch = RunWatch()
        assert news(watch, client) == []
        assert news(watch, client) == []

    def test_reports_each_change_once_in_the_order_of_starting(self, client):
        watch = RunWatch()
        news(watch, client)

        client.submit(sample.orders, 5, id="a")
        client.submit(sample.orders, 5, id="b")
        assert news(watch, client) == [
            f"a started, a run of orders@{VERSION}",
            f"b started, a run of orders@{VERSION}",
        ]

        client.runs.pause("a")
        client.runs.cancel("b")
        assert news(watch, client) == ["a is paused", "b is cancelled"]

        client.runs.resume("a")
        assert news(watch, client) == ["a continues"]
        assert news(watch, client) == []

    def test_a_run_that_ended_between_two_looks_began_and_ended(self, client):
        watch = RunWatch()
        news(watch, client)
        client.submit(sample.orders, 5, id="quick")
        client.runs.cancel("quick")

        assert news(watch, client) == [
            f"quick started, a run of orders@{VERSION}",
            "quick is cancelled",
        ]

    def test_says_why_a_run_failed_and_how_to_see_what_one_waits_for(self, client, failed, waiting):
        watch = RunWatch()
        list(watch.news([]))
        said = news(watch, client)
        assert "order-5 waits; see perdure runs explain order-5" in said
        assert any(line.startswith("order-13 failed at fetch: ") for line in said)
