"""``perdure run`` and ``perdure runs watch``: a run from its beginning to its exit code."""

from __future__ import annotations

import importlib
import io
import sys
from pathlib import Path
from types import ModuleType

import pytest

from perdure import Client, Flow, Worker, task
from perdure.cli.command import LOCAL_STORE, STORE_VARIABLE, options_of
from perdure.cli.commands.runs import _working
from perdure.cli.output import ExitCode
from tests.cli import sample_flows as sample
from tests.cli.harness import Commands, Keyboard, record_worker

YAML = """
flow: labels
nodes:
  - id: stick
    task: label
"""
RELAY = """
from perdure import Flow, task

@task
def label(parcels: object) -> str:
    return "made here"

@task(queue="parcels")
def pack(parcels: object) -> str:
    return "packed here"

shipping = Flow("shipping").then(label).build()
packing = Flow("packing").then(pack).build()
relay = Flow("relay").flow(packing).build()
"""
NAPS = """
from perdure import Context, Flow, task

@task
def nap(ctx: Context) -> None:
    ctx.progress(50, "fast asleep")
    ctx.abort_signal.wait(60)

naps = Flow("naps").then(nap).build()
"""


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of a user, whose modules are re-imported."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "shop", raising=False)


@pytest.fixture
def relay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Flows whose tasks say that they ran here, one of them with a child on a queue of its own."""
    (folder / "relay.py").write_text(RELAY)
    monkeypatch.delitem(sys.modules, "relay", raising=False)
    return importlib.import_module("relay")


@task
def note(value: object) -> object:
    return value


class TestRun:
    def test_works_with_nothing_else_running(self, perdure):
        shown = perdure("run", "shop:shipping", "5", "--id", "parcel-5")

        assert shown.exit_code == 0
        lines = shown.out.splitlines()
        assert [line.split()[3] for line in lines[:3]] == [
            "run_submitted",
            "node_completed",
            "run_completed",
        ]
        assert lines[-2].startswith("parcel-5 is completed after ")
        assert lines[-1] == 'result "L-1"'
        assert shown.error == ""

    def test_exits_with_1_if_the_run_failed(self, perdure):
        shown = perdure("run", "shop:orders", "13", "--id", "order-13")
        assert shown.exit_code == 1
        assert "ValueError: thirteen is suspicious" in shown.error
        assert shown.error.endswith("perdure runs get order-13\n")

    def test_prints_the_ended_run_as_json(self, perdure):
        shown = perdure("run", "shop:shipping", "5", "--json")
        assert shown.exit_code == 0
        assert (shown.json["status"], shown.json["result"]) == ("completed", "L-1")
        assert [node["id"] for node in shown.json["nodes"]] == ["label"]

    def test_works_after_a_worker_was_killed_a_moment_ago(self, perdure, url):
        record_worker(url, sample.shipping)
        shown = perdure("run", "shop:shipping", "5")
        assert shown.exit_code == 0
        assert shown.out.splitlines()[-1] == 'result "L-1"'

    def test_serves_queues_of_child_flows_that_live_workers_do_not(self, perdure, url, relay):
        elsewhere = Worker(url, flows=[relay.relay], queues=["default"]).start()
        try:
            shown = perdure("run", "relay:relay", "5")
        finally:
            elsewhere.shutdown()
            elsewhere.join()

        assert shown.exit_code == 0
        assert shown.out.splitlines()[-1] == 'result "packed here"'

    def test_leaves_the_work_to_others_on_request(self, perdure, working, relay):
        assert relay.shipping.graph.text in {flow.graph.text for flow in working.flows}
        shown = perdure("run", "relay:shipping", "5", "--no-worker")
        assert shown.exit_code == 0
        assert shown.out.splitlines()[-1] == 'result "L-1"'

    def test_keeps_runs_in_a_file_here_by_default(self, folder):
        shown = Commands(None)("run", "shop:shipping", "5", "--id", "parcel-5")
        assert shown.exit_code == 0
        with Client(f"sqlite:///{folder}/perdure.db") as client:
            assert client.runs.get("parcel-5").status == "completed"

    def test_takes_a_flow_in_a_file(self, perdure, folder):
        (folder / "labels.yaml").write_text(YAML)
        shown = perdure("run", "labels.yaml", "--app", "shop", "--json")
        assert shown.exit_code == 0
        assert (shown.json["flow"], shown.json["result"]) == ("labels", "L-1")

    def test_follows_the_run_that_has_the_id_already(self, perdure):
        arguments = ("run", "shop:shipping", "5", "--id", "parcel-5")
        perdure(*arguments)
        again = perdure(*arguments, "--on-conflict", "use_existing")
        assert again.exit_code == 0
        assert again.out.splitlines()[-1] == 'result "L-1"'

    @pytest.mark.parametrize(
        "arguments, code",
        [
            (("shop:nothing",), "cli.no_attribute"),
            (("shop:orders", "{"), "cli.not_json"),
            (("shop:orders", "--app", "shop"), "cli.app_without_file"),
            (("missing.yaml",), "flow.unreadable"),
            (("shop:orders", "5", "--id", ""), "argument.name"),
        ],
    )
    def test_refuses_what_it_cannot_understand(self, perdure, client, arguments, code):
        client.open()
        perdure.refused(code, "run", *arguments)
        assert list(client.runs.list()) == []


@pytest.fixture
def ended(client: Client, working: Worker) -> None:
    """A run that failed, one that was cancelled and one that was skipped, under these ids."""
    assert list(client.submit(sample.orders, 13, id="failed").watch())[-1].status == "failed"
    client.submit(sample.orders, 5, id="cancelled").cancel(by="ann")
    digest = Flow("digest", cooldown="1h").then(note).build()
    client.submit(digest, 1)
    client.submit(digest, 2, id="skipped")


class TestWatch:
    def test_shows_what_happened_and_how_it_ended(self, perdure, completed):
        shown = perdure("runs", "watch", completed.id)
        assert shown.exit_code == 0
        assert [line.split()[0] for line in shown.out.splitlines()[:3]] == ["1", "2", "3"]
        assert shown.out.splitlines()[-1].startswith("result ")
        assert perdure("runs", "watch", completed.id, "--json").json["status"] == "completed"

    @pytest.mark.usefixtures("ended")
    @pytest.mark.parametrize("follow", [("watch",), ("events", "--follow")])
    @pytest.mark.parametrize(
        "id, exit_code",
        [
            ("failed", ExitCode.REFUSED),
            ("cancelled", ExitCode.CANCELLED),
            ("skipped", ExitCode.SKIPPED),
        ],
    )
    def test_exits_as_the_run_ended(self, perdure, follow, id, exit_code):
        assert perdure("runs", *follow, id).exit_code == exit_code


class TestInTerminal:
    @pytest.mark.parametrize("columns", [40, 80])
    def test_draws_the_run_and_says_how_to_come_back(self, url, client, columns):
        store = ("--store", url)
        with Keyboard(columns, "run", "shop:orders", "5", "--id", "o5", *store) as keyboard:
            keyboard.expect("waits for the signal approval")
            keyboard.interrupt()
            rest = keyboard.rest()

        assert keyboard.exit_code == 130
        assert "left o5" in rest
        assert f"perdure runs watch o5 --store {url}" in rest
        assert f"perdure runs cancel o5 --store {url}" in rest
        assert client.runs.get("o5").status == "waiting"

    def test_requeues_its_jobs_when_interrupted_twice(self, url, client, folder):
        (folder / "naps.py").write_text(NAPS)
        with Keyboard(80, "run", "naps", "--id", "nap-1", "--store", url) as keyboard:
            keyboard.expect("fast asleep")
            keyboard.interrupt()
            keyboard.expect("Ctrl-C requeues them at once")
            keyboard.interrupt()
            keyboard.rest()

        assert keyboard.exit_code == 130
        assert client.runs.get("nap-1").status == "running"
        assert [job.status for job in client.jobs.list()] == ["waiting"]


class ImpatientReader(io.StringIO):
    """A user who presses Ctrl-C as soon as there is output."""

    def write(self, text: str) -> int:
        raise KeyboardInterrupt


def test_requeues_its_jobs_when_interrupted_during_the_message(url, client, folder, monkeypatch):
    (folder / "naps.py").write_text(NAPS)
    monkeypatch.delitem(sys.modules, "naps", raising=False)
    naps = importlib.import_module("naps").naps
    run = client.submit(naps, id="nap-1")

    with _working(Worker(url, flows=[naps], grace="1h")):
        for snapshot in run.observe():
            if any(job.progress.percent for job in snapshot.jobs):
                break
        monkeypatch.setattr(sys, "stderr", ImpatientReader())

    assert [job.status for job in client.jobs.list()] == ["waiting"]


def test_commands_need_no_options_for_what_they_find_by_themselves(monkeypatch):
    monkeypatch.delenv(STORE_VARIABLE, raising=False)
    assert options_of(LOCAL_STORE, "default") == ""
    assert options_of("sqlite:///b c.db", "team") == " --store 'sqlite:///b c.db' --namespace team"
    monkeypatch.setenv(STORE_VARIABLE, "sqlite:///a.db")
    assert options_of("sqlite:///a.db", "default") == ""
    assert options_of(LOCAL_STORE, "default") == f" --store {LOCAL_STORE}"
