"""``perdure flows``: a flow as it is in the code or in a file, its faults, and who serves it."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from perdure import Flow, Worker
from perdure.cli.views.flows import flow_node_columns
from perdure.cli.views.timeline import print_timeline
from perdure.flows.yaml.schema import published_schema
from perdure.model.ids import WorkerId
from perdure.model.worker import WorkerInfo
from perdure.operations.page import PAGE_MAX
from perdure.testing.contract.builders import worker_info
from tests.cli import sample_flows
from tests.cli import sample_flows as sample
from tests.cli.harness import Commands, register_workers

# ``perdure flows``: a flow as it is in the code or in a file at hand.


MODULE = "tests.cli.sample_flows"

YAML = """
flow: labels
nodes:
  - id: stick
    task: label
"""


@pytest.fixture
def file(folder: Path) -> str:
    (folder / "labels.yaml").write_text(YAML, encoding="utf-8")
    return str(folder / "labels.yaml")


class TestShow:
    def test_has_version_nodes_and_picture(self):
        shown = Commands(None)("flows", "show", f"{MODULE}:orders")
        assert shown.exit_code == 0
        assert ["version", sample.orders.version] in shown.rows
        assert ["starts", f"shipping@{sample.shipping.version}"] in shown.rows
        assert ["fetch", "task", "fetch", "default"] in shown.rows
        assert "waits for approval, 3d at most" in shown.out
        assert shown.out.endswith(sample.orders.mermaid())

    def test_says_what_nodes_do_and_who_decides(self):
        flow = (
            Flow("refunds")
            .then(sample.fetch)
            .use("note", {"text": "asked"}, queue="notes")
            .approve("Refund?", deciders=["finance", "lead"], deadline="3d")
            .delay("1h30m")
            .delay(until="{{ value.due_at }}", name="later")
            .build()
        )

        columns = {column.title: list(column.cells) for column in flow_node_columns(flow.graph)}
        assert columns["TYPE"] == ["task", "note", "approval", "delay", "delay"]
        assert columns["DOES"][1:] == [
            "refunds.note",
            "Refund?, decided by one of finance, lead, within 3d",
            "waits for 1h30m",
            "waits until {{ value.due_at }}",
        ]
        assert columns["QUEUE"] == ["default", "notes", "", "", ""]

    def test_gives_the_definition_as_json(self):
        shown = Commands(None)("flows", "show", f"{MODULE}:orders", "--json").json
        assert (shown["name"], shown["version"]) == ("orders", sample.orders.version)
        nodes = [node["id"] for node in shown["definition"]["nodes"]]
        assert nodes == list(sample.orders.graph.nodes)


class TestOfAFile:
    def test_is_shown(self, file):
        shown = Commands(None)("flows", "show", file, "--app", MODULE)
        assert shown.exit_code == 0
        assert ["flow", "labels"] in shown.rows
        assert ["stick", "task", "label", "default"] in shown.rows

    def test_is_drawn(self, file):
        flow = Flow.from_yaml(YAML, tasks=[sample.label])
        drawn = Commands(None)("flows", "graph", file, "--app", MODULE)
        assert drawn.out == flow.mermaid()

    def test_is_listed(self, file):
        [listed] = Commands(None)("flows", "list", file, "--app", MODULE, "--json").json
        assert (listed["name"], listed["nodes"]) == ("labels", 1)

    @pytest.mark.parametrize("command", ["show", "graph", "list"])
    def test_without_an_app_says_that_one_is_needed(self, file, command):
        error = Commands(None).refused("flow.unknown_task", "flows", command, file, name="label")
        assert len(error["faults"]) == 1
        assert "--app" in error["args"]["advice"]

    def test_that_names_no_code_gets_no_hint_about_app(self, folder):
        (folder / "odd.yaml").write_text("flow: odd\nodd: 1\nnodes: []\n", encoding="utf-8")
        odd = str(folder / "odd.yaml")
        Commands(None).refused("flow.invalid", "flows", "show", odd, advice="")


@pytest.mark.parametrize(
    "words, code",
    [
        (["show", f"{MODULE}:pack"], "cli.not_a_flow"),
        (["list", "--app", MODULE], "cli.app_without_file"),
        (["unserved", f"{MODULE}:pack"], "cli.no_flows"),
        (["graph", f"{MODULE}:orders", "--json", "--format", "svg"], "cli.two_formats"),
        (["graph", f"{MODULE}:orders", "-o", "no/flow.svg"], "file.unwritable"),
    ],
)
def test_flows_and_files_that_cannot_be_used(perdure, client, words, code):
    client.open()
    perdure.refused(code, "flows", *words)


# ``perdure flows unserved``: whether the code at hand could go on with every run.


class TestCheck:
    def test_says_that_there_are_no_runs(self, perdure, client):
        done = perdure("flows", "unserved", f"{MODULE}:orders")
        assert (done.exit_code, done.out) == (0, "no unfinished runs\n")
        assert perdure("flows", "unserved", f"{MODULE}:orders", "--json").json == []

    def test_is_content_with_runs_that_it_has_the_code_for(self, perdure, client):
        client.submit(sample.orders, 5)
        client.submit(sample.shipping)
        for name in (f"{MODULE}:orders", f"{MODULE}:worker", f"{MODULE}:several", MODULE):
            done = perdure("flows", "unserved", name)
            assert done.exit_code == 0
            assert done.out == "this code can continue all 2 unfinished runs\n"

    def test_lists_runs_by_version_with_the_nearest_one(self, perdure, client):
        for id in ("a", "b", "c", "d"):
            client.submit(sample.orders, 5, id=id)
        client.submit(sample.longer, 5, id="e")

        done = perdure("flows", "unserved", f"{MODULE}:longer")

        assert done.exit_code == 1
        assert done.rows[0] == ["RUNS", "OF", "COUNT", "NEAREST", "MIGRATABLE", "RUNS"]
        version = f"orders@{sample.orders.version}"
        assert done.rows[1][:4] == [version, "4", sample.longer.version, "4/4"]
        assert done.rows[1][4:] == ["d,", "c,", "b,", "…"]
        assert "cannot continue 4 of 5 unfinished runs" in done.out

    def test_says_why_a_run_could_not_be_migrated(self, perdure, client, waiting):
        client.runs.pause("order-5")
        client.queues.pause("default")  # so that nobody begins with the next one
        client.submit(sample.orders, 5, id="fresh")
        client.runs.pause("fresh")

        [version] = perdure("flows", "unserved", f"{MODULE}:renamed", "--json").json

        assert version["nearest"] == sample.renamed.version
        stuck = {run["id"]: run["differences"] for run in version["runs"]}
        assert stuck.keys() == {"order-5", "fresh"}
        fault = stuck["order-5"][0]
        assert (fault["code"], fault["where"]) == ("migration.node_missing", ["nodes", "fetch"])
        out = perdure("flows", "unserved", f"{MODULE}:renamed").out
        assert f"order-5: {fault['message']}" in out

    def test_knows_no_nearest_version_of_a_flow_that_is_gone(self, perdure, client):
        client.submit(sample.orders, 5, id="a")
        done = perdure("flows", "unserved", f"{MODULE}:shipping")
        [version] = perdure("flows", "unserved", f"{MODULE}:shipping", "--json").json
        assert done.exit_code == 1
        assert done.rows[1] == [f"orders@{sample.orders.version}", "1", "none", "a"]
        assert (version["nearest"], version["migratable"]) == (None, 0)

    def test_finds_every_run_of_many(self, perdure, client):
        ids = {f"run-{number}" for number in range(230)}
        for id in ids:
            client.submit(sample.orders, 5, id=id)
        [version] = perdure("flows", "unserved", f"{MODULE}:longer", "--json").json
        assert {run["id"] for run in version["runs"]} == ids
        assert version["count"] == version["migratable"] == 230


GOOD = """\
flow: shop
nodes:
  - {id: fetch, task: fetch, next: call}
  - id: call
    type: http
    inputs: {number: fetch.output.number, token: secret.API}
    config:
      url: https://example.org/{{ number }}
      headers: {Authorization: "{{ token }}"}
    next: pack
  - {id: pack, task: pack, inputs: {line: call.output}}
"""

BAD = """\
flow: shop
nodes:
  - {id: fetch, task: fetch, next: pak}
  - {id: pack, task: pack, inputs: {lin: input}}
"""


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder as working directory, with one good and one bad file."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PERDURE_SECRET_API", raising=False)
    (folder / "good.yaml").write_text(GOOD, encoding="utf-8")
    (folder / "bad.yaml").write_text(BAD, encoding="utf-8")
    return folder


class TestSecrets:
    def test_that_are_set_are_not_reported(self, perdure, here, monkeypatch):
        monkeypatch.setenv("PERDURE_SECRET_API", "12345")
        done = perdure("flows", "validate", "good.yaml", "--strict")
        assert done.exit_code == 0
        assert "warning" not in done.out
        assert "12345" not in done.out

    def test_that_are_missing_are_errors_if_one_is_strict(self, perdure, here):
        done = perdure("flows", "validate", "good.yaml", "--strict")
        assert done.exit_code == 1
        assert "good.yaml error secret 'API' is not in this environment" in done.out


class TestWorkers:
    def test_that_have_not_the_tasks_make_errors(self, perdure, here, url, client):
        client.queues.list()  # so that there is a store
        done = perdure("flows", "validate", "good.yaml", "--store", url)
        assert done.exit_code == 1
        assert "good.yaml error no live worker registers task 'fetch'" in done.out

    def test_that_have_the_tasks_make_none(self, perdure, here, url, client):
        handle = Worker(url, tasks=[sample_flows.fetch, sample_flows.pack]).start()
        try:
            done = perdure("flows", "validate", "good.yaml", "--store", url)
        finally:
            handle.shutdown()
            assert handle.join(30)
        assert done.exit_code == 0

    def test_are_all_asked(self, perdure, here, url, client):
        register_workers(url, *(info(f"w{n}") for n in range(PAGE_MAX)), info("z", TASKS))
        done = perdure("flows", "validate", "good.yaml", "--store", url)
        assert client.workers.list().next is not None
        assert done.exit_code == 0

    def test_that_are_silent_do_not_count(self, perdure, here, url, client):
        register_workers(url, info("killed", TASKS, lease=timedelta(microseconds=1)))
        done = perdure("flows", "validate", "good.yaml", "--store", url)
        assert done.exit_code == 1
        assert "no live worker registers task 'fetch'" in done.out

    def test_that_have_the_flow_make_none(self, perdure, here, url, working):
        (here / "orders.yaml").write_text(sample_flows.orders.to_yaml(), encoding="utf-8")
        known = perdure("flows", "validate", "orders.yaml", "--store", url, "--app", MODULE)
        unknown = perdure("flows", "validate", "orders.yaml", "--store", url)
        assert (known.exit_code, unknown.exit_code) == (0, 0)
        assert "warning workers serve flow 'orders'" in unknown.out

    def test_cannot_be_asked_where_there_is_no_store(self, perdure, here):
        done = perdure("flows", "validate", "good.yaml", "--store", "sqlite:///nowhere.db")
        assert done.exit_code == 3


TASKS = (sample_flows.fetch.name, sample_flows.pack.name)


def info(id: str, tasks: tuple[str, ...] = (), **changes: Any) -> WorkerInfo:
    return worker_info(id=WorkerId(id), namespace="default", tasks=tasks, flows=(), **changes)


class TestValidate:
    """``perdure flows validate``: all that is wrong with flows in files."""

    def test_a_good_file_is_reported_with_what_it_needs(self, perdure, here):
        done = perdure("flows", "validate", "good.yaml")

        assert done.exit_code == 0
        assert done.out.splitlines() == [
            "good.yaml warning secret 'API' is not in this environment: PERDURE_SECRET_API",
            "good.yaml ok shop, 3 nodes",
            "  not checked: fetch, pack",
            "  secrets: API",
            "1 file, 0 errors, 1 warning",
        ]

    def test_with_the_code_at_hand_the_version_is_known(self, perdure, here):
        done = perdure("flows", "validate", "good.yaml", "--app", MODULE)
        version = Flow.from_yaml(GOOD, tasks=[sample_flows.fetch, sample_flows.pack]).version
        assert done.exit_code == 0
        assert f"good.yaml ok shop@{version}, 3 nodes" in done.out
        assert "  tasks: fetch, pack" in done.out
        assert "not checked" not in done.out

    def test_every_fault_has_its_line_and_column(self, perdure, here):
        done = perdure("flows", "validate", "bad.yaml", "good.yaml", "--app", MODULE)

        assert done.exit_code == 1
        assert done.out.splitlines()[:3] == [
            "bad.yaml:3:30 error node 'fetch': unknown node 'pak'; did you mean 'pack'?",
            "bad.yaml:4:16 error node 'pack': task 'pack' has no parameter 'lin'; "
            "did you mean 'line'?",
            "bad.yaml:4:16 error node 'pack': task 'pack' needs 'line', which is not among 'lin'",
        ]
        assert done.out.splitlines()[-1] == "2 files, 3 errors, 1 warning"

    def test_without_the_code_arguments_are_not_checked(self, perdure, here):
        done = perdure("flows", "validate", "bad.yaml")
        assert done.exit_code == 1
        assert done.out.splitlines()[-1] == "1 file, 1 error"

    def test_tasks_that_are_not_there_are_errors_with_the_code_at_hand(self, perdure, here):
        (here / "f.yaml").write_text("{flow: f, nodes: [{id: a, task: fetsh}]}", encoding="utf-8")
        done = perdure("flows", "validate", "f.yaml", "--app", MODULE)
        assert done.exit_code == 1
        assert "f.yaml:1:27 error node 'a': unknown task 'fetsh'; did you mean 'fetch'?" in done.out

    def test_flows_that_it_starts_are_those_of_the_code(self, perdure, here):
        text = "{flow: f, nodes: [{id: a, type: flow, config: {flow: shipping}}]}"
        (here / "f.yaml").write_text(text, encoding="utf-8")

        known, unknown = (
            perdure("flows", "validate", "f.yaml", "--app", MODULE),
            perdure("flows", "validate", "f.yaml"),
        )

        version = Flow("f").flow(sample_flows.shipping, name="a").build().version
        assert f"f.yaml ok f@{version}, 1 node" in known.out
        assert "  not checked: shipping" in unknown.out

    def test_kinds_are_those_of_the_module(self, perdure, here):
        (here / "own_kinds.py").write_text(
            "from perdure import task\n"
            "from perdure.tasks.node_type import NodeConfig, NodeType\n"
            "@task\n"
            "def fetch(x): ...\n"
            "class Shout(NodeType):\n"
            "    name = 'shout'\n"
            "    class Config(NodeConfig):\n"
            "        text: str\n"
            "    def execute(self, config, ctx):\n"
            "        return config.text.upper()\n",
            encoding="utf-8",
        )
        text = "{flow: f, nodes: [{id: a, type: shout, config: {text: hey}}]}"
        (here / "f.yaml").write_text(text, encoding="utf-8")

        assert perdure("flows", "validate", "f.yaml", "--app", "own_kinds").exit_code == 0
        assert "unknown node type 'shout'" in perdure("flows", "validate", "f.yaml").out

    def test_json_has_everything(self, perdure, here):
        good, bad = perdure("flows", "validate", "good.yaml", "bad.yaml", "--json").json

        assert good == {
            "file": "good.yaml",
            "ok": True,
            "flow": "shop",
            "version": None,
            "nodes": 3,
            "tasks": ["fetch", "pack"],
            "unchecked": ["fetch", "pack"],
            "secrets": ["API"],
            "errors": [],
            "warnings": ["secret 'API' is not in this environment: PERDURE_SECRET_API"],
        }
        assert bad["ok"] is False
        assert bad["errors"] == [
            {
                "code": "flow.unknown_node",
                "file": "bad.yaml",
                "line": 3,
                "column": 30,
                "node": "fetch",
                "message": "unknown node 'pak'; did you mean 'pack'?",
            }
        ]

    @pytest.mark.parametrize(
        "content, reported",
        [
            (b"", "empty.yaml:1:1 error the file is empty"),
            (b"\xff", "empty.yaml error is not UTF-8"),
            (b"a: [", "empty.yaml:1:1 error not valid YAML"),
            (None, "empty.yaml error cannot be read: No such file"),
        ],
    )
    def test_files_that_are_no_flows_are_errors(self, perdure, here, content, reported):
        if content is not None:
            (here / "empty.yaml").write_bytes(content)
        done = perdure("flows", "validate", "empty.yaml")
        assert done.exit_code == 1
        assert done.out.startswith(reported)

    def test_a_file_whose_name_is_not_utf_8_is_reported_as_json(self, perdure, here):
        """Finding 14: it ended in a traceback."""
        done = perdure("flows", "validate", "none\udcff.yaml", "--json")
        assert done.exit_code == 1
        [report] = done.json
        assert report["file"] == report["errors"][0]["file"] == "none\\udcff.yaml"

    def test_the_schema_is_printed_for_editors(self, perdure):
        done = perdure("flows", "validate", "--schema")
        assert done.exit_code == 0
        assert done.out == published_schema()
        assert json.loads(done.out)["title"] == "Perdure flow"


# ``perdure flows graph``, ``runs diagram`` and ``runs timeline``.


FLOW = "tests.cli.sample_flows:orders"


def is_svg(text: str) -> bool:
    return ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"


class TestFlowsGraph:
    def test_is_mermaid_by_default_or_as_svg(self, perdure):
        assert perdure("flows", "graph", FLOW).out == sample.orders.mermaid()
        assert perdure("flows", "graph", FLOW, "--format", "svg").out == sample.orders.svg()

    @pytest.mark.parametrize("name", ["flow.svg", "flow.SVG"])
    def test_into_a_file_whose_ending_says_how(self, perdure, folder, name):
        done = perdure("flows", "graph", FLOW, "-o", str(folder / name))
        assert done.exit_code == 0
        assert done.out == ""
        assert is_svg((folder / name).read_text(encoding="utf-8"))

    def test_refuses_an_ending_that_says_nothing(self, perdure, folder):
        assert perdure("flows", "graph", FLOW, "-o", str(folder / "flow.png")).exit_code == 2

    def test_into_a_file_of_any_name(self, perdure, folder):
        perdure("flows", "graph", FLOW, "-o", str(folder / "flow.md"), "--format", "mermaid")
        assert (folder / "flow.md").read_text(encoding="utf-8") == sample.orders.mermaid()


class TestRunsDiagram:
    def test_has_the_states_of_nodes(self, perdure, waiting):
        drawn = perdure("runs", "diagram", "order-5").out
        assert '["fetch<br/>✓ completed"]' in drawn
        assert "… waiting" in drawn

    def test_as_json(self, perdure, waiting):
        drawn = perdure("runs", "diagram", "order-5", "--json").json
        marks = {node["id"]: node["mark"] for node in drawn["nodes"]}
        assert (drawn["status"], marks["approval"]) == ("waiting", "waiting")


class TestRunsTimeline:
    def test_of_a_live_run(self, perdure, waiting):
        lines = perdure("runs", "timeline", "order-5").out.splitlines()
        assert lines[0].endswith(" so far")
        assert "… approval" in lines[4]

    def test_as_json(self, perdure, completed):
        shown = perdure("runs", "timeline", "order-5", "--json").json
        assert [row["node"] for row in shown["rows"]] == list(sample.orders.graph.nodes)
        assert shown["rows"][0]["bars"][0]["ending"] == "completed"

    def test_as_text_in_a_file(self, perdure, completed, folder):
        perdure("runs", "timeline", "order-5", "-o", str(folder / "run.txt"))
        written = (folder / "run.txt").read_text(encoding="utf-8")
        assert written == perdure("runs", "timeline", "order-5").out

    @pytest.mark.parametrize("width", [40, 80])
    def test_fits_the_terminal(self, completed, width):
        written = StringIO()
        console = Console(file=written, width=width, force_terminal=True, color_system=None)
        print_timeline(console, completed.timeline())
        rows = written.getvalue().splitlines()[1:]
        assert max(map(len, rows)) <= width
