"""Task functions that pause for an external party, and what one commit then writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from perdure.engine.cached_run import CachedRun, RunValues
from perdure.engine.external_waits import EARLY_REPORTS_MAX
from perdure.engine.fold import TOKENS_MAX, fold
from perdure.engine.plan import Plan, PlanContext
from perdure.engine.runs import Graphs
from perdure.errors import InvalidInput, NodeNotFound, NodeNotWaiting, RunEnded
from perdure.model.event import NodeReported
from perdure.model.failure import Failure
from perdure.model.ids import JobId, Key
from perdure.model.job import Claim
from perdure.model.outcome import Failed, Retried
from perdure.model.payload import PlainCodec
from perdure.model.run import Finishes, LiveType, NewWait, Run, RunStatus, WaitType
from perdure.model.trigger import CancelRun, MigrateRun, WaitDue
from tests.rules.graphs import chain, graph, loop, mapped, route, signal, task
from tests.rules.played import Played, ended, failure
from tests.support.refusal import refused

JOB, WAIT = LiveType.JOB, LiveType.WAIT
WAITING = RunStatus.WAITING


def paused(*, deadline_ms: int | None = None, poll_ms: int | None = None) -> Played:
    run = Played(chain(task("a"), task("b")), "in")
    run.pause_body("a", {"container": 7}, deadline_ms=deadline_ms, poll_ms=poll_ms)
    return run


def being_polled() -> Played:
    run = paused(poll_ms=300_000)
    run.due("poll:a")
    return run


class TestPausing:
    def test_holds_nothing_and_keeps_the_checkpoint(self):
        run = paused(deadline_ms=5000)

        assert run.decision.waits == [
            NewWait(
                key="a",
                type=WaitType.EXTERNAL,
                delay=timedelta(seconds=5),
                detail=b'{"container":7}',
            )
        ]
        assert (run.live, run.status) == ({"a": WAIT}, WAITING)

    def test_continues_with_the_same_input_the_checkpoint_and_the_report(self):
        run = paused()
        run.report("a", "completed", result=[1])

        assert run.live == {"a": JOB}
        assert run.decision.close_waits == ["a"]
        assert run.inputs["a"] == "in"
        assert run.resumptions["a"] == {
            "pauses": [
                {
                    "name": "",
                    "checkpoint": {"container": 7},
                    "report": {"status": "completed", "result": [1]},
                }
            ]
        }
        run.finish("a", "done")
        assert run.inputs["b"] == "done"
        assert not run.state.pauses
        assert not run.state.early_reports

    def test_may_pause_again_and_remembers_every_pause(self):
        run = paused()
        run.report("a", "completed", result=1)
        run.pause_body("a", "second", "more")
        run.report("a", "completed", result=2)
        assert [
            (each["name"], each["checkpoint"], each["report"]["result"])
            for each in run.resumptions["a"]["pauses"]
        ] == [("", {"container": 7}, 1), ("more", "second", 2)]

    def test_a_failed_report_lets_the_body_decide(self):
        run = paused()
        run.report("a", "failed", error="out of memory", progress={"page": 3})
        assert run.live == {"a": JOB}
        resumption = run.resumptions["a"]
        assert resumption["pauses"][0]["report"]["error"] == "out of memory"
        assert resumption["progress"] == {"page": 3}

    def test_works_for_items_and_iterations(self):
        run = Played(graph(mapped("m")), [10, 20])
        run.pause_body("m[1]", "c")
        run.finish("m[0]", 0)
        assert run.status == WAITING
        run.report("m[1]", "completed", result=5)
        assert run.inputs["m[1]"] == 20
        run.finish("m[1]", 1)
        assert run.result == [0, 1]

        run = Played(graph(loop("l")), 1)
        run.finish("l#1", 2, is_done=False)
        run.pause_body("l#2", "c")
        run.report("l#2", "completed")
        assert run.inputs["l#2"] == 2
        run.finish("l#2", 3, is_done=True)
        assert run.result == 3

    def test_a_route_cannot(self):
        run = Played(graph(route("r", "x"), task("a"), edges="r.x a"))
        run.pause_body("r")
        assert run.failure.code == "node.cannot_pause"


class TestReports:
    def test_before_the_pause_is_kept_and_taken_then(self):
        run = Played(chain(task("a"), task("b")))
        run.report("a", "completed", result="quick")
        assert run.live == {"a": JOB}
        run.pause_body("a", "c")
        assert run.decision.waits == []
        assert run.live == {"a": JOB}
        assert run.resumptions["a"]["pauses"][0]["report"]["result"] == "quick"

    def test_of_one_token_count_once(self):
        run = paused()
        run.report("a", "progress", progress=1, token="t1")
        assert run.report("a", "progress", progress=2, token="t1").events == []
        run.report("a", "completed", token="t2")
        assert run.report("a", "completed", token="t2").events == []
        run.finish("a")
        assert run.report("a", "completed", token="t2").events == []

    def test_are_remembered_by_their_tokens_up_to_a_bound(self):
        run = Played(graph(task("a")), checks=False)
        for number in range(TOKENS_MAX + 5):
            run.report("a", "progress", token=f"t{number}")
        assert len(run.state.reports["a"]) == TOKENS_MAX
        assert run.report("a", "progress", token=f"t{TOKENS_MAX + 4}").events == []

    def test_the_first_last_one_counts_and_others_are_noted(self):
        run = paused()
        run.report("a", "completed", result=1)
        run.finish("a", 1)
        run.report("a", "failed", error="no")
        assert run.types[-1] == "ReportIgnored"
        assert run.output("a") == 1

    def test_progress_is_kept_for_the_next_try(self):
        run = paused()
        run.report("a", "progress", progress={"page": 1})
        run.report("a", "progress", progress={"page": 2})
        run.report("a", "failed", error="gone")
        run.fail("a", "gone")
        assert run.status == RunStatus.FAILED

        run.retry()
        assert run.resumptions["a"] == {"progress": {"page": 2}}
        run.finish("a")
        run.finish("b")
        assert not run.state.progress

    def test_on_nodes_that_do_not_wait_are_refused(self):
        run = Played(graph(task("a"), task("b"), signal("s"), edges="a b"))

        with refused("run.node_not_found", NodeNotFound, node="aa", nearest=("a",)):
            run.report("aa", "completed")
        with refused("run.node_not_waiting", NodeNotWaiting):
            run.report("s", "completed")
        run.finish("a")
        with refused("run.node_not_waiting", NodeNotWaiting, status="completed"):
            run.report("a", "progress")
        run.cancel()
        with pytest.raises(RunEnded):
            run.report("b", "completed")

    @pytest.mark.parametrize(
        "node, key, others",
        [
            (task("b"), "b", ["b[0]", "b#1"]),
            (mapped("b"), "b[1]", ["b", "b#1"]),
            (loop("b"), "b#1", ["b", "b[0]", "b#2"]),
        ],
    )
    def test_on_nodes_that_are_not_reached_yet_are_kept(self, node, key, others):
        run = Played(graph(task("a"), node, signal("s"), edges="a b, b s"))
        for other in (*others, "s"):
            with refused("run.node_not_waiting", NodeNotWaiting, status="not reached yet"):
                run.report(other, "completed")

        run.report(key, "progress", progress=5, token="t")
        run.report(key, "completed", result=7)
        run.report(key, "completed", result=8)
        assert (run.types[-1], run.live) == ("ReportIgnored", {"a": JOB})
        run.finish("a", [1, 2])
        run.pause_body(key, "late")

        assert run.live[key] is JOB
        resumed = run.resumptions[key]
        assert (resumed["pauses"][0]["report"]["result"], resumed["progress"]) == (7, 5)

    def test_on_nodes_that_are_not_reached_yet_are_bounded(self):
        run = Played(graph(task("a"), mapped("m"), edges="a m"))
        for item in range(EARLY_REPORTS_MAX):
            run.report(f"m[{item}]", "progress", token="t")
        run.report("m[0]", "completed")
        with pytest.raises(NodeNotWaiting):
            run.report(f"m[{EARLY_REPORTS_MAX}]", "progress")

    def test_on_nodes_that_are_skipped_instead_are_not_used(self):
        run = Played(graph(route("r", "x", "y"), task("b"), task("c"), edges="r.x b, r.y c"))
        run.report("b", "completed")
        run.finish("r", "y")
        run.finish("c", 1)
        assert run.status is RunStatus.COMPLETED

    def test_on_nodes_that_failed_or_were_skipped_are_refused(self):
        run = Played(graph(task("a"), task("b"), task("c"), on_failure="finish"))
        run.pause_body("a")
        run.due("a")
        run.skip("b")
        with refused("run.node_not_waiting", NodeNotWaiting, status="failed"):
            run.report("a", "completed")
        with refused("run.node_not_waiting", NodeNotWaiting, status="skipped"):
            run.report("b", "completed")

    def test_that_came_early_do_not_outlive_the_end_of_the_run(self):
        run = Played(chain(task("a"), task("b")))
        run.report("a", "completed", result="of the first try")
        run.cancel()
        run.retry()
        run.pause_body("a")
        assert run.live == {"a": WAIT}

    def test_are_forgotten_with_the_pauses_of_a_node_that_is_skipped(self):
        run = paused()
        run.report("a", "progress", progress=1)
        run.report("a", "completed")
        run.skip("a")
        assert (dict(run.state.pauses), dict(run.state.progress)) == ({}, {})

    def test_name_a_port_of_the_node_or_are_refused(self):
        run = Played(graph(task("a", ports=("far",)), task("b"), edges="a.far b"))
        run.pause_body("a", poll_ms=1000)
        before = run.state

        with refused("node.unknown_port", InvalidInput, node="a", port="near", known=("far",)):
            run.report("a", "completed", port="near")
        assert run.state is before
        run.due("poll:a")
        run.finish("poll:a", {"status": "completed", "port": "near"})
        assert (run.types[-1], run.live) == ("NodePolled", {"a": WAIT, "poll:a": WAIT})
        run.report("a", "completed", port="far")
        assert run.live == {"a": JOB}

    def test_in_a_pause_of_the_run_are_kept_until_it_ends(self):
        run = paused()
        run.pause()
        run.report("a", "completed", result=1)
        assert run.live == {"a": WAIT}
        run.unpause()
        assert run.live == {"a": JOB}
        assert run.resumptions["a"]["pauses"][0]["report"]["result"] == 1
        assert not run.state.early_reports


class TestDeadlines:
    def test_fail_the_node(self):
        run = paused(deadline_ms=10)
        run.due("a")
        assert run.failure.type == "perdure.errors.WaitTimedOut"

    @pytest.mark.parametrize("on_timeout, edge", [("late", "a.late b"), ("continue", "a b")])
    def test_may_have_a_port_or_continue(self, on_timeout, edge):
        run = Played(graph(task("a", on_timeout=on_timeout), task("b"), edges=edge))
        run.pause_body("a", deadline_ms=10)
        run.due("a")
        assert run.inputs["b"] is None


class TestPolling:
    def test_asks_in_time_with_what_is_known(self):
        run = paused(poll_ms=300_000)
        assert run.live == {"a": WAIT, "poll:a": WAIT}
        run.due("poll:a")
        assert run.live == {"a": WAIT, "poll:a": JOB}
        assert run.decision.close_waits == ["poll:a"]
        assert run.inputs["poll:a"] == "in"
        assert run.resumptions["poll:a"]["pauses"][0]["checkpoint"] == {"container": 7}

    def test_a_last_word_ends_the_pause(self):
        run = being_polled()
        run.finish("poll:a", {"status": "completed", "result": 9})
        assert run.live == {"a": JOB}
        assert run.resumptions["a"]["pauses"][0]["report"]["result"] == 9
        assert (run.decision.close_waits, run.decision.cancel_keys) == (["a"], ["poll:a"])

    def test_progress_is_kept_and_it_is_asked_again_later(self):
        """Finding 6: what is now a flag was a name, and logs with it are still read."""
        run = being_polled()
        before = run.state
        run.finish("poll:a", {"status": "progress", "progress": 0.5})
        assert run.live == {"a": WAIT, "poll:a": WAIT}
        reported = run.log.events[-1]
        assert isinstance(reported, NodeReported)
        assert (reported.by, reported.is_poll) == (None, True)
        assert "a" in run.state.progress
        assert fold(before, replace(reported, is_poll=False, by="poll")) == run.state
        assert fold(before, replace(reported, is_poll=False)) != run.state

    def test_who_reports_is_not_asked(self):
        run = paused(poll_ms=300_000)
        run.report("a", "progress", progress=1)
        assert [wait.key for wait in run.decision.waits] == ["poll:a"]  # replaced, so later
        run.report("a", "completed")
        assert run.live == {"a": JOB}

    def test_many_reports_while_being_asked_leave_one_job_that_asks(self):
        """Finding 6: six reports left seven active jobs of one key."""
        run = being_polled()
        for number in range(6):
            run.report("a", "progress", progress=number)
            assert not run.decision.schedules
            assert not run.decision.waits
        assert (run.live, run.state.jobs) == ({"a": WAIT, "poll:a": JOB}, 1)
        run.finish("poll:a", None)
        assert run.live == {"a": WAIT, "poll:a": WAIT}

    @pytest.mark.parametrize("answer", [None, "x", {"status": "unknown"}, 5])
    def test_nothing_new_means_later_again(self, answer):
        run = being_polled()
        run.finish("poll:a", answer)
        assert run.live == {"a": WAIT, "poll:a": WAIT}
        assert [wait.key for wait in run.decision.waits] == ["poll:a"]
        run.due("poll:a")
        run.fail("poll:a")
        assert run.live == {"a": WAIT, "poll:a": WAIT}

    def test_an_answer_that_comes_too_late_decides_nothing(self):
        run = being_polled()
        run.report("a", "completed", result=1)
        assert run.finish("poll:a", {"status": "failed"}).events == []
        assert run.live == {"a": JOB}


class TestItemsThatAreAskedAfter:
    def _run(self, on_error: str) -> Played:
        run = Played(
            graph(mapped("m", on_error=on_error), task("mend"), edges="m.bad mend"), [1, 2, 3]
        )
        for item in ("m[0]", "m[1]"):
            run.pause_body(item, poll_ms=1000, deadline_ms=5000)
        return run

    def test_one_that_reaches_its_deadline_leaves_nothing_behind(self):
        run = self._run("continue")
        run.due("m[0]")
        assert run.live == {"m[1]": WAIT, "poll:m[1]": WAIT, "m[2]": JOB}
        run.due("m[1]")
        run.finish("m[2]", 3)
        assert run.output("m") == [None, None, 3]
        assert not run.state.pauses

    def test_all_are_given_up_when_one_fails(self):
        run = self._run("bad")
        run.due("poll:m[1]")
        run.fail("m[2]")
        assert run.live == {"mend": JOB}
        assert sorted(run.decision.cancel_keys) == ["m[0]", "m[1]", "poll:m[0]", "poll:m[1]"]
        assert not run.state.pauses
        assert run.due("poll:m[0]").events == []
        assert run.finish("poll:m[1]").events == []


class TestTryingAgain:
    def test_what_was_reported_as_failed_is_restarted(self):
        run = paused()
        run.report("a", "failed", error="no paper", progress={"page": 3})
        run.attempt_failed("a")

        assert not run.state.pauses["a"]
        run.pause_body("a", "second")
        run.report("a", "completed", result=1)
        resumption = run.resumptions["a"]
        assert [each["checkpoint"] for each in resumption["pauses"]] == ["second"]
        assert (resumption["progress"], resumption["failures"]) == ({"page": 3}, 1)

    def test_failures_are_counted_over_all_pauses(self):
        run = paused()
        for expected in (1, 2):
            run.report("a", "failed")
            run.attempt_failed("a")
            run.pause_body("a")
            assert run.state.external_failures["a"] == expected
        run.report("a", "completed")
        run.finish("a")

        assert not run.state.external_failures

    @pytest.mark.parametrize("status, is_snoozed", [("completed", False), ("failed", True)])
    def test_an_error_after_a_good_report_or_a_snooze_continues_from_it(self, status, is_snoozed):
        run = paused()
        run.report("a", status)
        run.end("a", Retried(failure=failure("later"), is_snoozed=is_snoozed))
        assert len(run.state.pauses["a"]) == 1
        assert not run.state.external_failures


CODEC = PlainCodec()
FAILURE = Failure(type="builtins.OSError", message="the line is busy")


def cached(played: Played) -> CachedRun:
    values = RunValues(CODEC)
    for number, json in played.log.values.items():
        values.put(number, json)
    stored = Run(
        id=played.id,
        namespace="default",
        flow=played.graph.name,
        version=played.graph.version,
        status=played.state.status,
        number=played.state.number,
        parent=None,
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
        updated_at=datetime(2030, 1, 2, tzinfo=UTC),
        finished_at=None,
    )
    return CachedRun(stored, played.graph, played.state, values)


def stops(run: Played) -> list[str]:
    return [each.key.text for each in run.decision.schedules if each.key.part == "cancel"]


class TestCancellingTheWork:
    """A node type that can cancel its work is called once nothing waits for that any more."""

    def test_goes_before_the_end_of_a_cancelled_run(self):
        run = Played(graph(task("a"), task("b"), task("c")), "in")
        run.pause_body("a", {"container": 7}, cancels=True)
        run.pause_body("b", "unasked")

        run.cancel(reason="enough")

        assert (stops(run), run.live) == (["cancel:a"], {"cancel:a": JOB})
        assert run.resumptions["cancel:a"]["pauses"][0]["checkpoint"] == {"container": 7}
        assert run.status is RunStatus.COMPENSATING
        run.finish("cancel:a")
        assert run.types[-2:] == ["NodeCancelled", "RunCancelled"]
        assert (run.status, run.state.reason) == (RunStatus.CANCELLED, "enough")
        assert not run.state.compensates

    @pytest.mark.parametrize("is_failed", [False, True])
    def test_precedes_the_end_of_a_failed_run_and_accompanies_undo_tasks(self, is_failed):
        run = Played(graph(task("u", undo=True), task("a"), task("b"), edges="u b"), "in")
        run.finish("u", 1)
        run.pause_body("a", 7, cancels=True)
        run.fail("b")
        assert run.live == {"cancel:a": JOB, "undo:u": JOB}
        run.finish("undo:u")
        assert run.status is RunStatus.COMPENSATING
        (run.fail if is_failed else run.finish)("cancel:a")
        assert run.types[-1] == "RunFailed"

    @pytest.mark.parametrize("is_taken", [False, True])
    def test_is_done_for_work_that_was_reported_on_unless_it_was_taken(self, is_taken):
        run = Played(chain(task("a"), task("b")), "in")
        run.pause_body("a", 7, cancels=True)
        run.report("a", "completed")
        if is_taken:
            run.finish("a", 1)
        run.cancel()
        assert run.live == ({} if is_taken else {"cancel:a": JOB})
        assert (run.status is RunStatus.CANCELLED) is is_taken

    @pytest.mark.parametrize("is_cancelled", [False, True])
    def test_at_the_deadline_resumes_the_run_but_delays_its_end(self, is_cancelled):
        run = Played(
            graph(task("a", on_timeout="late", ports=("late",)), task("b"), edges="a.late b")
        )
        run.pause_body("a", 7, deadline_ms=5, cancels=True)
        run.due("a")
        assert run.live == {"b": JOB, "cancel:a": JOB}
        if is_cancelled:
            run.cancel()
            assert (run.decision.cancel_all, run.decision.cancel_keys) == (False, ["b"])
            number = run.state.number
            run.cancel()
            assert run.state.number == number
        else:
            run.finish("b", 2)
        assert run.live == {"cancel:a": JOB}
        run.finish("cancel:a")
        assert run.status is (RunStatus.CANCELLED if is_cancelled else RunStatus.COMPLETED)

    @pytest.mark.parametrize("on_error", ["fail", "sorry"])
    def test_of_the_other_items_when_one_fails(self, on_error):
        items = mapped("m", on_error=on_error)
        run = Played(
            graph(items, task("b"), edges="m.sorry b" if on_error == "sorry" else ""), [1, 2]
        )
        run.pause_body("m[1]", 7, cancels=True)
        run.fail("m[0]")
        assert run.live["cancel:m[1]"] is JOB
        assert stops(run) == ["cancel:m[1]"]
        run.finish("cancel:m[1]")
        assert run.status is (RunStatus.FAILED if on_error == "fail" else RunStatus.RUNNING)

    def test_of_one_plan_is_written_although_the_next_decision_ends_the_run(self):
        played = Played(graph(task("a", on_timeout="late", ports=("late",)), task("b"), edges=""))
        played.pause_body("a", 7, deadline_ms=5, cancels=True)
        plan = Plan(cached(played), PlanContext("default", Graphs().known, CODEC))

        plan.apply(WaitDue(key=Key(node="a")))
        plan.apply(CancelRun())
        plan.build()

        assert [job.node and job.node.key for job in plan.commit.jobs] == ["cancel:a"]


class TestAJobThatIsToBeTriedAgain:
    """A commit does not cancel what it settles, so the plan has to."""

    def test_ends_with_its_run(self):
        played = Played(graph(task("a"), task("b"), edges=""))
        settled = self.settled_together(played, "a", "b")
        assert settled == {"a": Finishes(), "b": Finishes()}

    def test_ends_with_its_map(self):
        items = mapped("m", on_error="sorry")
        played = Played(graph(items, task("then"), edges="m.sorry then"), [1, 2])
        settled = self.settled_together(played, "m[0]", "m[1]")
        assert settled == {"m[0]": Finishes(), "m[1]": Finishes()}

    def settled_together(self, played: Played, again: str, for_good: str) -> dict[str, object]:
        """One commit: an attempt at one key is to be repeated, another one failed for good."""
        plan = Plan(cached(played), PlanContext("default", Graphs().known, CODEC))
        claims = {key: Claim(id=JobId(key), epoch=1) for key in (again, for_good)}
        retried = Retried(failure=FAILURE, delay=timedelta(seconds=1))
        plan.settle(claims[again], ended(again, retried), lambda _: False)
        plan.settle(claims[for_good], ended(for_good, Failed(failure=FAILURE)), lambda _: False)
        plan.build()
        return {str(each.claim.id): each.job_outcome for each in plan.commit.settlements}


class TestPlan:
    """Plans: what one commit writes, also when it is put together from several decisions."""

    def test_what_a_new_version_starts_belongs_to_that_version(self):
        played = Played(chain(task("a"), signal("s")))
        played.finish("a", 1)
        new = graph(task("a"), signal("s"), task("audit"), edges="a s, a audit")
        run = cached(played)
        plan = Plan(run, PlanContext("default", Graphs([new]).known, CODEC))

        plan.apply(MigrateRun(to=new.ref))
        plan.build()
        plan.done()

        [job] = plan.commit.jobs
        assert (job.partition.task, job.partition.flow) == ("audit", new.text)
        assert (plan.commit.version, run.graph.version) == (new.version, new.version)
