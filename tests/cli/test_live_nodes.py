"""What a line says of a node: its look, how much is done, who is at it, and what would help."""

from __future__ import annotations

from datetime import timedelta

import pytest
from immutables import Map
from msgspec.structs import replace

from perdure import Progress, RunStatus, Status
from perdure.cli.views.live import PARTS_MAX, Line, Look, lines_of
from perdure.model.failure import Failure
from perdure.model.run import NodeState, NodeStatus, WaitType
from perdure.operations.records import RunSnapshot
from tests.cli.sights import NOW, items, job, snapshot, wait, worker

BUSY = Failure(type="ConnectionError", message="busy", traceback="", causes=())


def line(snapshot: RunSnapshot, name: str) -> Line:
    [found] = [each for each in lines_of(snapshot) if each.name == name]
    return found


class TestLook:
    @pytest.mark.parametrize(
        "status, look",
        [
            (NodeStatus.COMPLETED, Look.COMPLETED),
            (NodeStatus.FAILED, Look.FAILED),
            (NodeStatus.SKIPPED, Look.SKIPPED),
            (NodeStatus.BLOCKED, Look.BLOCKED),
            (NodeStatus.CANCELLED, Look.CANCELLED),
        ],
    )
    def test_of_a_node_that_is_over(self, status, look):
        assert line(snapshot({"fetch": status}), "fetch").look is look

    def test_of_a_node_that_was_not_reached(self):
        assert line(snapshot(), "ship").look is Look.TO_COME

    @pytest.mark.parametrize(
        "status, failures, look",
        [
            (Status.WAITING, 0, Look.QUEUED),
            (Status.ACTIVE, 0, Look.RUNNING),
            (Status.ABORTING, 0, Look.RUNNING),
            (Status.SCHEDULED, 1, Look.RETRYING),
            (Status.SCHEDULED, 0, Look.QUEUED),
        ],
    )
    def test_of_a_live_node_is_that_of_its_job(self, status, failures, look):
        seen = snapshot({"fetch": NodeStatus.LIVE}, jobs=[job("fetch", status, failures=failures)])

        assert line(seen, "fetch").look is look

    def test_of_a_live_node_whose_job_was_not_seen_yet(self):
        assert line(snapshot({"fetch": NodeStatus.LIVE}), "fetch").look is Look.QUEUED

    def test_of_a_paused_run(self):
        parked = [job("fetch", Status.PAUSED)]
        seen = snapshot({"fetch": NodeStatus.LIVE}, jobs=parked, is_paused=True)

        assert line(seen, "fetch").look is Look.PAUSED

    def test_of_a_node_that_is_being_undone(self):
        seen = snapshot(
            {"fetch": NodeStatus.COMPLETED},
            jobs=[job("undo:fetch")],
            status=RunStatus.COMPENSATING,
        )

        assert line(seen, "fetch").look is Look.UNDOING

    def test_of_a_node_with_a_child_run(self):
        seen = snapshot(
            {"fetch": NodeStatus.LIVE}, waits=[wait("fetch", WaitType.CHILD, "child-1")]
        )

        assert line(seen, "fetch").look is Look.RUNNING
        assert line(seen, "fetch").command == "perdure runs explain child-1"

    def test_ignores_what_stands_beside_a_node(self):
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
    def test_tells_progress_worker_and_time(self):
        working = job("fetch", progress=Progress(percent=40, message="page 2"))
        found = line(snapshot({"fetch": NodeStatus.LIVE}, jobs=[working]), "fetch")

        assert (found.share, found.amount) == (0.4, "40%")
        assert found.note == "ann 3s, page 2"

    def test_tells_which_try_it_is(self):
        found = line(snapshot({"fetch": NodeStatus.LIVE}, jobs=[job("fetch", attempt=3)]), "fetch")

        assert found.note == "ann 3s, attempt 3"

    def test_tells_that_it_was_taken_over(self):
        again = job("fetch", attempt=2, crashes=1)

        assert line(snapshot({"fetch": NodeStatus.LIVE}, jobs=[again]), "fetch").note == (
            "ann 3s, taken over, attempt 2"
        )

    def test_tells_that_its_worker_is_silent(self):
        seen = snapshot({"fetch": NodeStatus.LIVE}, jobs=[job("fetch")], workers=[worker("ann", 6)])

        assert line(seen, "fetch").remark == "ann is silent; others take over in 4s"

    def test_has_nothing_to_remark_while_its_worker_is_heard(self):
        seen = snapshot({"fetch": NodeStatus.LIVE}, jobs=[job("fetch")], workers=[worker("ann", 4)])

        assert line(seen, "fetch").remark == ""

    def test_of_a_loop_tells_the_iteration(self):
        state = NodeState(status=NodeStatus.LIVE, iteration=3)

        assert (
            line(snapshot({"fetch": state}, jobs=[job("fetch#3")]), "fetch").amount == "iteration 3"
        )


class TestTrouble:
    def test_of_a_retry_has_the_error_and_the_time(self):
        again = job(
            "fetch", Status.SCHEDULED, failures=1, ready_at=NOW + timedelta(seconds=5), attempt=1
        )
        seen = snapshot({"fetch": NodeStatus.LIVE}, jobs=[again], failures={"fetch": BUSY})

        assert line(seen, "fetch").remark == "ConnectionError: busy; again in 5s"

    def test_of_a_failed_node_has_the_error(self):
        seen = snapshot({"fetch": NodeStatus.FAILED}, failures={"fetch": BUSY})

        assert line(seen, "fetch").remark == "ConnectionError: busy"

    def test_of_a_completed_node_is_forgotten(self):
        seen = snapshot({"fetch": NodeStatus.COMPLETED}, failures={"fetch": BUSY})

        assert line(seen, "fetch").remark == ""


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
        asked = wait("review", WaitType.APPROVAL, "Refund 120?", deciders=("finance", "ann"))
        found = line(snapshot({"review": NodeStatus.LIVE}, waits=[asked]), "review")

        assert found.look is Look.ASKING
        assert found.remark == "asks finance, ann: Refund 120?"
        assert found.command == "perdure decide order-7:review --role finance"

    def test_tell_how_long_they_last(self):
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
