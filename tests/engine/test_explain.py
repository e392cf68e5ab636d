"""What an explanation says: where a run is, why nothing happens, and what would help."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.model.explanation import Explanation, Finding, FindingKind, Surroundings
from perdure.model.failure import Failure
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import FailedAttempt, Job, NodeRef, Progress, QueueInfo, Status
from perdure.model.run import AnswerState, ApprovalState, LiveKind, RunStatus, Wait, WaitKind
from perdure.model.worker import WorkerInfo, WorkerState
from perdure.rules.explain import FINDINGS_MAX, explain_run
from tests.engine.graphs import chain, child, delay, graph, signal, task
from tests.engine.played import Played

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
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
        "deaths": 0,
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
    known: dict[str, Any] = {
        "id": WorkerId("w1"),
        "namespace": "default",
        "host": "here",
        "pid": 1,
        "queues": ("default",),
        "tasks": (),
        "tags": None,
        "concurrency": 1,
        "lease": timedelta(seconds=30),
        "flows": flows,
    }
    info = WorkerInfo(**(known | fields))
    return WorkerState(info=info, started_at=NOW - MINUTE, seen_at=seen_at, running=())


def wait(
    key: str,
    kind: WaitKind,
    name: str = "",
    due_at: datetime | None = None,
    deciders: tuple[str, ...] = (),
) -> Wait:
    return Wait(
        run=RunId("run"),
        namespace="default",
        key=key,
        kind=kind,
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


class TestJobs:
    def test_running(self) -> None:
        running = job(
            status=Status.ACTIVE, attempt=2, worker=WorkerId("w1"), started_at=NOW - MINUTE
        )
        told = explain(Played(GRAPH), jobs=(running,))

        assert told.status is RunStatus.RUNNING
        assert told.summary == "1 job runs."
        assert only(told) == Finding(
            kind=FindingKind.RUNNING,
            key="charge",
            text="attempt 2 of task 'charge' runs on worker w1 since 2030-01-01 11:59:00+00:00",
        )

    def test_waiting_for_room(self) -> None:
        told = explain(Played(GRAPH), jobs=(job(),), workers=(worker(GRAPH.text),))

        assert told.summary == "1 job waits for a worker with room."
        assert only(told).text == (
            "task 'charge' waits in queue 'default' since 2030-01-01 11:59:00+00:00; "
            "1 live worker can take it"
        )

    def test_waiting_for_another_attempt(self) -> None:
        again = job(status=Status.SCHEDULED, attempt=1, ready_at=NOW + MINUTE)
        failure = Failure(type="OSError", message="no route")
        failed = FailedAttempt(attempt=1, worker=None, at=NOW - MINUTE, failure=failure)
        around = {"jobs": (again,), "failures": {again.id: failed}}
        told = explain(Played(GRAPH), workers=(worker(GRAPH.text),), **around)
        alone = explain(Played(GRAPH), **around)

        assert only(told).kind is FindingKind.RETRY
        assert only(told).text == (
            "attempt 2 of task 'charge' is due at 2030-01-01 12:01:00+00:00, by itself; "
            "the last one failed at 2030-01-01 11:59:00+00:00: OSError: no route"
        )
        assert only(told).help == ""
        assert ", once a live worker can take it; the last one failed" in only(alone).text
        assert only(alone).help == "start a worker with this flow"
        assert only(explain(Played(GRAPH), workers=(worker("other@1"),), **around)) == only(alone)

    def test_the_queue_is_paused(self) -> None:
        pause = QueueInfo(namespace="default", queue="default", paused_at=NOW, paused_by="ann")
        told = explain(Played(GRAPH), jobs=(job(),), paused_queues=(pause,))

        assert told.summary == (
            "Nothing runs: queue 'default' is paused by ann since 2030-01-01 12:00:00+00:00."
        )
        assert only(told).help == "client.resume_queue('default')"

    def test_no_worker_is_live(self) -> None:
        dead = worker(GRAPH.text, seen_at=NOW - MINUTE)
        told = explain(Played(GRAPH), jobs=(job(),), workers=(dead,))

        assert told.summary == (
            "Nothing runs: no worker is live; the job is ready since 2030-01-01 11:59:00+00:00."
        )
        assert only(told).kind is FindingKind.NO_WORKER

    def test_no_live_worker_has_the_version_and_the_nearest_is_named(self) -> None:
        workers = worker("orders@old", "orders@new"), worker("orders@new"), worker("other@1")
        told = explain(Played(GRAPH), jobs=(job(),), workers=workers)

        assert only(told).kind is FindingKind.NO_VERSION
        assert told.summary == (
            f"Nothing runs: no live worker has {GRAPH.text}; the nearest version that a live "
            "worker has is orders@new; the job is ready since 2030-01-01 11:59:00+00:00."
        )
        assert only(told).help == (
            "start a worker with this version, or client.migrate('run', to=orders)"
        )

    def test_no_live_worker_has_any_version(self) -> None:
        told = explain(Played(GRAPH), jobs=(job(),), workers=(worker("other@1"),))

        assert only(told).text == (
            f"no live worker has {GRAPH.text}, nor any other version of flow 'orders'"
            "; the job is ready since 2030-01-01 11:59:00+00:00"
        )

    def test_no_live_worker_serves_the_queue(self) -> None:
        workers = worker(GRAPH.text), worker("other@1", queues=("mail",))
        told = explain(Played(GRAPH), jobs=(job(queue="mail"),), workers=workers)

        assert only(told).kind is FindingKind.NO_QUEUE
        assert only(told).text == (
            f"no live worker that has {GRAPH.text} serves queue 'mail'"
            "; the job is ready since 2030-01-01 11:59:00+00:00"
        )
        assert only(told).help == "start a worker with queues=['mail']"

    def test_no_live_worker_has_the_tags(self) -> None:
        workers = (worker(GRAPH.text, tags=("cpu",)),)
        told = explain(Played(GRAPH), jobs=(job(tags=("gpu",)),), workers=workers)

        assert only(told).kind is FindingKind.NO_TAGS
        assert only(told).help == "start a worker with tags=['gpu']"
        able = explain(Played(GRAPH), jobs=(job(tags=("gpu",)),), workers=(worker(GRAPH.text),))
        assert only(able).kind is FindingKind.QUEUED

    def test_of_several_what_holds_back_is_counted(self) -> None:
        run = Played(graph(task("a"), task("b")))
        jobs = job("a", Status.ACTIVE), job("b", queue="mail")
        told = explain(run, jobs=jobs, workers=(worker(run.graph.text),))

        assert told.summary == "1 job runs, 1 held back."

    def test_no_more_than_can_be_read(self) -> None:
        jobs = tuple(job(f"n{number}") for number in range(FINDINGS_MAX + 5))
        told = explain(Played(GRAPH), jobs=jobs, workers=(worker(GRAPH.text),))

        assert told.summary == f"{FINDINGS_MAX + 5} jobs wait for a worker with room."
        assert len(told.findings) == FINDINGS_MAX + 1
        assert told.findings[-1].text == "and 5 more"


class TestWaits:
    def test_a_signal(self) -> None:
        run = Played(chain(signal("s")))
        told = explain(run, waits=(wait("s", WaitKind.SIGNAL, "go", NOW + MINUTE),))

        assert (told.status, told.summary) == (RunStatus.WAITING, "1 signal is waited for.")
        assert only(told) == Finding(
            kind=FindingKind.SIGNAL,
            key="s",
            text="it waits for signal 'go' since 2030-01-01 11:59:00+00:00, until "
            "2030-01-01 12:01:00+00:00",
            help="client.signal('run', 'go', ...)",
        )
        forever = explain(run, waits=(wait("s", WaitKind.SIGNAL, "go"),))
        assert only(forever).text == "it waits for signal 'go' since 2030-01-01 11:59:00+00:00"

    def test_a_signal_with_a_filter(self) -> None:
        where = {"property": "sum", "op": "gt", "value": 5}
        waits = (wait("charge", WaitKind.SIGNAL, "paid"),)
        told = explain(Played(GRAPH), waits=waits, details={"charge": {"where": where}})

        assert only(told).text == (
            'it waits for signal \'paid\' whose payload fits {"property":"sum","op":"gt","value":5}'
            " since 2030-01-01 11:59:00+00:00"
        )

    def test_an_approval(self) -> None:
        open_one = wait(
            "charge", WaitKind.APPROVAL, "Pay 5?", NOW + MINUTE, deciders=("finance", "ann")
        )
        told = explain(Played(GRAPH), waits=(open_one,), details={"charge": {"answers": ["pay"]}})

        assert told.summary == "1 approval is waited for."
        assert only(told) == Finding(
            kind=FindingKind.APPROVAL,
            key="charge",
            text="it waits for 'finance' or 'ann' to decide on 'Pay 5?' since "
            "2030-01-01 11:59:00+00:00, until 2030-01-01 12:01:00+00:00",
            help="client.decide('run:charge', 'pay', by=..., roles=['finance'])",
        )

    def test_an_approval_that_some_have_answered(self) -> None:
        run = Played(GRAPH)
        answer = AnswerState(decision="approve", by="ann", stands_for=("ann",), ref=2)
        approvals = run.state.approvals.set("charge", ApprovalState(answers=(answer,)))
        state = msgspec.structs.replace(run.state, approvals=approvals)
        around = Surroundings(waits=(wait("charge", WaitKind.APPROVAL, "Pay?"),))

        told = explain_run(run.id, state, around, NOW)

        assert only(told).text.startswith("it waits for whoever comes to decide on 'Pay?'")
        assert only(told).text.endswith("; answers so far: ann: approve")
        assert only(told).help == "client.decide('run:charge', 'approve', by=...)"

    def test_a_report(self) -> None:
        waits = (
            wait("charge", WaitKind.OUTSIDE, "agent", NOW + MINUTE),
            wait("poll:charge", WaitKind.TIMER, due_at=NOW + 2 * MINUTE),
        )
        told = explain(Played(GRAPH), waits=waits)

        assert told.summary == "1 report is waited for."
        assert only(told) == Finding(
            kind=FindingKind.OUTSIDE,
            key="charge",
            text="it waits for a report at 'agent' since 2030-01-01 11:59:00+00:00, until "
            "2030-01-01 12:01:00+00:00; it is asked for at 2030-01-01 12:02:00+00:00",
            help="client.report('run', 'charge', status='completed', result=...)",
        )

    def test_somebody_asks_after_outside_work(self) -> None:
        timer = wait("poll:charge", WaitKind.TIMER, due_at=NOW + MINUTE)
        told = explain(Played(GRAPH), waits=(timer,))

        assert told.summary == "1 report is waited for."
        assert only(told) == Finding(
            kind=FindingKind.OUTSIDE,
            key="poll:charge",
            text="the outside party of node 'charge' is asked after its work at "
            "2030-01-01 12:01:00+00:00",
            help="client.report('run', 'charge', status='completed', result=...)",
        )

    def test_people_are_reminded(self) -> None:
        timer = wait("remind:charge", WaitKind.TIMER, due_at=NOW + MINUTE)
        told = explain(Played(GRAPH), waits=(timer,))

        assert told.summary == "1 approval is waited for."
        assert only(told).text == (
            "people are reminded of approval 'charge' at 2030-01-01 12:01:00+00:00"
        )
        assert only(told).help == "client.approval('run:charge')"

    def test_what_stands_beside_a_node_as_its_state_says(self) -> None:
        """The rows around it may be gone by the time they are read."""
        run = Played(GRAPH)
        live = dict.fromkeys(("poll:charge#2", "notify:ship#1"), LiveKind.JOB)
        state = replace(run.state, live=run.state.live.update(live))
        told = explain_run(run.id, state, Surroundings(), NOW)

        assert told.summary == "1 approval is waited for, 1 report is waited for."
        assert [(each.key, each.text) for each in told.findings] == [
            ("notify:ship#1", "people are told of approval 'ship' now"),
            ("poll:charge#2", "the outside party of node 'charge#2' is asked after its work now"),
        ]

    def test_jobs_that_ask_and_tell(self) -> None:
        fields: dict[str, Any] = {"status": Status.ACTIVE, "attempt": 1, "worker": WorkerId("w1")}
        asking = job("poll:charge", task="charge", **fields)
        telling = job("notify:ship", task="mail", **fields)
        waits = (wait("charge", WaitKind.OUTSIDE),)
        told = explain(Played(GRAPH), jobs=(asking, telling), waits=waits)

        assert told.summary == "2 jobs run, 1 report is waited for."
        assert [each.text for each in told.findings[:2]] == [
            "attempt 1 of task 'charge', which asks after the work of an outside party, runs on "
            "worker w1",
            "attempt 1 of task 'mail', which tells people of an approval, runs on worker w1",
        ]

    def test_a_timer(self) -> None:
        run = Played(chain(delay("d")))
        told = explain(run, waits=(wait("d", WaitKind.TIMER, due_at=NOW + MINUTE),))
        late = explain(run, waits=(wait("d", WaitKind.TIMER, due_at=NOW - MINUTE),))
        served = explain(
            run, waits=(wait("d", WaitKind.TIMER, due_at=NOW + MINUTE),), workers=(worker(),)
        )

        assert only(told).text == (
            "it waits since 2030-01-01 11:59:00+00:00, until 2030-01-01 12:01:00+00:00; "
            "then it goes on once a worker is live"
        )
        assert only(served).text.endswith("; then it goes on by itself")
        assert only(served).help == ""
        assert "which has passed: the next live worker sees to it" in only(late).text

    def test_a_child(self) -> None:
        run = Played(chain(child("c")))
        waits = (wait("c", WaitKind.CHILD, "run/c"),)
        told = explain(run, waits=waits, children={RunId("run/c"): RunStatus.PAUSED})

        assert only(told).text == (
            "it waits for child run 'run/c' (paused) since 2030-01-01 11:59:00+00:00"
        )
        assert only(told).help == "client.explain('run/c')"
        assert only(explain(run, waits=waits)).text.startswith(
            "it waits for child run 'run/c' (not found)"
        )


class TestTheRun:
    def test_paused(self) -> None:
        run = Played(GRAPH)
        run.pause(reason="maintenance", by="ops")
        told = explain(run, jobs=(job(status=Status.PAUSED),))

        assert told.summary == "It is paused by ops: maintenance."
        assert only(told).help == "client.unpause('run')"
        assert explain(run, paused_at=NOW).summary == (
            "It is paused by ops since 2030-01-01 12:00:00+00:00: maintenance."
        )

    def test_failed(self) -> None:
        run = Played(GRAPH)
        run.fail("charge", "no money")
        told = explain(run)

        assert told.summary == "Node 'charge' failed: OSError: no money."
        assert only(told) == Finding(
            kind=FindingKind.FAILED,
            key="charge",
            text="node 'charge' failed: OSError: no money",
            help="client.retry('run')",
        )

    def test_failed_and_not_yet_ended(self) -> None:
        run = Played(graph(task("a"), task("b"), on_failure="finish"))
        run.fail("a")
        told = explain(run, jobs=(job("b", Status.ACTIVE),))

        assert told.summary == "1 job runs."
        assert told.findings[0].text.endswith("; other branches are finished first")
        assert told.findings[0].help == ""

    def test_cancelled(self) -> None:
        run = Played(GRAPH)
        run.cancel(reason="out of stock")
        told = explain(run)

        assert told.summary == "It was cancelled by ops: out of stock."
        assert only(told).help == "client.retry('run')"

    def test_being_undone(self) -> None:
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.cancel(compensates=True, reason="out of stock")
        told = explain(run)
        assert told.summary == ("It was cancelled by ops: out of stock; still to be undone: 'a'.")

        run.finish("undo:a")
        assert only(explain(run)).help == "client.fork('run', after=...)"

    def test_paused_while_being_undone(self) -> None:
        run = Played(chain(task("a", undo=True), task("b")))
        run.finish("a")
        run.fail("b")
        run.pause(by="ops")
        told = explain(run)

        assert told.summary == "It is paused."
        assert [each.kind for each in told.findings] == [FindingKind.PAUSED, FindingKind.UNDOING]

    def test_completed(self) -> None:
        run = Played(chain(task("a")))
        run.finish("a")

        assert explain(run).summary == "It is completed."
        assert explain(run).findings == ()

    def test_between_two_looks(self) -> None:
        assert explain(Played(GRAPH)).summary == "It has just moved on; look again."
