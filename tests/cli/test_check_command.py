"""``perdure flows unserved``: whether the code at hand could go on with every run."""

from __future__ import annotations

from perdure import Client
from tests.cli import sample_flows as sample

MODULE = "tests.cli.sample_flows"


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

    def test_tells_why_a_run_could_not_be_migrated(self, perdure, client, waiting):
        client.runs.pause("order-5")
        client.queues.pause("default")  # so that nobody begins with the next one
        client.submit(sample.orders, 5, id="fresh")
        client.runs.pause("fresh")

        done = perdure("flows", "unserved", f"{MODULE}:renamed")
        [version] = perdure("flows", "unserved", f"{MODULE}:renamed", "--json").json

        assert (
            "order-5: node 'fetch' is completed, but the new version does not have it" in done.out
        )
        assert version["nearest"] == sample.renamed.version
        stuck = {run["id"]: run["differences"] for run in version["runs"]}
        assert stuck.keys() == {"order-5", "fresh"}
        fault = stuck["order-5"][0]
        assert (fault["code"], fault["where"]) == ("migration.node_missing", ["nodes", "fetch"])
        assert "does not have it" in fault["message"]

    def test_knows_no_nearest_version_of_a_flow_that_is_gone(self, perdure, client):
        client.submit(sample.orders, 5, id="a")

        done = perdure("flows", "unserved", f"{MODULE}:shipping")
        [version] = perdure("flows", "unserved", f"{MODULE}:shipping", "--json").json

        assert done.exit_code == 1
        assert done.rows[1] == [f"orders@{sample.orders.version}", "1", "none", "a"]
        assert (version["nearest"], version["migratable"]) == (None, 0)

    def test_leaves_ended_runs_and_other_namespaces_alone(self, perdure, client, url):
        client.submit(sample.orders, 5, id="a")
        client.runs.cancel("a")
        with Client(url, namespace="team-a") as other:
            other.submit(sample.orders, 5, id="theirs")

        assert perdure("flows", "unserved", f"{MODULE}:longer").exit_code == 0
        everywhere = perdure("flows", "unserved", f"{MODULE}:longer", "--namespace", "*")
        assert everywhere.exit_code == 1
        assert "team-a" in everywhere.rows[1]

    def test_finds_every_run_of_many(self, perdure, client):
        ids = {f"run-{number}" for number in range(230)}
        for id in ids:
            client.submit(sample.orders, 5, id=id)

        [version] = perdure("flows", "unserved", f"{MODULE}:longer", "--json").json

        assert {run["id"] for run in version["runs"]} == ids
        assert version["count"] == version["migratable"] == 230

    def test_wants_flows(self, perdure, client):
        done = perdure("flows", "unserved", f"{MODULE}:pack")

        assert done.exit_code == 2
        assert "has no flows" in done.error
