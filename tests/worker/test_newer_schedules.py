"""Schedules that a newer version wrote: left to its workers, shown as such, blocking no others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from perdure import AsyncClient, ScheduleRecord, ScheduleUnreadable, UnreadableSchedule
from perdure.cli.views.schedules import schedule_columns
from perdure.clock import ManualClock
from perdure.errors import ScheduleNotFound
from perdure.model.schedule import (
    Schedule,
    ScheduleCommit,
    ScheduleDefinition,
    ScheduleState,
    decode_schedule,
    encode_definition,
    encode_state,
)
from perdure.model.worker import PollResult
from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.testing.contract.builders import HOUR, START, new_schedule
from perdure.worker.due_work import DueSchedules, DueWork
from tests.client.flows import ordering
from tests.support.refusal import refused
from tests.worker.ticking import NAMESPACE, ids_of_runs, ticking_at


class NewerDefinition(ScheduleDefinition, omit_defaults=True):
    jitter_ms: int = 0


class NewerState(ScheduleState, omit_defaults=True):
    jittered_at: str = ""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture(params=["sqlite", "postgres"])
async def store(
    request: pytest.FixtureRequest, sqlite_url: str, postgres_url: str, clock: ManualClock
) -> AsyncIterator[Store]:
    """What programs of several versions can share."""
    urls = {"sqlite": sqlite_url, "postgres": postgres_url}
    store = store_at(urls[request.param], clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def client(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, flows=[ordering]) as client:
        yield client


def newer(name: str, **state: Any) -> Schedule:
    made = new_schedule(name, **state)
    definition = NewerDefinition(**fields(made.definition), jitter_ms=5)
    return replace(made, namespace=NAMESPACE, definition=definition)


def fields(value: Any) -> dict[str, Any]:
    return asdict(value)


async def save(store: Store, new_schedule: Schedule) -> None:
    answer = await store.schedules.commit(ScheduleCommit(schedule=new_schedule, expected=None))
    assert answer.state == "done"


class TestReading:
    def test_refuses_what_it_does_not_know(self):
        made = new_schedule("a")
        definition, state = encode_definition(made.definition), encode_state(made.state)
        newer_state = NewerState(**fields(made.state), jittered_at="x")
        odd = [
            (encode_definition(newer("a").definition), state),
            (definition.replace(b'"queue"', b'"merge"'), state),
            (definition.replace(b'"type":"flow"', b'"type":"agent"'), state),
            (definition.replace(b'"cron"', b'"moon"'), state),
            (definition, encode_state(newer_state)),
            (definition, state.replace(b'"skipped"', b'"put off"')),
            (b"no JSON", state),
            (definition, b'{"\xff": 1}'),
        ]

        assert decode_schedule(NAMESPACE, "a", 1, definition, state) == replace(
            made, namespace=NAMESPACE, revision=1
        )
        for each in odd:
            assert each != (definition, state)
            with refused("schedule.unreadable", ScheduleUnreadable):
                decode_schedule(NAMESPACE, "a", 1, *each)


class TestDue:
    async def test_returns_the_others_however_many_precede_them(self, store, client, clock):
        for number in range(5):
            await save(store, newer(f"newer-{number}", due_at=START + number * HOUR / 10))
        for name in ("one", "two"):
            await client.schedules.save(name, ordering, every="1h", input=1)
        clock.advance(2 * HOUR)

        assert [each.name for each in await store.maintenance.due_schedules(NAMESPACE, 1)] in (
            ["one"],
            ["two"],
        )
        for limit in (2, 3, 100):
            due = await store.maintenance.due_schedules(NAMESPACE, limit)
            assert sorted(each.name for each in due) == ["one", "two"]

    async def test_lets_the_others_tick_and_logs_it_once(self, store, client, clock, caplog):
        await save(store, newer("newer", due_at=START))
        await save(store, newer("newer too", due_at=START + 9 * HOUR))
        await client.schedules.save("nightly", ordering, every="1h", input=1)
        work = DueSchedules(store, ticking_at(store), NAMESPACE)
        caplog.set_level(logging.ERROR, "perdure.worker")
        clock.advance(HOUR)

        found = [await work.process_due() for _ in range(3)]

        assert await ids_of_runs(client) == ["nightly@2030-01-01T01:00:00Z"]
        assert found == [True, False, False]
        assert (work.is_backing_off("newer"), work.is_backing_off("newer too")) == (True, False)
        assert [(record.msg, record.fields["schedule"]) for record in caplog.records] == [
            ("schedule unreadable", "newer"),
            ("schedule unreadable", "newer too"),
        ]


class TestClients:
    async def test_see_it_in_its_place_with_the_reason(self, store, client, clock):
        await save(store, newer("b", due_at=START + HOUR))
        for name in ("c", "a"):
            await client.schedules.save(name, ordering, every="1h", input=1)

        found = await client.schedules.list()

        assert [each.name for each in found] == ["a", "b", "c"]
        assert isinstance(found[0], ScheduleRecord)
        assert isinstance(found[1], UnreadableSchedule)
        assert "jitter_ms" in found[1].reason
        assert found[1].due_at == START + HOUR

        columns = schedule_columns(found, START, is_across=False)
        cells = {column.title: column.cells for column in columns}
        assert cells["STATUS"] == ["active", "unreadable", "active"]
        assert cells["NEXT"][1] == cells["NEXT"][0]

    async def test_are_reported_when_they_act_on_it_and_change_nothing(self, store, client):
        await save(store, newer("b", due_at=START + HOUR))
        [before] = await client.schedules.list()
        acts: list[Callable[[], Awaitable[object]]] = [
            lambda: client.schedules.save("b", ordering, every="1h", input=1),
            lambda: client.schedules.get("b"),
            lambda: client.schedules.pause("b"),
            lambda: client.schedules.resume("b"),
            lambda: client.schedules.trigger("b"),
        ]

        for act in acts:
            with refused("schedule.unreadable", ScheduleUnreadable):
                await act()

        assert list(await client.schedules.list()) == [before]
        assert await ids_of_runs(client) == []

    async def test_can_delete_it(self, store, client):
        await save(store, newer("b"))
        await client.schedules.delete("b")
        assert list(await client.schedules.list()) == []
        with pytest.raises(ScheduleNotFound):
            await client.schedules.get("b")

    async def test_find_its_name_near_one_that_is_not_there(self, store, client):
        await save(store, newer("nightly"))
        with refused("schedule.not_found", ScheduleNotFound):
            await client.schedules.get("nightl")


class Idle(DueWork):
    """Has nothing to do; ``backs_off`` says whether something that is due backs off."""

    name = "nothing"

    def __init__(self, *, backs_off: bool) -> None:
        super().__init__()
        self._backs_off = backs_off

    def due_at(self, poll: PollResult) -> None:
        return None

    async def process_due(self) -> bool:
        if self._backs_off:
            self.back_off("it")
        return False


@pytest.mark.parametrize("backs_off, polls", [(True, 0), (False, 1)])
async def test_what_backs_off_causes_no_poll_at_once(backs_off, polls):
    """Else a worker would do nothing but poll for as long as it is due."""
    work, polled = Idle(backs_off=backs_off), []
    work.process(lambda: polled.append("poll"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(polled) == polls
    assert work.pause_seconds == float(backs_off)
