"""A task with options: what carries them, and where they are refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure import AsyncClient, Client, Flow, InvalidFlow, InvalidInput, Worker, task
from perdure.cli.target import TargetCode, load
from tests.client.tasks import add
from tests.support.refusal import refused


@task(queue="files", priority=2)
def fetch(delay: int, queue: str = "own") -> str:
    return f"{delay} {queue}"


class TestATaskWithOptions:
    def test_leaves_the_task_as_it_is(self):
        later = fetch.options(delay="5m")

        assert fetch.settings.delay == timedelta(0)
        assert later.settings.delay == timedelta(minutes=5)
        assert (later.base, later.name, fetch.base) == (fetch, "fetch", fetch)

    def test_is_called_as_the_task(self):
        assert fetch.options(delay="5m")(3) == "3 own"

    def test_adds_to_the_options_that_it_has(self):
        settings = fetch.options(delay="5m", priority=1).options(priority=4).settings

        assert (settings.delay, settings.priority) == (timedelta(minutes=5), 4)

    def test_checks_options_together(self):
        with refused("job.due_after_deadline", InvalidInput):
            fetch.options(delay="5m").options(deadline="1m")

    def test_refuses_a_misspelled_option(self):
        with refused("argument.unknown", InvalidInput, name="prioriti", nearest=("priority",)):
            fetch.options(prioriti=1)  # type: ignore[call-arg]


class TestIsRefused:
    @pytest.mark.parametrize(
        "place",
        [
            lambda task: Worker("memory://", tasks=[task]),
            lambda task: AsyncClient("memory://", tasks=[task]),
            lambda task: Client("memory://", tasks=[task]),
            lambda task: Flow.from_yaml("flow: a\nnodes:\n  one: {task: fetch}", tasks=[task]),
        ],
        ids=["worker", "async client", "client", "yaml"],
    )
    def test_where_no_job_is_made_of_it(self, place):
        with refused("task.has_options", InvalidInput, task="fetch", options=("delay",)):
            place(fetch.options(delay="5m"))

    def test_as_a_node(self):
        with pytest.raises(InvalidFlow) as caught:
            Flow("order").then(fetch.options(delay="5m")).build()

        assert "task.has_options" in [fault.code for fault in caught.value.faults]

    def test_by_result_of(self, memory_url):
        with Client(memory_url) as client, refused("task.has_options", InvalidInput, task="add"):
            client.jobs.find_result(add.options(queue="slow"), [1])


class TestDiscovery:
    def test_takes_it_for_the_task(self, tmp_path, monkeypatch):
        source = (
            "from perdure import task\n"
            "@task\ndef fetch(): ...\n"
            "fast = fetch.options(priority=1)\nslow = fetch.options(queue='slow')\n"
        )
        (tmp_path / "with_options.py").write_text(source, encoding="utf-8")
        monkeypatch.chdir(tmp_path)

        for target in ("with_options", "with_options:fast"):
            code = load(target)
            assert isinstance(code, TargetCode)
            [found] = code.tasks
            assert (found.name, found.base) == ("fetch", found)


class TestByName:
    async def test_a_task_that_the_client_has_gets_options(self, memory_url):
        async with AsyncClient(memory_url, tasks=[add]) as client:
            job = await client.enqueue(client.task("add").options(queue="slow"), 1)

            assert (await client.jobs.get(job.id)).queue == "slow"


def test_the_blocking_schedule_refuses_a_misspelled_option(memory_url):
    with Client(memory_url) as client:
        with pytest.raises(TypeError, match="timezon"):
            client.schedules.save("often", add, every="5m", timezon="UTC")  # type: ignore[call-arg]

        assert list(client.schedules.list()) == []
