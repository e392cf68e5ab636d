"""Names and ids have no control characters; those that are stored remain usable."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from perdure import AsyncClient, AsyncJobQueue, Concurrency, Flow, Grant, Worker, task
from perdure.errors import PerdureError
from perdure.flows.built import BuiltFlow
from perdure.model import check
from perdure.model.text import control_in, unseen_in, visible
from perdure.tasks.result import complete, paused
from tests.client.flows import echo
from tests.support.older_names import older_names
from tests.support.refusal import refused

ESCAPE = "a\x1b[2Jb"
UNSEEN = "argument.unseen_character"


@task
def other(value: Any = None) -> Any:
    return value


@task(limits=[Concurrency(1, key=lambda value: value)])
def keyed(value: str) -> None: ...


plain = Flow("plain").then(echo).build()


def loaded(**node: Any) -> BuiltFlow:
    nodes = [{"id": "a", "task": "other", **node}, {"id": "b", "task": "other", "after": "a"}]
    return Flow.from_dict({"flow": "f", "nodes": nodes}, tasks=[other])


FLOWS: dict[str, Callable[[str], Any]] = {
    "flow": lambda name: Flow(name).then(other).build(),
    "flow as data": lambda name: Flow.from_dict(
        {"flow": name, "nodes": [{"id": "a", "task": "other"}]}, tasks=[other]
    ),
    "queue": lambda name: Flow("f").then(other, queue=name).build(),
    "queue as data": lambda name: loaded(queue=name),
    "tag": lambda name: Flow("f").then(other, tags=[name]).build(),
    "port": lambda name: Flow("f").then(other, ports=[name]).build(),
    "port of an error": lambda name: loaded(on_error=name),
    "branch": lambda name: Flow("f").then(other).fork({name: echo}).join(len, name="j").build(),
    "key": lambda name: Flow("f").then(other).route("x", {name: echo}).build(),
    "key as data": lambda name: Flow.from_dict(
        {
            "flow": "f",
            "nodes": [
                {"id": "a", "type": "route", "config": {"key": "x"}, "next": {name: "b"}},
                {"id": "b", "task": "other"},
            ],
        },
        tasks=[other],
    ),
    "name of an edge": lambda name: Flow.from_dict(
        {
            "flow": "f",
            "nodes": [
                {"id": "a", "task": "other"},
                {"id": "b", "task": "other", "after": {name: "a"}},
            ],
        },
        tasks=[other],
    ),
    "signal": lambda name: Flow("f").then(other).wait_for_signal(name).build(),
    "answer": lambda name: Flow("f").approve("?", deciders=["ann"], answers=["ok", name]).build(),
    "decider": lambda name: Flow("f").approve("?", deciders=[name]).build(),
    "role": lambda name: Flow("f").approve("?", deciders=[f"role:{name}"]).build(),
    "task": lambda name: task(name=name)(lambda: None),
    "queue of a task": lambda name: task(name="t", queue=name)(lambda: None),
    "tag of a task": lambda name: task(name="t", tags=[name])(lambda: None),
    "limit key": lambda name: Concurrency(1, key=name),
    "limited queue": lambda name: Concurrency(1, queue=name),
    "limited task": lambda name: Concurrency(1, task=name),
    "worker": lambda name: Worker("memory://", tasks=[other], id=name),
    "worker's queue": lambda name: Worker("memory://", tasks=[other], queues=[name]),
    "worker's tag": lambda name: Worker("memory://", tasks=[other], tags=[name]),
    "worker's namespace": lambda name: Worker("memory://", tasks=[other], namespace=name),
    "client's namespace": lambda name: AsyncClient("memory://", namespace=name),
    "queue's namespace": lambda name: AsyncJobQueue("memory://", namespace=name),
    "grant": lambda name: Grant(name, tasks=["other"]),
    "pause": lambda name: paused(name=name),
    "chosen port": lambda name: complete(port=name),
}

OPERATIONS: dict[str, Callable[[AsyncClient, str], Any]] = {
    "run": lambda client, name: client.submit(plain, 1, id=name),
    "fork": lambda client, name: client.runs.fork("known", new_id=name),
    "by": lambda client, name: client.runs.cancel("known", by=name),
    "sender": lambda client, name: client.runs.signal("known", "go", by=name),
    "signal": lambda client, name: client.runs.signal("known", name),
    "broadcast": lambda client, name: client.runs.broadcast(name),
    "report": lambda client, name: client.runs.report(
        "known", "echo", status="completed", key=name
    ),
    "fingerprint": lambda client, name: client.enqueue(echo.options(fingerprint=name), 1),
    "computed fingerprint": lambda client, name: client.enqueue(
        echo.options(fingerprint=lambda value: name), 1
    ),
    "group": lambda client, name: client.enqueue(echo.options(group=name), 1),
    "queue": lambda client, name: client.enqueue(echo.options(queue=name), 1),
    "tag": lambda client, name: client.enqueue(echo.options(tags=[name]), 1),
    "computed limit key": lambda client, name: client.enqueue(keyed, name),
    "schedule": lambda client, name: client.schedules.save(name, echo, every="1h", args=[1]),
    "paused queue": lambda client, name: client.queues.pause(name),
}


def codes(build: Callable[[], Any]) -> set[str]:
    with pytest.raises(PerdureError) as caught:
        build()
    return {each.code for each in caught.value.faults}


async def contents(client: AsyncClient) -> list[Any]:
    groups = (client.runs, client.jobs, client.queues, client.schedules, client.waits)
    events = await client.runs.events("known")
    return [events.items, *[(await each.list()).items for each in groups]]


class TestRefused:
    @pytest.mark.parametrize("what", FLOWS)
    def test_in_definitions_and_settings(self, what):
        """Finding 1: names with control characters controlled terminals and forged log lines."""
        assert UNSEEN in codes(lambda: FLOWS[what](ESCAPE))

    def test_in_ids_of_nodes(self):
        """Finding 1: ids of nodes have a few characters only."""
        assert codes(lambda: Flow("f").then(other, name=ESCAPE).build()) == {"flow.node_id"}

    @pytest.mark.every_store
    @pytest.mark.parametrize("what", OPERATIONS)
    async def test_in_operations_and_nothing_is_written(self, client, what):
        """Finding 1: what a caller names, on every store."""
        await client.submit(plain, 1, id="known")
        before = await contents(client)
        with refused(UNSEEN):
            await OPERATIONS[what](client, ESCAPE)
        assert await contents(client) == before

    @pytest.mark.parametrize(
        "character",
        "\x01\t\n\r\x1b\x7f\x85\x9b\xad\u061c\u200b\u200e\u200f\u2028\u202a\u202e\u2060\u2066\u2069\ufeff"
        "\U000e0041\u034f\u115f\u1160\u180e\u3164\uffa0\ufff9\ufffa\ufffb\U000e0080\U000e0fff",
    )
    def test_every_character_that_is_printed_in_another_way(self, character):
        """Finding 1: C0, DEL, C1, bidirectional controls and what is not visible at all."""
        with refused(UNSEEN, character=character):
            check.name(f"a{character}b", "queue")
        assert visible(character) != character

    def test_names_of_people_have_none_that_is_printed_in_another_way(self):
        """Finding 1: one set of characters; of what others may have, people have no look-alikes."""
        every = [chr(number) for number in range(sys.maxunicode + 1)]
        assert [each for each in every if control_in(each) and not unseen_in(each)] == []
        only = {each for each in every if unseen_in(each) and not control_in(each)}
        assert only > set("\u180b\u200c\u200d\u2800\ufe0f\u0600\ud800")
        assert {unicodedata.category(each) for each in only} <= {"Cf", "Cs", "Mn", "So"}

    @pytest.mark.parametrize(
        "name", ["orders", "Größe", "日本", "with space", "👩‍🚀", "می‌خواهم", "a/b:c"]
    )
    def test_no_other(self, name):
        """Finding 1: names of people and things in any language stay valid."""
        assert check.name(name, "queue") == name == visible(name)
        assert control_in(name) == ""


class TestStored:
    async def test_names_remain_usable(self, client):
        """Finding 1: what is stored can be read and ended, whatever its name is."""
        with older_names():
            odd = Flow(ESCAPE).then(echo).wait_for_signal("go").build()
            await client.submit(odd, 1, id=ESCAPE)
            lone = await client.enqueue(echo.options(queue=ESCAPE, group=ESCAPE), 1)
            await client.schedules.save(ESCAPE, echo, every="1h", args=[1])
            await client.queues.pause(ESCAPE)

        assert (await client.runs.get(ESCAPE)).flow == ESCAPE
        assert len((await client.runs.list(flow=ESCAPE)).items) == 1
        assert (await client.runs.events(ESCAPE)).items[0].type == "run_submitted"
        assert (await client.runs.explain(ESCAPE)).run == ESCAPE
        assert [job.id for job in await client.jobs.list(group=ESCAPE, queue=ESCAPE)] == [lone.id]
        assert (await client.schedules.get(ESCAPE)).name == ESCAPE
        await client.runs.cancel(ESCAPE)
        await client.schedules.pause(ESCAPE)
        await client.schedules.delete(ESCAPE)
        await client.queues.resume(ESCAPE)
        assert (await client.jobs.cancel_group(ESCAPE)).cancelled == 1
