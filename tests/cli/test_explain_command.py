"""``perdure explain`` and ``jobs explain``: of whatever has this id, with commands to type."""

from __future__ import annotations

from datetime import datetime

from perdure import Flow
from tests.cli import sample_flows, sample_tasks
from tests.cli.commands import Commands

branches = {f"b{number}": Flow().wait_for_signal(f"go-{number}") for number in range(30)}
many_waits = Flow("many").fork(**branches).join(sample_tasks.echo).build()


class TestExplain:
    def test_of_a_run(self, perdure, waiting):
        told = perdure("explain", "order-5")

        assert told.exit_code == 0
        assert told.out.startswith("order-5 is waiting. 1 signal is pending.\n")
        assert "    → perdure signal order-5 approval\n" in told.out

    def test_the_command_that_it_tells_moves_the_run_on(self, perdure, waiting):
        [finding] = perdure("explain", "order-5", "--json").json["findings"]
        [action] = finding["actions"]
        program, *words = action["rendered"].split()

        assert program == "perdure"
        assert perdure(*words).exit_code == 0
        waiting.result(timeout=30)

    def test_of_a_job(self, perdure, client):
        job = client.enqueue(sample_tasks.add, 1, 2)

        told = perdure("explain", job.id)

        sentence, command = told.out.splitlines()
        assert sentence.startswith(
            f"{job.id} is waiting. No worker is live; the job has been ready since "
        )
        assert command == "    → perdure worker MODULE"
        assert perdure("jobs", "explain", job.id).out == told.out

    def test_of_a_job_of_a_run(self, perdure, client):
        client.submit(sample_flows.orders, 5, id="order-5")
        [job] = client.jobs.list()

        told = perdure("jobs", "explain", job.id)

        assert "  It belongs to run order-5.\n" in told.out

    def test_tells_times_as_they_are_here_and_how_long_ago(self, perdure, waiting):
        [finding] = perdure("explain", "order-5", "--json").json["findings"]
        since = datetime.fromisoformat(finding["args"]["since"])

        told = perdure("explain", "order-5").out

        assert f" since {since.astimezone():%Y-%m-%d %H:%M:%S} (" in told
        assert "s ago)" in told
        assert "+00:00" not in told

    def test_says_once_that_it_is_completed(self, perdure, waiting):
        waiting.signal("approval")
        waiting.result(timeout=30)

        assert perdure("explain", "order-5").out == "Run 'order-5' is completed.\n"

    def test_says_once_that_it_was_cancelled(self, perdure, waiting):
        perdure("runs", "cancel", "order-5", "--by", "ann", "--reason", "too late")

        told = perdure("explain", "order-5").out

        assert told.startswith("Run 'order-5' was cancelled by ann: too late.\n")
        assert told.count("cancelled") == 1

    def test_a_job_can_be_started_anew_as_it_says(self, perdure, client):
        job = client.enqueue(sample_tasks.add, 1, 2)
        job.cancel()

        assert f"→ perdure jobs retry {job.id}" in perdure("explain", job.id).out

    def test_a_disabled_job_can_be_enabled_as_it_says(self, perdure, client):
        job = client.enqueue(sample_tasks.add, 1, 2)
        assert perdure("jobs", "disable", job.id).exit_code == 0

        assert f"→ perdure jobs enable {job.id}" in perdure("explain", job.id).out
        assert perdure("jobs", "enable", job.id).out == f"{job.id} is waiting, was disabled\n"

    def test_commands_name_the_store_that_was_given(self, url, client):
        job = client.enqueue(sample_tasks.add, 1, 2)
        client.queues.pause("default", by="ann")

        told = Commands(None)("explain", job.id, "--store", url)

        assert f"    → perdure queues resume default --store {url}\n" in told.out

    def test_fits_one_screen(self, perdure, client):
        client.submit(many_waits, None, id="many")

        told = perdure("explain", "many").out.splitlines()

        assert len(told) == 22  # a sentence, ten findings with a command each, and how many more
        assert told[-1] == "  and 20 more: --json has them"
        assert len(perdure("explain", "many", "--json").json["findings"]) == 30

    def test_of_nothing(self, perdure, client):
        refused = perdure("explain", "nobody")

        assert refused.exit_code == 1
        assert "run or job 'nobody' not found" in refused.error

    def test_runs_explain_is_about_runs_only(self, perdure, client):
        job = client.enqueue(sample_tasks.add, 1, 2)

        assert perdure("runs", "explain", job.id).exit_code == 1

    def test_jobs_resume_puts_a_parked_job_back(self, perdure, client):
        refused = perdure("jobs", "resume", client.enqueue(sample_tasks.add, 1, 2).id)

        assert refused.exit_code == 1
        assert "waiting" in refused.error
