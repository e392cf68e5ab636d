"""``perdure flows show``: a flow as it is in the code at hand."""

from __future__ import annotations

from perdure import Flow
from perdure.cli.flow_view import node_columns
from tests.cli import sample_flows as sample
from tests.cli.commands import Commands

MODULE = "tests.cli.sample_flows"


class TestShow:
    def test_has_version_nodes_and_picture(self) -> None:
        shown = Commands(None)("flows", "show", f"{MODULE}:orders")

        assert shown.exit_code == 0
        assert ["version", sample.orders.version] in shown.rows
        assert ["starts", f"shipping@{sample.shipping.version}"] in shown.rows
        assert ["fetch", "task", "fetch", "default"] in shown.rows
        assert "waits for approval, 3d at most" in shown.out
        assert shown.out.endswith(sample.orders.mermaid())

    def test_says_what_nodes_do_and_who_decides(self) -> None:
        flow = (
            Flow("refunds")
            .then(sample.fetch)
            .use("note", {"text": "asked"}, queue="notes")
            .approve("Refund?", deciders=["finance", "lead"], deadline="3d")
            .delay("1h30m")
            .delay(until="{{ value.due_at }}", name="later")
            .build()
        )

        columns = {column.title: list(column.cells) for column in node_columns(flow.graph)}
        assert columns["KIND"] == ["task", "note", "approval", "delay", "delay"]
        assert columns["DOES"][1:] == [
            "refunds.note",
            "Refund?, decided by one of finance, lead, within 3d",
            "waits for 1h30m",
            "waits until {{ value.due_at }}",
        ]
        assert columns["QUEUE"] == ["default", "notes", "", "", ""]

    def test_gives_the_definition_as_json(self) -> None:
        shown = Commands(None)("flows", "show", f"{MODULE}:orders", "--json").json

        assert (shown["name"], shown["version"]) == ("orders", sample.orders.version)
        nodes = [node["id"] for node in shown["definition"]["nodes"]]
        assert nodes == list(sample.orders.graph.nodes)

    def test_says_what_is_no_flow(self) -> None:
        shown = Commands(None)("flows", "show", f"{MODULE}:pack")

        assert shown.exit_code == 2
        assert "is 'Task', not a flow that was built" in shown.error
