"""``perdure flows``: a flow as it is in the code or in a file at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure import Flow
from perdure.cli.views.flows import flow_node_columns
from tests.cli import sample_flows as sample
from tests.cli.commands import Commands

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

    def test_says_what_is_no_flow(self):
        shown = Commands(None)("flows", "show", f"{MODULE}:pack")

        assert shown.exit_code == 2
        assert "is 'Task', not a flow that was built" in shown.error


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
        refused = Commands(None)("flows", command, file)

        assert refused.exit_code == 2
        assert "unknown task 'label'" in refused.error
        assert "Pass --app MODULE" in refused.error

    def test_without_an_app_has_no_more_faults_for_it(self, file):
        error = Commands(None)("flows", "show", file, "--json").error

        told = json.loads(error)["error"]
        assert {each["code"] for each in told["faults"]} == {"flow.unknown_task"}
        assert "Pass --app MODULE" in told["message"]

    def test_that_names_no_code_is_not_told_of_an_app(self, folder):
        (folder / "odd.yaml").write_text("flow: odd\nodd: 1\nnodes: []\n", encoding="utf-8")

        refused = Commands(None)("flows", "show", str(folder / "odd.yaml"))

        assert refused.exit_code == 2
        assert "--app" not in refused.error

    def test_an_app_alone_is_refused(self):
        refused = Commands(None)("flows", "list", "--app", MODULE)

        assert refused.exit_code == 2
        assert "Name a file" in refused.error
