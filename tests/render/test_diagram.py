"""What a picture of a run shows: how far each node is, and which way it went."""

from __future__ import annotations

from perdure.model.graph import Graph
from perdure.render.diagram import Diagram, NodeMark, diagram_of, diagram_of_run
from perdure.render.mermaid import mermaid
from tests.rules.graphs import chain, child, delay, graph, loop, mapped, route, signal, task
from tests.rules.played import Played


def drawn(run: Played) -> Diagram:
    return diagram_of_run(run.id, run.graph, run.state)


def marks(run: Played) -> dict[str, NodeMark | None]:
    return {node.id: node.mark for node in drawn(run).nodes}


def progress(run: Played, id: str) -> str:
    return next(node.progress for node in drawn(run).nodes if node.id == id)


class TestMarks:
    def test_of_a_chain(self):
        run = Played(chain(task("a"), task("b"), task("c")))
        run.finish("a")

        assert marks(run) == {
            "a": NodeMark.COMPLETED,
            "b": NodeMark.LIVE,
            "c": NodeMark.NOT_REACHED,
        }

    def test_waiting_for_whatever_it_is(self):
        run = Played(graph(signal("s"), delay("d"), child("c")))

        assert set(marks(run).values()) == {NodeMark.WAITING}

    def test_paused(self):
        run = Played(chain(task("a"), task("b")))
        run.pause()

        assert marks(run)["a"] is NodeMark.PAUSED

    def test_failed_and_blocked(self):
        run = Played(graph(task("a"), task("b"), task("c"), edges="a b", on_failure="finish"))
        run.fail("a")

        assert marks(run) == {"a": NodeMark.FAILED, "b": NodeMark.BLOCKED, "c": NodeMark.LIVE}

    def test_skipped(self):
        run = Played(graph(route("r", "x", "y"), task("a"), task("b"), edges="r.x a, r.y b"))
        run.finish("r", "x")

        assert marks(run)["b"] is NodeMark.SKIPPED

    def test_cancelled(self):
        run = Played(chain(task("a")))
        run.cancel()

        assert marks(run) == {"a": NodeMark.CANCELLED}

    def test_a_flow_has_none(self):
        assert {node.mark for node in diagram_of(chain(task("a"))).nodes} == {None}


class TestProgress:
    def test_of_a_map(self):
        run = Played(chain(task("a"), mapped("m")))
        run.finish("a", [1, 2, 3])
        run.finish("m[1]", 2)

        assert progress(run, "m") == "1/3 items"

    def test_of_a_loop(self):
        run = Played(chain(loop("l")))
        run.finish("l#1", 1)
        run.finish("check:l#1", False)

        assert progress(run, "l") == "iteration 2"

    def test_of_a_node_that_failed_and_was_gone_on_from(self):
        run = Played(chain(task("a", on_error="continue"), task("b")))
        run.fail("a")

        assert progress(run, "a") == "after it failed"


class TestEdges:
    GRAPH: Graph = graph(
        route("r", "x", "y"), task("a", on_error="oops"), task("b"), task("c"),
        edges="r.x a, r.y b, a.oops c",
    )  # fmt: skip

    def test_those_that_were_taken(self):
        run = Played(self.GRAPH)
        run.finish("r", "x")

        assert {(edge.target, edge.is_taken) for edge in drawn(run).edges} == {
            ("a", True),
            ("b", False),
            ("c", None),
        }

    def test_those_that_an_error_leads_along(self):
        edges = diagram_of(self.GRAPH).edges

        assert {edge.target for edge in edges if edge.is_unusual} == {"c"}


class TestMermaid:
    def test_of_a_run_has_colours_signs_and_the_way_it_took(self):
        run = Played(chain(task("a"), mapped("m"), task("c")))
        run.finish("a", [1, 2])

        assert mermaid(drawn(run)) == (
            "flowchart TD\n"
            '    n1["a<br/>✓ completed"]\n'
            '    n2[/"m<br/>for each item<br/>▶ live 0/2 items"/]\n'
            '    n3["c<br/>not reached"]\n'
            "    n1 ==> n2\n"
            "    n2 --> n3\n"
            "    classDef completed fill:#c7ecdd,stroke:#00694c,color:#1f2328\n"
            "    class n1 completed\n"
            "    classDef live fill:#ffe29a,stroke:#7a4f00,color:#1f2328\n"
            "    class n2 live\n"
            "    classDef not_reached fill:#ffffff,stroke:#6e7781,color:#57606a\n"
            "    class n3 not_reached\n"
        )
