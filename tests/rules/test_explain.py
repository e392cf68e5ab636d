"""What an explanation holds: where a run is, why nothing happens, and what would help."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import Action, Finding, Severity
from perdure.model.failure import Failure
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import FailedAttempt, Job, NodeRef, Progress, QueueInfo, Status
from perdure.model.run import AnswerState, ApprovalState, LiveType, RunStatus, Wait, WaitType
from perdure.model.worker import WorkerState
from perdure.operations.insight.explain import (
    FINDINGS_MAX,
    START_WORKER,
    Explanation,
    Surroundings,
    explain_run,
)
from perdure.testing.contract.builders import worker_info
from tests.rules.graphs import chain, child, delay, graph, signal, task
from tests.rules.played import Played

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
READY = {"task": "charge", "queue": "default", "since": NOW - MINUTE}
GRAPH = chain(task("charge"), task("ship"), name="orders")


def job(key: str = "charge", status: Status = Status.WAITING, **fields: Any) -> Job:
    known: dict[str, Any] = {
        "id": JobId(f"job-{key}"),
        "namespace": "default",
        "queue": "default",
        "task": key,
        "tags": (),
        "status": status,
        "priority": 3,
        "group": None,
        "fingerprint": None,
        "attempt": 0,
        "failures": 0,
        "snoozes": 0,
        "crashes": 0,
        "max_attempts": None,
        "worker": None,
        "epoch": 0,
        "progress": Progress(percent=0),
        "created_at": NOW - MINUTE,
        "ready_at": NOW - MINUTE,
        "deadline_at": None,
        "started_at": None,
        "finished_at": None,
        "lease_until": None,
        "node": NodeRef(run=RunId("run"), key=key),
    }
    return Job(**(known | fields))


def worker(*flows: str, seen_at: datetime = NOW, **fields: Any) -> WorkerState:
    known: dict[str, Any] = {"namespace": "default", "queues": ("default",), "tasks": ()}
    info = worker_info(id=WorkerId("w1"), flows=flows, **(known | fields))
    return WorkerState(info=info, started_at=NOW - MINUTE, seen_at=seen_at, running=())


def wait(
    key: str,
    live_type: WaitType,
    name: str = "",
    due_at: datetime | None = None,
    deciders: tuple[str, ...] = (),
) -> Wait:
    return Wait(
        run=RunId("run"),
        namespace="default",
        key=key,
        type=live_type,
        name=name,
        opened_at=NOW - MINUTE,
        due_at=due_at,
        deciders=deciders,
    )


def explain(run: Played, **around: Any) -> Explanation:
    return explain_run(run.id, run.state, Surroundings(**around), NOW)


def only(explanation: Explanation) -> Finding:
    [finding] = explanation.findings
    return finding


def counts(explanation: Explanation) -> dict[str, int]:
    """The headline of a run of which there are several things to say."""
    prefix = "explain.count_"
    assert all(each.code.startswith(prefix) for each in explanation.headline)
    return {each.code.removeprefix(prefix): each.args["count"] for each in explanation.headline}


def known(finding: Finding) -> dict[str, Any]:
    return {name: value for name, value in finding.args.items() if value not in (None, (), {}, "")}


class TestJobs:
    def test_running(self):
        running = job(
            status=Status.ACTIVE, attempt=2, worker=WorkerId("w1"), started_at=NOW - MINUTE
        )
        explained = explain(Played(GRAPH), jobs=(running,))

        assert explained.status is RunStatus.RUNNING
        assert counts(explained) == {"running": 1}
        assert only(explained) == Finding(
            code="explain.running",
            about="charge",
            severity=Severity.OK,
            args={"task": "charge", "attempt": 2, "worker": "w1", "since": NOW - MINUTE},
        )

    def test_waiting_for_room(self):
        explained = explain(Played(GRAPH), jobs=(job(),), workers=(worker(GRAPH.text),))
        assert counts(explained) == {"queued": 1}
        assert only(explained).code == "explain.queued"
        seen = {"seen": timedelta(0), "seen_at": {"w1": NOW}}
        assert known(only(explained)) == {**READY, "workers": 1, **seen}

    def test_waiting_for_another_attempt(self):
        again = job(status=Status.SCHEDULED, attempt=1, ready_at=NOW + MINUTE)
        failure = Failure(type="OSError", message="no route")
        failed = FailedAttempt(attempt=1, worker=None, at=NOW - MINUTE, failure=failure)
        around = {"jobs": (again,), "failures": {again.id: failed}}
        explained = only(explain(Played(GRAPH), workers=(worker(GRAPH.text),), **around))
        alone = only(explain(Played(GRAPH), **around))

        retry = {
            "task": "charge",
            "attempt": 2,
            "at": NOW + MINUTE,
            "failed_at": NOW - MINUTE,
            "error": "OSError",
            "reason": "no route",
        }
        assert (explained.code, explained.severity, explained.actions) == (
            "explain.retry",
            Severity.OK,
            (),
        )
        assert explained.args == retry
        assert alone.args == {**retry, "unserved": GRAPH.text}
        assert (alone.severity, alone.actions) == (Severity.WARNING, (START_WORKER,))
        assert only(explain(Played(GRAPH), workers=(worker("other@1"),), **around)) == alone

    def test_the_queue_is_paused(self):
        pause = QueueInfo(namespace="default", queue="default", paused_at=NOW, paused_by="ann")
        explained = explain(Played(GRAPH), jobs=(job(),), paused_queues=(pause,))

        assert only(explained) == Finding(
            code="explain.queue_paused",
            about="charge",
            args={"queue": "default", "by": "ann", "since": NOW},
            actions=(Action("queues.resume", {"name": "default"}),),
        )
        assert explained.headline == explained.findings

    def test_no_worker_is_live(self):
        dead = worker(GRAPH.text, seen_at=NOW - MINUTE)
        explained = explain(Played(GRAPH), jobs=(job(),), workers=(dead,))

        assert only(explained) == Finding(
            code="explain.no_worker",
            about="charge",
            args={**READY, "flow": GRAPH.text},
            actions=(START_WORKER,),
        )
        assert explained.headline == explained.findings

    def test_no_live_worker_has_the_version_and_the_nearest_is_named(self):
        workers = worker("orders@old", "orders@new"), worker("orders@new"), worker("other@1")
        explained = explain(Played(GRAPH), jobs=(job(),), workers=workers)

        assert only(explained) == Finding(
            code="explain.no_version",
            about="charge",
            args={**READY, "flow": GRAPH.text, "nearest": "orders@new"},
            actions=(START_WORKER, Action("runs.migrate", {"id": "run"}, ("to",))),
        )
        assert explained.headline == explained.findings

    def test_no_live_worker_has_any_version(self):
        explained = explain(Played(GRAPH), jobs=(job(),), workers=(worker("other@1"),))
        assert only(explained).code == "explain.no_version"
        assert only(explained).args["nearest"] is None
        assert only(explained).actions == (START_WORKER,)

    def test_no_live_worker_serves_the_queue(self):
        workers = worker(GRAPH.text), worker("other@1", queues=("mail",))
        explained = explain(Played(GRAPH), jobs=(job(queue="mail"),), workers=workers)
        assert only(explained) == Finding(
            code="explain.no_queue",
            about="charge",
            args={**READY, "queue": "mail", "flow": GRAPH.text},
            actions=(Action("worker.run", {"queues": ("mail",)}, ("module",)),),
        )

    def test_no_live_worker_has_the_tags(self):
        workers = (worker(GRAPH.text, tags=("cpu",)),)
        explained = explain(Played(GRAPH), jobs=(job(tags=("gpu",)),), workers=workers)
        assert (only(explained).code, only(explained).args["tags"]) == ("explain.no_tags", ("gpu",))
        start = Action("worker.run", {"queues": ("default",), "tags": ("gpu",)}, ("module",))
        assert only(explained).actions == (start,)
        able = explain(Played(GRAPH), jobs=(job(tags=("gpu",)),), workers=(worker(GRAPH.text),))
        assert only(able).code == "explain.queued"

    def test_of_several_what_holds_back_is_counted(self):
        run = Played(graph(task("a"), task("b")))
        jobs = job("a", Status.ACTIVE), job("b", queue="mail")
        explained = explain(run, jobs=jobs, workers=(worker(run.graph.text),))
        assert counts(explained) == {"running": 1, "held_back": 1}

    def test_no_more_than_can_be_read(self):
        jobs = tuple(job(f"n{number}") for number in range(FINDINGS_MAX + 5))
        explained = explain(Played(GRAPH), jobs=jobs, workers=(worker(GRAPH.text),))
        assert counts(explained) == {"queued": FINDINGS_MAX + 5}
        assert len(explained.findings) == FINDINGS_MAX + 1
        assert (explained.findings[-1].code, explained.findings[-1].args) == (
            "explain.more",
            {"count": 5},
        )


class TestWaits:
    def test_a_signal(self):
        run = Played(chain(signal("s")))
        explained = explain(run, waits=(wait("s", WaitType.SIGNAL, "go", NOW + MINUTE),))

        assert (explained.status, counts(explained)) == (RunStatus.WAITING, {"signals": 1})
        assert (only(explained).code, only(explained).about) == ("explain.signal", "s")
        since = {"signal": "go", "since": NOW - MINUTE}
        assert known(only(explained)) == {**since, "until": NOW + MINUTE}
        assert only(explained).actions == (
            Action("runs.signal", {"id": "run", "name": "go"}, ("payload",)),
        )
        forever = explain(run, waits=(wait("s", WaitType.SIGNAL, "go"),))
        assert known(only(forever)) == since

    def test_a_signal_with_a_filter(self):
        where = {"property": "sum", "op": "gt", "value": 5}
        waits = (wait("charge", WaitType.SIGNAL, "paid"),)
        explained = explain(Played(GRAPH), waits=waits, details={"charge": {"where": where}})
        assert only(explained).args["where"] == where

    def test_an_approval(self):
        open_one = wait(
            "charge", WaitType.APPROVAL, "Pay 5?", NOW + MINUTE, deciders=("role:finance", "ann")
        )
        explained = explain(
            Played(GRAPH), waits=(open_one,), details={"charge": {"answers": ["pay"]}}
        )

        assert counts(explained) == {"approvals": 1}
        assert (only(explained).code, only(explained).about) == ("explain.approval", "charge")
        assert known(only(explained)) == {
            "title": "Pay 5?",
            "deciders": ("role:finance", "ann"),
            "since": NOW - MINUTE,
            "until": NOW + MINUTE,
        }
        decide = {"id": "run:charge", "decision": "pay", "roles": ("finance",)}
        assert only(explained).actions == (Action("approvals.decide", decide, ("by",)),)

    def test_an_approval_that_some_have_answered(self):
        run = Played(GRAPH)
        answer = AnswerState(decision="approve", by="ann", stands_for=("ann",), ref=2)
        approvals = run.state.approvals.set("charge", ApprovalState(answers=(answer,)))
        state = msgspec.structs.replace(run.state, approvals=approvals)
        around = Surroundings(
            waits=(wait("charge", WaitType.APPROVAL, "Pay?"),), details={"charge": {}}
        )

        explained = explain_run(run.id, state, around, NOW)

        assert only(explained).args["deciders"] == ()
        assert only(explained).args["answers"] == {"ann": "approve"}
        decide = {"id": "run:charge", "decision": "approve"}
        assert only(explained).actions == (Action("approvals.decide", decide, ("by",)),)

    def test_an_approval_whose_choices_cannot_be_read_leaves_the_decision_open(self):
        explained = explain(Played(GRAPH), waits=(wait("charge", WaitType.APPROVAL, "Pay?"),))
        decide = Action("approvals.decide", {"id": "run:charge"}, ("decision", "by"))
        assert only(explained).actions == (decide,)

    def test_a_report(self):
        waits = (
            wait("charge", WaitType.EXTERNAL, "agent", NOW + MINUTE),
            wait("poll:charge", WaitType.TIMER, due_at=NOW + 2 * MINUTE),
        )
        explained = explain(Played(GRAPH), waits=waits)

        assert counts(explained) == {"reports": 1}
        assert (only(explained).code, only(explained).about) == ("explain.report", "charge")
        assert known(only(explained)) == {
            "step": "agent",
            "since": NOW - MINUTE,
            "until": NOW + MINUTE,
            "poll_at": NOW + 2 * MINUTE,
        }
        assert only(explained).actions == (REPORT,)

    def test_external_work_is_polled(self):
        timer = wait("poll:charge", WaitType.TIMER, due_at=NOW + MINUTE)
        explained = explain(Played(GRAPH), waits=(timer,))

        assert counts(explained) == {"reports": 1}
        assert only(explained) == Finding(
            code="explain.polling",
            about="poll:charge",
            severity=Severity.OK,
            args={"node": "charge", "at": NOW + MINUTE},
            actions=(REPORT,),
        )

    def test_people_are_reminded(self):
        timer = wait("remind:charge", WaitType.TIMER, due_at=NOW + MINUTE)
        explained = explain(Played(GRAPH), waits=(timer,))
        assert counts(explained) == {"approvals": 1}
        assert only(explained).code == "explain.reminding"
        assert only(explained).args == {"node": "charge", "at": NOW + MINUTE}
        assert only(explained).actions == (Action("approvals.get", {"id": "run:charge"}),)

    def test_auxiliary_jobs_of_a_node_as_its_state_says(self):
        """The rows around it may be gone by the time they are read."""
        run = Played(GRAPH)
        live = dict.fromkeys(("poll:charge#2", "notify:ship#1"), LiveType.JOB)
        state = replace(run.state, live=run.state.live.update(live))
        explained = explain_run(run.id, state, Surroundings(), NOW)

        assert counts(explained) == {"approvals": 1, "reports": 1}
        assert [(each.about, each.code, known(each)) for each in explained.findings] == [
            ("notify:ship#1", "explain.notifying", {"node": "ship"}),
            ("poll:charge#2", "explain.polling", {"node": "charge#2"}),
        ]

    def test_jobs_that_poll_and_notify(self):
        fields: dict[str, Any] = {"status": Status.ACTIVE, "attempt": 1, "worker": WorkerId("w1")}
        polling = job("poll:charge", task="charge", **fields)
        notifying = job("notify:ship", task="mail", **fields)
        waits = (wait("charge", WaitType.EXTERNAL),)
        explained = explain(Played(GRAPH), jobs=(polling, notifying), waits=waits)

        assert counts(explained) == {"running": 2, "reports": 1}
        assert [(each.args["task"], each.args["purpose"]) for each in explained.findings[:2]] == [
            ("charge", "poll"),
            ("mail", "notify"),
        ]

    def test_a_timer(self):
        run = Played(chain(delay("d")))
        timer = wait("d", WaitType.TIMER, due_at=NOW + MINUTE)
        alone = only(explain(run, waits=(timer,)))
        served = only(explain(run, waits=(timer,), workers=(worker(),)))
        late = only(explain(run, waits=(wait("d", WaitType.TIMER, due_at=NOW - MINUTE),)))

        assert (alone.code, alone.actions) == ("explain.timer_no_worker", (START_WORKER,))
        assert (served.code, served.actions) == ("explain.timer", ())
        assert known(alone) == known(served) == {"since": NOW - MINUTE, "until": NOW + MINUTE}
        assert late.args["overdue"] == MINUTE

    def test_a_child(self):
        run = Played(chain(child("c")))
        waits = (wait("c", WaitType.CHILD, "run/c"),)
        explained = explain(run, waits=waits, children={RunId("run/c"): RunStatus.PAUSED})

        assert only(explained).code == "explain.child"
        assert known(only(explained)) == {
            "child": "run/c",
            "status": RunStatus.PAUSED,
            "since": NOW - MINUTE,
        }
        assert only(explained).actions == (Action("runs.explain", {"id": "run/c"}),)
        assert only(explain(run, waits=waits)).code == "explain.child_not_found"


REPORT = Action("runs.report", {"id": "run", "node": "charge", "status": "completed"}, ("result",))


class TestTheRun:
    def test_paused(self):
        run = Played(GRAPH)
        run.pause(reason="maintenance", by="ops")
        explained = explain(run, jobs=(job(status=Status.PAUSED),))
        assert explained.headline == explained.findings
        assert only(explained).code == "explain.paused"
        assert known(only(explained)) == {"run": "run", "by": "ops", "reason": "maintenance"}
        assert only(explained).actions == (Action("runs.resume", {"id": "run"}),)
        assert only(explain(run, paused_at=NOW)).args["since"] == NOW

    def test_failed(self):
        run = Played(GRAPH)
        run.fail("charge", "no money")
        explained = explain(run)

        assert explained.headline == explained.findings
        assert only(explained) == Finding(
            code="explain.node_failed",
            about="charge",
            args={"node": "charge", "error": "OSError", "reason": "no money"},
            actions=(Action("runs.retry", {"id": "run"}),),
        )

    def test_failed_and_not_yet_ended(self):
        run = Played(graph(task("a"), task("b"), on_failure="finish"))
        run.fail("a")
        explained = explain(run, jobs=(job("b", Status.ACTIVE),))
        assert counts(explained) == {"running": 1}
        assert (explained.findings[0].code, explained.findings[0].actions) == (
            "explain.failing",
            (),
        )

    def test_cancelled(self):
        run = Played(GRAPH)
        run.cancel(reason="out of stock")
        explained = explain(run)

        assert explained.headline == explained.findings
        assert only(explained) == Finding(
            code="explain.cancelled",
            args={"run": "run", "by": "ops", "reason": "out of stock"},
            actions=(Action("runs.retry", {"id": "run"}),),
        )

    def test_being_undone(self):
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.cancel(compensates=True, reason="out of stock")
        explained = explain(run)

        assert explained.headline == explained.findings
        assert only(explained).code == "explain.compensating"
        assert only(explained).args == {
            "run": "run",
            "status": RunStatus.CANCELLED,
            "by": "ops",
            "reason": "out of stock",
            "left": ("a",),
        }

        run.finish("undo:a")
        assert only(explain(run)).actions == (Action("runs.fork", {"id": "run"}, ("after",)),)

    def test_paused_while_being_undone(self):
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.fail("b")
        run.pause(by="ops")
        explained = explain(run)

        assert [each.code for each in explained.findings] == [
            "explain.paused",
            "explain.compensating",
        ]
        assert known(explained.findings[0]) == {"run": "run"}
        assert explained.findings[1].args["node"] == "b"
        assert explained.headline == explained.findings[:1]

    def test_completed(self):
        run = Played(chain(task("a")))
        run.finish("a")
        explained = explain(run)
        [headline] = explained.headline
        assert headline.code == "explain.run_status"
        assert headline.args == {"run": "run", "status": RunStatus.COMPLETED}
        assert explained.findings == ()

    def test_between_two_looks(self):
        assert [each.code for each in explain(Played(GRAPH)).headline] == ["explain.progressing"]
