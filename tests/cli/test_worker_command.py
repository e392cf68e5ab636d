"""``perdure worker`` as a real process."""

from __future__ import annotations

import json
import signal

import pytest

from perdure import Client
from tests.cli import sample_flows
from tests.cli import sample_tasks as sample
from tests.cli.processes import WorkerProcess, run_cli


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
        more = ("--namespace", "team-a", "--tags", "gpu,big", "--grace", "7s")
        with WorkerProcess("sample:worker", *options, *more, cwd=folder) as worker:
            worker.next("worker started")
            with Client(url, namespace="team-a") as theirs:
                [state] = theirs.workers.list()

        assert state.info.queues == ("mail", "post")
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

        told = {(line["message"], line["level"], line.get("job")) for line in lines}
        assert ("job failed", "error", failing.id) in told
        assert ("job retried", "warning", retried.id) in told
        assert ("job completed", "info", retried.id) in told
        assert ("job started", "debug", failing.id) in told
        assert ("a task spoke", "info", None) in told
        assert ("worker stopping", "info", None) in told
        assert ("worker stopped", "info", None) in told
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

    def test_the_second_signal_gives_work_back_at_once(self, folder, url, client):
        job = client.enqueue(sample.hold, str(folder / "never"))

        with WorkerProcess("sample", "--store", url, cwd=folder) as worker:
            worker.next("job started", job=job.id)
            worker.signal(signal.SIGTERM)
            worker.signal(signal.SIGINT)
            worker.next("job requeued", job=job.id)

            assert worker.wait() == 0
        assert job.status == "waiting"
        assert client.jobs.get(job.id).attempt == 0

    def test_works_on_postgresql(self, folder, postgres_url):
        with Client(postgres_url) as client:
            job = client.enqueue(sample.greet, "ann")
            with WorkerProcess("sample:worker", "--store", postgres_url, cwd=folder) as worker:
                assert job.result(timeout=30) == "hello ann"
                shown = run_cli("jobs", "get", job.id, "--store", postgres_url, cwd=folder)
                worker.signal(signal.SIGTERM)

                assert worker.wait() == 0
        assert '"hello ann"' in shown.stdout


class TestFlows:
    def test_a_run_is_begun_signalled_and_followed_by_commands_alone(self, folder, url):
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
        "arguments, exit_code, told",
        [
            (["sample:nothere"], 2, "has no 'nothere'"),
            (["sample"], 2, "no store was given"),
            (["sample:worker", "--concurrency", "0"], 2, "concurrency"),
            (["sample:worker", "--grace", "soon"], 2, "grace must be a duration (got 'soon')"),
            (["sample:worker", "--queues", "a,,b"], 2, "characters (got '')"),
            (["sample:worker", "--namespace", ""], 2, "namespace must be"),
            (["sample:worker", "--processes", "0"], 2, "--processes"),
            (
                ["sample", "--store", "memory://x", "--processes", "2"],
                2,
                "in the memory of one process",
            ),
            (["sample:worker", "--store", "mysql://host"], 2, "'mysql' is not a store"),
            (["sample:worker", "--store", "sqlite:///no/dir/x.db"], 3, "there is no directory"),
            (["sample:worker", "--store", "postgresql://x@127.0.0.1:1/x"], 3, "cannot open"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else None,
    )
    def test_is_told_before_anything_starts(self, folder, arguments, exit_code, told):
        done = run_cli("worker", *arguments, cwd=folder)

        assert done.returncode == exit_code, done.stderr
        assert told in done.stderr
        assert "Traceback" not in done.stderr

    def test_is_told_as_json_where_logs_are(self, folder):
        done = run_cli("worker", "sample:worker", "--grace", "soon", "--json", cwd=folder)

        [line] = [json.loads(line) for line in done.stderr.splitlines()]
        assert line["level"] == "error"
        assert "grace must be a duration (got 'soon')" in line["message"]
