"""``perdure schedules``: see them, stop them, start them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from perdure import Client
from perdure.cli.views.schedules import schedule_columns
from tests.cli import sample_flows as sample
from tests.cli.test_errors import assert_told

FAR = datetime(2100, 1, 1, 3, tzinfo=UTC)


@pytest.fixture
def nightly(client: Client) -> str:
    """A schedule of a flow whose first tick is far away."""
    client.schedules.save(
        "nightly",
        sample.orders,
        input=5,
        cron="0 3 * * *",
        timezone="Europe/Berlin",
        start_at=FAR,
        overlap="queue",
    )
    return "nightly"


class TestList:
    def test_shows_what_each_starts_and_when(self, perdure, client, nightly):
        client.schedules.save("sweeping", sample.fetch, args=[1], every="15m", paused=True)
        shown = perdure("schedules", "list")

        assert shown.exit_code == 0
        heads, first, second = shown.rows
        assert heads[:3] == ["SCHEDULE", "STATUS", "STARTS"]
        assert first[:4] == ["nightly", "active", "flow", "orders"]
        assert second[:4] == ["sweeping", "paused", "task", "fetch"]
        assert "0 3 * * *" in shown.out
        assert "every 15m" in shown.out

    def test_a_tick_that_no_worker_has_seen_to_is_due(self, client, nightly):
        after = FAR + timedelta(days=1, hours=2)
        columns = schedule_columns(client.schedules.list(), after, is_across=False)

        [due] = [column.cells for column in columns if column.title == "NEXT"]
        assert due == ["due for 3h"]

    def test_says_that_there_are_none(self, perdure, client):
        assert perdure("schedules", "list").out == "no schedules\n"

    def test_gives_json(self, perdure, nightly):
        [found] = perdure("schedules", "list", "--json").items

        assert (found["name"], found["cron"], found["flow"]) == ("nightly", "0 3 * * *", "orders")
        assert found["next_at"] == "2100-01-02T02:00:00Z"

    def test_of_all_namespaces_says_whose_each_is(self, perdure, url, nightly):
        with Client(url, namespace="team-b") as other:
            other.schedules.save("hourly", sample.fetch, args=[1], every="1h")
        shown = perdure("schedules", "list", "--namespace", "*")

        assert "NAMESPACE" in shown.out
        assert "team-b" in shown.out


class TestShow:
    def test_tells_all_of_one(self, perdure, client, nightly):
        run = client.schedules.trigger("nightly", by="ann")
        shown = perdure("schedules", "get", "nightly")

        assert shown.exit_code == 0
        for text in (
            "flow orders",
            "0 3 * * * (Europe/Berlin)",
            "queue",
            "1 started, 0 skipped, 0 missed, 0 failed",
            run.id,
            "triggered by ann",
        ):
            assert text in shown.out

    def test_gives_json(self, perdure, client, nightly):
        run = client.schedules.trigger("nightly")
        found = perdure("schedules", "get", "nightly", "--json").json

        assert found["history"][0]["run"] == run.id
        assert found["started"] == 1

    def test_of_an_unknown_one_names_the_nearest(self, perdure, nightly):
        shown = perdure("schedules", "get", "nigthly")

        assert shown.exit_code == 1
        assert "schedule 'nigthly' not found" in shown.error
        assert "'nightly'" in shown.error


class TestActing:
    def test_pausing_and_resuming(self, perdure, client, nightly):
        assert perdure("schedules", "pause", "nightly", "--by", "ann").out == (
            "nightly is paused by ann\n"
        )
        assert client.schedules.get("nightly").is_paused
        assert "ann" in perdure("schedules", "get", "nightly").out
        resumed = perdure("schedules", "resume", "nightly")
        assert resumed.out.startswith("nightly is resumed; next: 2100-01-02")
        assert not client.schedules.get("nightly").is_paused

    def test_triggering_a_flow(self, perdure, client, nightly):
        done = perdure("schedules", "trigger", "nightly", "--json").json

        assert done["run"].startswith("nightly@manual-")
        assert client.runs.get(done["run"]).flow == "orders"
        assert "started run nightly@manual-" in perdure("schedules", "trigger", "nightly").out

    def test_triggering_a_task(self, perdure, client):
        client.schedules.save("fetching", sample.fetch, args=[1], every="1h")
        done = perdure("schedules", "trigger", "fetching")

        [job] = client.jobs.list()
        assert done.out == f"started job {job.id}\n"

    def test_deleting(self, perdure, client, nightly):
        assert perdure("schedules", "delete", "nightly").out == "nightly is deleted\n"
        assert list(client.schedules.list()) == []
        assert perdure("schedules", "delete", "nightly").exit_code == 1

    @pytest.mark.parametrize("act", ["pause", "resume", "delete"])
    def test_gives_json(self, perdure, nightly, act):
        done = perdure("schedules", act, "nightly", "--json").json

        assert "nightly" in (done.get("name"), done.get("deleted"))

    @pytest.mark.parametrize(
        "option, text", [("--cron", "bad"), ("--cron", "0 0 31 2 *"), ("--timezone", "Mars")]
    )
    def test_refuses_an_option_by_its_name(self, perdure, client, option, text):
        save = ("schedules", "save", "nightly", "tests.cli.sample_flows:orders", "--input", "1")

        assert_told(perdure(*save, "--cron", "0 3 * * *", option, text), 2, f"perdure: {option} ")

    def test_of_all_namespaces_is_refused(self, perdure, nightly):
        done = perdure("schedules", "pause", "nightly", "--namespace", "*")

        assert done.exit_code != 0
        assert "schedules.pause needs a single namespace" in done.error
