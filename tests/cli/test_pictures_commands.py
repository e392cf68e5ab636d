"""``perdure flows graph``, ``runs diagram`` and ``runs timeline``."""

from __future__ import annotations

from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from perdure.cli.views.timeline import print_timeline
from tests.cli import sample_flows as sample

FLOW = "tests.cli.sample_flows:orders"


def is_svg(text: str) -> bool:
    return ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"


class TestFlowsGraph:
    def test_is_mermaid_unless_told_otherwise(self, perdure):
        assert perdure("flows", "graph", FLOW).out == sample.orders.mermaid()

    def test_as_svg(self, perdure):
        assert perdure("flows", "graph", FLOW, "--format", "svg").out == sample.orders.svg()

    def test_as_json_to_draw_oneself(self, perdure):
        drawn = perdure("flows", "graph", FLOW, "--json").json

        assert drawn["title"] == sample.orders.graph.text
        assert [node["id"] for node in drawn["nodes"]] == list(sample.orders.graph.nodes)
        assert drawn == perdure("flows", "graph", FLOW, "--format", "json").json

    @pytest.mark.parametrize("name", ["flow.svg", "flow.SVG"])
    def test_into_a_file_whose_ending_says_how(self, perdure, folder, name):
        done = perdure("flows", "graph", FLOW, "-o", str(folder / name))

        assert done.exit_code == 0
        assert done.out == ""
        assert is_svg((folder / name).read_text(encoding="utf-8"))

    def test_into_a_file_of_any_name(self, perdure, folder):
        perdure("flows", "graph", FLOW, "-o", str(folder / "flow.md"), "--format", "mermaid")

        assert (folder / "flow.md").read_text(encoding="utf-8") == sample.orders.mermaid()

    def test_refuses_an_ending_that_says_nothing(self, perdure, folder):
        refused = perdure("flows", "graph", FLOW, "-o", str(folder / "flow.png"))

        assert refused.exit_code == 2
        assert "Pass --format mermaid or svg or json" in refused.error

    def test_refuses_two_formats_at_once(self, perdure):
        refused = perdure("flows", "graph", FLOW, "--json", "--format", "svg")

        assert refused.exit_code == 2
        assert "--json and --format svg exclude each other" in refused.error

    def test_refuses_a_file_that_cannot_be_written(self, perdure, folder):
        refused = perdure("flows", "graph", FLOW, "-o", str(folder / "no" / "flow.svg"))

        assert refused.exit_code == 2
        assert "cannot be written: No such file or directory" in refused.error


class TestRunsDiagram:
    def test_has_the_states_of_nodes(self, perdure, waiting):
        drawn = perdure("runs", "diagram", "order-5").out

        assert '["fetch<br/>✓ completed"]' in drawn
        assert "… waiting" in drawn

    def test_as_svg_in_a_file(self, perdure, waiting, folder):
        perdure("runs", "diagram", "order-5", "-o", str(folder / "run.svg"))

        assert is_svg((folder / "run.svg").read_text(encoding="utf-8"))

    def test_as_json(self, perdure, waiting):
        drawn = perdure("runs", "diagram", "order-5", "--json").json

        marks = {node["id"]: node["mark"] for node in drawn["nodes"]}
        assert (drawn["status"], marks["approval"]) == ("waiting", "waiting")


class TestRunsTimeline:
    def test_has_a_row_for_each_node(self, perdure, completed):
        lines = perdure("runs", "timeline", "order-5").out.splitlines()

        assert lines[0].startswith("order-5 is completed; started ")
        rows = [line.split()[:2] for line in lines[2:7]]
        assert rows == [["✓", node] for node in sample.orders.graph.nodes]
        assert "2/2" in lines[3]

    def test_of_a_run_that_goes_on(self, perdure, waiting):
        lines = perdure("runs", "timeline", "order-5").out.splitlines()

        assert lines[0].endswith(" so far")
        assert "… approval" in lines[4]

    def test_as_json(self, perdure, completed):
        shown = perdure("runs", "timeline", "order-5", "--json").json

        assert [row["node"] for row in shown["rows"]] == list(sample.orders.graph.nodes)
        assert shown["rows"][0]["bars"][0]["ending"] == "completed"

    def test_as_svg(self, perdure, completed, folder):
        perdure("runs", "timeline", "order-5", "-o", str(folder / "run.svg"))

        assert is_svg((folder / "run.svg").read_text(encoding="utf-8"))

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

    def test_of_no_run(self, perdure, waiting):
        refused = perdure("runs", "timeline", "order-6")

        assert refused.exit_code == 1
        assert "run 'order-6' not found" in refused.error
