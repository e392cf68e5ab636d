"""``perdure worker`` as a real process, and what they log."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import CONTEXT, Client, Context, Failure, Flow, RunFailed, WorkerSuperseded, task
from perdure.cli import logs
from perdure.cli.logs import fields_of, log_supervisor
from perdure.cli.output import ExitCode
from perdure.flows.built import BuiltFlow
from perdure.worker import events, log_setup, supervisor
from perdure.worker.isolation import EXIT_BODY_RUNS, EXIT_SUPERSEDED
from perdure.worker.log_setup import JsonLines, LogSetup, PlainLines
from tests.cli import sample_flows
from tests.cli import sample_tasks as sample
from tests.cli.harness import WAIT_SECONDS, WorkerProcess, killed_at_the_end, run_cli
from tests.support.refusal import failing

# ``perdure worker`` as a real process.


class TestWorker:
    def test_runs_the_tasks_of_a_module_in_the_current_directory(self, folder, url, client):
        job = client.enqueue(sample.add, 1, 2)

        with WorkerProcess("sample", "--store", url, cwd=folder) as worker:
            started = worker.next("worker started")
            completed = worker.next("job completed", job=job.id)
            worker.signal(signal.SIGTERM)

            assert worker.wait() == 0
        assert started["store"] == url
        assert (completed["task"], completed["attempt"]) == ("add", 1)
        assert job.result() == 3

    def test_in_burst_mode_ends_when_nothing_is_left(self, folder, url, client):
        jobs = [client.enqueue(sample.add, 1, 2), client.enqueue(sample.fail, "boom")]
        burst = ("worker", "sample", "--store", url, "--burst", "--quiet")

        first = run_cli(*burst, "--max-jobs", "1", "--json", cwd=folder)
        second = run_cli(*burst, "--json", cwd=folder)
        third = run_cli(*burst, cwd=folder)

        assert [first.returncode, second.returncode, third.returncode] == [0, 1, 0]
        entries = [json.loads(each.stdout) for each in (first, second)]
        assert [(each["completed"], each["failed"]) for each in entries] == [(1, 0), (0, 1)]
        assert [each["is_idle"] for each in entries] == [False, True]
        assert third.stdout
        assert jobs[0].result() == 3

    def test_a_timed_out_body_that_does_not_end_ends_the_process(self, folder, url, client):
        (folder / "stubborn.py").write_text(
            "import time\nfrom perdure import task\n"
            "@task(timeout='200ms', retries=1)\n"
            "def sleep() -> None:\n    time.sleep(60)\n"
        )

        @task
        def sleep() -> None:
            """As the module has it."""

        job = client.enqueue(sleep)

        done = run_cli("worker", "stubborn", "--store", url, "--burst", cwd=folder)

        assert done.returncode == ExitCode.BODY_RUNS == EXIT_BODY_RUNS
        assert client.jobs.get(job.id).status == "scheduled"

    @pytest.mark.parametrize("options", [("--max-jobs", "3"), ("--burst", "--processes", "2")])
    def test_in_burst_mode_is_one_process(self, folder, url, options):
        assert run_cli("worker", "sample", "--store", url, *options, cwd=folder).returncode == 2

    def test_uses_a_worker_of_the_module_with_its_own_store(self, folder):
        with WorkerProcess("sample:worker", cwd=folder) as worker:
            started = worker.next("worker started")
            with Client(f"sqlite:///{folder}/own.db") as client:
                job = client.enqueue(sample.greet, "ann")
                assert job.result(timeout=30) == "hello ann"
                [state] = client.workers.list()
            worker.signal(signal.SIGINT)

            assert worker.wait() == 0
        assert started["queues"] == ["default", "mail"]
        assert state.info.concurrency == 3

    def test_options_override_a_worker_of_the_module(self, folder, url, client):
        options = ("--store", url, "--queues", "mail,post", "--concurrency", "5")
        more = ("--namespace", "team-a", "--tags", "gpu,big", "--grace", "7s", "--id", "w")
        with WorkerProcess("sample:worker", *options, *more, cwd=folder) as worker:
            worker.next("worker started")
            with Client(url, namespace="team-a") as theirs:
                [state] = theirs.workers.list()

        assert (state.info.id, state.info.queues) == ("w", ("mail", "post"))
        assert state.info.concurrency == 5
        assert state.info.tags == ("big", "gpu")
        assert not (folder / "own.db").exists()

    def test_logs_every_outcome_at_its_level(self, folder, url, client):
        failing = client.enqueue(sample.fail, "boom")
        retried = client.enqueue(sample.fail_once)
        speaking = client.enqueue(sample.speak)

        with WorkerProcess("sample", "--store", url, cwd=folder) as worker:
            client.jobs.results([failing, retried, speaking], timeout=30, return_errors=True)
            worker.signal(signal.SIGTERM)
            lines = worker.wait_for_silence()

        entries = {(line["message"], line["level"], line.get("job")) for line in lines}
        assert ("job failed", "error", failing.id) in entries
        assert ("job retried", "warning", retried.id) in entries
        assert ("job completed", "info", retried.id) in entries
        assert ("job started", "debug", failing.id) in entries
        assert ("a task spoke", "info", None) in entries
        assert ("worker stopping", "info", None) in entries
        assert ("worker stopped", "info", None) in entries
        [failed] = [line for line in lines if line["message"] == "job failed"]
        assert failed["error"] == "RuntimeError: boom"

    def test_the_first_signal_lets_work_finish(self, folder, url, client):
        release = folder / "release"
        job = client.enqueue(sample.hold, str(release))

        with WorkerProcess("sample", "--store", url, cwd=folder) as worker:
            worker.next("job started", job=job.id)
            worker.signal(signal.SIGTERM)
            release.touch()

            assert worker.wait() == 0
        assert job.result() == 1

    def test_the_second_signal_requeues_work_at_once(self, folder, url, client):
        job = client.enqueue(sample.hold, str(folder / "never"))

        with WorkerProcess("sample", "--store", url, cwd=folder) as worker:
            worker.next("job started", job=job.id)
            worker.signal(signal.SIGTERM)
            worker.signal(signal.SIGINT)
            worker.next("job requeued", job=job.id)

            assert worker.wait() == 0
        assert job.status == "waiting"
        assert client.jobs.get(job.id).attempt == 0

    def test_superseded_by_another_one_with_its_id_it_exits_with_a_code_of_its_own(
        self, folder, url, client
    ):
        (folder / "named.py").write_text(
            "import sample\nfrom perdure import Worker\n"
            f"worker = Worker({url!r}, tasks=[sample.add], id='w', lease='600ms')\n"
        )
        with WorkerProcess("named:worker", cwd=folder) as older:
            older.next("worker started")
            with WorkerProcess("named:worker", cwd=folder) as newer:
                newer.next("worker started")

                superseded = older.next(
                    "worker superseded by a newer one with the same id; stopping"
                )
                assert older.wait() == EXIT_SUPERSEDED
                job = client.enqueue(sample.add, 1, 2)
                assert job.result(timeout=30) == 3
        assert (superseded["code"], superseded["worker"]) == ("worker.superseded", "w")
        assert superseded["hint"] == WorkerSuperseded.CODE.remedy


class TestStore:
    """Finding 27: the flag, then the code, then the environment."""

    @pytest.mark.parametrize("processes", ["1", "2"])
    @pytest.mark.parametrize("is_flag", [True, False])
    def test_is_the_flag_or_the_one_of_the_code(self, folder, url, processes, is_flag):
        other = url.replace(".db", "-other.db")
        arguments = ["--store", other] if is_flag else []
        environment = {"PERDURE_STORE": f"{url}-ignored"}
        with WorkerProcess(
            "sample:worker",
            *("--processes", processes, *arguments),
            cwd=folder,
            environment=environment,
        ) as worker:
            started = worker.next("worker started")
            worker.signal(signal.SIGTERM)

            assert worker.wait() == 0
        assert started["store"] == (other if is_flag else "sqlite:///own.db")

    def test_is_the_one_of_the_environment_if_nothing_else_names_one(self, folder, url):
        with WorkerProcess("sample", cwd=folder, environment={"PERDURE_STORE": url}) as worker:
            started = worker.next("worker started")
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
        assert started["store"] == url


class TestFlows:
    def test_a_run_is_submitted_signalled_and_followed_by_commands_alone(self, folder, url):
        def perdure(*arguments: str) -> str:
            done = run_cli(*arguments, cwd=folder, environment={"PERDURE_STORE": url})
            assert done.returncode == 0, done.stderr
            return done.stdout

        perdure("runs", "submit", "shop:orders", "5", "--id", "order-5")
        with WorkerProcess("shop:worker", "--store", url, cwd=folder) as worker:
            fetched = worker.next("job completed", run="order-5", node="fetch")
            worker.next("job completed", run="order-5", node="pack[1]")
            perdure("runs", "signal", "order-5", "approval", '{"ok": true}', "--by", "ann")
            worker.next("job completed", run="order-5", node="bill")
            events = perdure("runs", "events", "order-5", "--follow").splitlines()
            worker.signal(signal.SIGTERM)

            assert worker.wait() == 0
        shown = json.loads(perdure("runs", "get", "order-5", "--json"))
        assert fetched["task"] == "fetch"
        assert "run_completed" in events[-1]
        assert shown["result"] == {"label": "L-1", "paid": True}
        assert perdure("flows", "unserved", "shop:longer") == "no unfinished runs\n"

    @pytest.mark.parametrize("target", ["shop:orders", "shop:several", "shop"])
    def test_need_no_worker_in_the_module(self, folder, url, client, target):
        run = client.submit(sample_flows.shipping)
        with WorkerProcess(target, "--store", url, cwd=folder):
            assert run.result(timeout=30) == "L-1"

    def test_work_on_postgresql(self, folder, postgres_url):
        store = ("--store", postgres_url)
        begun = run_cli("runs", "submit", "shop:shipping", "--id", "s-1", *store, cwd=folder)
        with WorkerProcess("shop:worker", *store, cwd=folder) as worker:
            worker.next("job completed", run="s-1", node="label")
            followed = run_cli("runs", "events", "s-1", "-f", *store, cwd=folder)
        checked = run_cli("flows", "unserved", "shop:worker", *store, cwd=folder)

        assert begun.returncode == followed.returncode == checked.returncode == 0
        assert "run_completed" in followed.stdout


class TestWhatCannotRun:
    @pytest.mark.parametrize(
        "arguments, exit_code, code",
        [
            (["sample:nothere"], 2, "cli.no_attribute"),
            (["sample"], 2, "cli.which_store"),
            (["sample:worker", "--concurrency", "0"], 2, "argument.range"),
            (["sample:worker", "--grace", "soon"], 2, "argument.duration"),
            (["sample:worker", "--queues", "a,,b"], 2, "argument.name"),
            (["sample:worker", "--namespace", ""], 2, "argument.name"),
            (["sample:worker", "--processes", "0"], 2, "cli.invalid_value"),
            (["sample:worker", "--processes", "10", "--id", "w" * 198], 2, "argument.name"),
            (["sample", "--store", "memory://x", "--processes", "2"], 2, "cli.store_in_memory"),
            (["sample:worker", "--store", "mysql://host"], 2, "store.invalid_url"),
            (["sample:worker", "--store", "sqlite:///no/dir/x.db"], 3, "store.unreachable"),
            (["sample:worker", "--store", "postgresql://x@127.0.0.1:1/x"], 3, "store.unreachable"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else None,
    )
    def test_is_reported_before_anything_starts(self, folder, arguments, exit_code, code):
        done = run_cli("worker", *arguments, "--json", cwd=folder)
        assert done.returncode == exit_code, done.stderr
        [line] = [json.loads(line) for line in done.stderr.splitlines()]
        assert line.get("error", line)["code"] == code


MODULE = """
from perdure import Context, Flow, task

@task
def ask(value: str, ctx: Context) -> list[object]:
    return [ctx.allows_scripts, len(ctx.secret("api-key"))]

asking = Flow("asking").then(ask).build()
"""


@task
def ask(value: str, ctx: Context = CONTEXT) -> list[object]:
    raise AssertionError("executed elsewhere")


asking = Flow("asking").then(ask).build()

LOADED = """
from perdure import Flow, task

@task
def length(text: str) -> int:
    return len(text)

def using(flow, secret):
    node = {"id": "n", "task": "length", "config": {"text": "{{ secret." + secret + " }}"}}
    return Flow.from_dict({"flow": flow, "nodes": [node]}, tasks=[length])

loaded = using("loaded", "api-key")
greedy = using("greedy", "other")
"""


@task
def length(text: str) -> int:
    raise AssertionError("executed elsewhere")


def using(flow: str, secret: str) -> BuiltFlow:
    node = {"id": "n", "task": "length", "config": {"text": f"{{{{ secret.{secret} }}}}"}}
    return Flow.from_dict({"flow": flow, "nodes": [node]}, tasks=[length])


loaded = using("loaded", "api-key")
greedy = using("greedy", "other")


class TestWorkerScripts:
    """``perdure worker --allow-scripts``, with one worker and under a supervisor."""

    @pytest.mark.parametrize("options", [(), ("--processes", "2")])
    def test_workers_have_what_the_command_line_and_its_environment_give_them(
        self, folder, url, options, monkeypatch
    ):
        (folder / "asking.py").write_text(MODULE)
        monkeypatch.setenv("PERDURE_SECRET_API_KEY", "0123456789")
        with (
            Client(url) as client,
            WorkerProcess("asking", "--store", url, "--allow-scripts", *options, cwd=folder),
        ):
            assert client.submit(asking, "x").result(timeout=30) == [True, 10]

    @pytest.mark.parametrize("options", [(), ("--processes", "2")])
    def test_workers_grant_secrets_to_loaded_flows(self, folder, url, options, monkeypatch):
        """Finding 5: --grant reaches the worker, also under a supervisor."""
        (folder / "loaded.py").write_text(LOADED)
        monkeypatch.setenv("PERDURE_SECRET_API_KEY", "0123456789")
        grant = ("--grant", "api-key,flow=loaded,task=length")

        with (
            Client(url) as client,
            WorkerProcess("loaded", "--store", url, *grant, *options, cwd=folder),
        ):
            assert client.submit(loaded).result(timeout=30) == 10
            with failing("task.secret_not_granted", RunFailed):
                client.submit(greedy).result(timeout=30)

    @pytest.mark.parametrize("options", [(), ("--processes", "2")])
    def test_workers_open_the_lifespan(self, folder, url, options):
        (folder / "pooled.py").write_text(POOLED)
        lifespan = ("--lifespan", "pooled:lifespan")
        with (
            Client(url) as client,
            WorkerProcess("pooled", "--store", url, *lifespan, *options, cwd=folder),
        ):
            assert client.submit(POOLED_FLOW).result(timeout=30) == "a pool"

        ran = run_cli("run", "pooled:loading", "--store", url, *lifespan, cwd=folder)
        assert ran.returncode == 0

    @pytest.mark.parametrize(
        "lifespan, code",
        [
            ((), "resource.missing"),
            (("--lifespan", "pooled:nothing"), "cli.no_attribute"),
            (("--lifespan", "pooled"), "cli.not_a_function"),
        ],
    )
    def test_a_missing_lifespan_is_refused(self, folder, url, lifespan, code):
        (folder / "pooled.py").write_text(POOLED)
        worker = run_cli("worker", "pooled", "--store", url, *lifespan, cwd=folder)
        run = run_cli("run", "pooled:loading", "--store", url, *lifespan, "--json", cwd=folder)
        assert (worker.returncode, run.returncode) == (2, 2)
        assert code in run.stdout + run.stderr
        with Client(url) as client:
            assert client.runs.count() == 0

    def test_workers_allow_no_scripts_and_know_no_secrets_by_themselves(self, folder, url):
        (folder / "asking.py").write_text(MODULE)
        with Client(url) as client, WorkerProcess("asking", "--store", url, cwd=folder):
            run = client.submit(asking, "x")
            with failing("task.missing_secret", RunFailed):
                run.result(timeout=30)


POOLED = """
from contextlib import asynccontextmanager

from perdure import Flow, resource, task

DB = resource("db", str)


@task
def load(db: str = DB) -> str:
    return db


@asynccontextmanager
async def lifespan():
    yield {"db": "a pool"}


loading = Flow("loading").then(load).build()
"""
POOLED_FLOW = Flow("loading").then(task(name="load")(lambda: None)).build()


@contextmanager
def two_processes(folder: Path, url: str) -> Iterator[tuple[WorkerProcess, list[int]]]:
    """A supervisor whose two workers have started, and their process ids."""
    with WorkerProcess("sample", "--store", url, "--processes", "2", cwd=folder) as supervisor:
        pids = [supervisor.next("process started", process=n)["pid"] for n in (1, 2)]
        with killed_at_the_end(pids):
            for _ in pids:
                supervisor.next("worker started")
            yield supervisor, pids


def supervised(folder: Path, command: list[str]) -> list[str]:
    """What a supervisor tells that gets SIGTERM after its first word, and what it returns."""
    (folder / "supervise.py").write_text(
        "import os, signal\n"
        "from datetime import timedelta\n"
        "from perdure.worker.supervisor import Supervisor\n"
        "seen = []\n"
        "def tell(event):\n"
        "    seen.append(type(event).__name__)\n"
        "    if len(seen) == 1:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        f"command = lambda number, pipe: {command!r}\n"
        "supervisor = Supervisor(\n"
        "    command, 1, timedelta(0), tell, kill_margin=timedelta(milliseconds=200)\n"
        ")\n"
        "seen.append(str(supervisor.run()))\n"
        "print(*seen)\n"
    )
    done = subprocess.run(
        [sys.executable, "supervise.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    return done.stdout.split()


class TestSupervisor:
    """``perdure worker --processes``: dead processes come back, and a stop stops them all."""

    def test_a_killed_process_is_started_again(self, folder, url, client):
        with two_processes(folder, url) as (supervisor, pids):
            os.kill(pids[0], signal.SIGKILL)

            ended = supervisor.next("process ended", pid=pids[0])
            again = supervisor.next("process started", process=1)
            supervisor.next("worker started")
            job = client.enqueue(sample.add, 1, 2)

            assert (ended["exit"], ended["restart_in"]) == (-9, 0.5)
            assert again["pid"] not in pids
            assert job.result(timeout=30) == 3
            supervisor.signal(signal.SIGTERM)
            assert supervisor.wait() == 0

    def test_superseded_processes_are_not_started_again(self, folder, url):
        (folder / "named.py").write_text(
            "import sample\nfrom perdure import Worker\n"
            f"worker = Worker({url!r}, tasks=[sample.add], lease='600ms')\n"
        )
        options = ("named:worker", "--processes", "2", "--id", "w")
        with WorkerProcess(*options, cwd=folder) as older:
            started = [older.next("worker started") for _ in range(2)]
            assert {each["worker"] for each in started} == {"w-1", "w-2"}
            with WorkerProcess(*options, cwd=folder) as newer:
                ends = [older.next("process ended") for _ in range(2)]

                assert older.wait() == ExitCode.SUPERSEDED
                newer.signal(signal.SIGTERM)
                assert newer.wait() == 0
        assert [each["exit"] for each in ends] == [ExitCode.SUPERSEDED] * 2
        assert not any("restart_in" in each for each in ends)

    def test_sigterm_lets_every_process_finish_its_jobs(self, folder, url, client):
        release = folder / "release"
        jobs = client.enqueue_many(sample.hold, [str(release)] * 4)

        with two_processes(folder, url) as (supervisor, _):
            for _ in jobs:
                supervisor.next("job started")
            supervisor.signal(signal.SIGTERM)
            supervisor.next("stop requested", grace=30.0)
            release.touch()

            assert supervisor.wait() == 0
            lines = supervisor.wait_for_silence()
        assert client.jobs.results(jobs, timeout=1) == [1, 1, 1, 1]
        assert [line["exit"] for line in lines if line["message"] == "process ended"] == [0, 0]
        assert list(client.workers.list()) == []

    def test_the_second_signal_requeues_jobs_at_once(self, folder, url, client):
        job = client.enqueue(sample.hold, str(folder / "never"))

        with two_processes(folder, url) as (supervisor, _):
            supervisor.next("job started", job=job.id)
            supervisor.signal(signal.SIGINT)
            supervisor.next("stop requested", grace=30.0)
            supervisor.signal(signal.SIGINT)
            supervisor.next("stop requested", grace=0.0)
            supervisor.next("job requeued", job=job.id)

            assert supervisor.wait() == 0
        assert client.jobs.get(job.id).attempt == 0

    def test_a_signal_to_the_whole_group_counts_as_one(self, folder, url, client):
        """A terminal and most service managers signal supervisor and children alike."""
        release = folder / "release"
        job = client.enqueue(sample.hold, str(release))

        with two_processes(folder, url) as (supervisor, pids):
            supervisor.next("job started", job=job.id)
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            supervisor.signal(signal.SIGTERM)
            supervisor.next("stop requested")
            release.touch()

            assert supervisor.wait() == 0
        assert job.result(timeout=1) == 1

    def test_processes_stop_gracefully_when_their_supervisor_is_killed(self, folder, url, client):
        release = folder / "release"
        job = client.enqueue(sample.hold, str(release))

        with two_processes(folder, url) as (supervisor, _):
            supervisor.next("job started", job=job.id)
            supervisor.signal(signal.SIGKILL)
            supervisor.next("worker stopped")
            release.touch()
            lines = supervisor.wait_for_silence()

        assert [line["message"] for line in lines].count("worker stopped") == 2
        assert job.result(timeout=1) == 1
        assert list(client.workers.list()) == []

    def test_a_password_is_not_among_the_arguments_of_the_processes(self, folder, url, client):
        (folder / "noting.py").write_text(
            "import pathlib, sys\n"
            "from sample import add\n"
            "if any(each.startswith('--supervisor') for each in sys.argv):\n"
            "    pathlib.Path('arguments').write_text(repr(sys.orig_argv))\n"
        )
        options = ("--store", f"{url}?synchronous=full", "--processes", "2", "--concurrency", "7")
        with WorkerProcess("noting", *options, cwd=folder) as supervisor:
            started = supervisor.next("worker started")
            supervisor.signal(signal.SIGTERM)
            assert supervisor.wait() == 0

        arguments = (folder / "arguments").read_text()
        assert "synchronous" in started["store"]
        assert "synchronous" not in arguments
        assert "--concurrency=7" in arguments

    def test_a_process_that_does_not_stop_in_time_is_killed(self, folder):
        done = supervised(folder, [sys.executable, "-c", "import time; time.sleep(1000)"])
        assert done == ["ProcessStarted", "StopRequested", "ProcessKilled", "ProcessEnded", "False"]

    def test_a_process_that_cannot_be_started_is_tried_again(self, folder):
        done = supervised(folder, ["./no-such-program"])
        assert done == ["ProcessNotStarted", "StopRequested", "True"]


# What the worker command logs, and in which shape.


JOB: dict[str, Any] = {
    "worker": "w",
    "job_id": "j",
    "task": "embed",
    "queue": "q",
    "attempt": 2,
    "run_id": None,
    "node": None,
    "flow": None,
    "attempt_id": "j:2",
}


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Logs of this process, put back as they were afterwards."""
    monkeypatch.setattr(log_setup, "_current", None)
    root, own = logging.getLogger(), logging.getLogger("perdure")
    before = root.level, list(root.handlers), own.level
    yield io.StringIO()
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    own.setLevel(before[2])


class Empty(Exception):
    """False, and not made without an argument."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def __len__(self) -> int:
        return 0


def test_an_empty_error_of_a_thread_is_logged_as_it_is(caplog):
    error = Empty("nothing in it")
    log_setup.log_thread_error(threading.ExceptHookArgs((Empty, error, None, None)))
    [record] = caplog.records
    assert record.exc_info == (Empty, error, None)


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("perdure.cli", logging.WARNING, __file__, 1, message, (), None)
    made.fields = fields
    return made


class TestFields:
    def test_a_completed_job_says_how_long_it_took(self):
        event = events.AttemptCompleted(**JOB, duration=timedelta(milliseconds=12.3456))

        assert fields_of(event) == {
            "job": "j",
            "task": "embed",
            "attempt": 2,
            "attempt_id": "j:2",
            "seconds": 0.0123,
        }

    def test_a_nodes_job_says_first_of_which_run_it_is(self):
        event = events.AttemptStarted(**{**JOB, "run_id": "order-42", "node": "pack[7]"})
        assert list(fields_of(event).items())[:3] == [
            ("run", "order-42"),
            ("node", "pack[7]"),
            ("job", "j"),
        ]

    @pytest.mark.parametrize(
        "found_type, more, field, value",
        [
            (events.AttemptFailed, {}, "error", "ValueError: two lines"),
            (events.AttemptRetried, {}, "error", "ValueError: two lines"),
            (events.AttemptDeadLettered, {}, "error", "ValueError: two lines"),
            (events.JobTakenOver, {"holder": "worker-1"}, "holder", "worker-1"),
        ],
    )
    def test_a_failure_is_reported_in_one_line(self, found_type, more, field, value):
        failure = Failure(type="ValueError", message="two\nlines")
        assert fields_of(found_type(**JOB, failure=failure, **more))[field] == value

    def test_an_ended_process_says_when_it_is_started_again(self):
        event = supervisor.ProcessEnded(
            number=1, pid=9, exit_code=-9, restart_in=timedelta(seconds=2)
        )
        assert fields_of(event) == {"process": 1, "pid": 9, "exit": -9, "restart_in": 2.0}

    def test_every_outcome_and_process_event_has_a_level(self):
        outcomes = set(events.JobEvent.__subclasses__()) - {events.AttemptProgressed}
        processes = set(supervisor.ProcessEvent.__subclasses__())
        assert outcomes | processes <= logs._LEVELS.keys()


class TestPlainLines:
    def test_has_message_and_fields(self):
        line = PlainLines(is_coloured=False).format(
            record("job failed", job="j", error="it broke", queues=("a", "b"))
        )
        assert line[8:] == ' warning job failed  job=j error="it broke" queues=a,b'

    def test_colours_the_level_only_where_asked(self):
        assert "\x1b[33mwarning\x1b[0m" in PlainLines(is_coloured=True).format(record("x"))
        assert "\x1b" not in PlainLines(is_coloured=False).format(record("x"))


class TestJsonLines:
    def test_is_one_object_a_line(self):
        line = json.loads(JsonLines().format(record("job failed", job="j", error="a\nb")))
        assert line["message"] == "job failed"
        assert (line["level"], line["job"], line["error"]) == ("warning", "j", "a\nb")
        assert line["at"].endswith("+00:00")


class TestSetUp:
    def test_quiet_leaves_only_what_is_wrong(self, logged):
        LogSetup(level=logging.WARNING).apply(logged)
        log_supervisor(supervisor.ProcessStarted(number=1, pid=9))
        log_supervisor(supervisor.ProcessKilled(number=1, pid=9))
        assert logged.getvalue().count("\n") == 1
        assert "process killed" in logged.getvalue()

    def test_debugging_is_about_jobs_not_libraries(self, logged):
        LogSetup(level=logging.DEBUG).apply(logged)
        logging.getLogger("asyncio").debug("selector")
        logging.getLogger("perdure.cli").debug("job started")
        logging.getLogger("mine").info("from a task")
        assert "selector" not in logged.getvalue()
        assert "job started" in logged.getvalue()
        assert "from a task" in logged.getvalue()
