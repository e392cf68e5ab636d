"""Schedules: each tick counts once, whichever worker comes first. Cooldowns."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.model.hint import HintType
from perdure.model.job import JobFilter
from perdure.model.run import RunFilter, RunStatus
from perdure.model.schedule import ScheduleCommit, ScheduleCommitState
from perdure.store.contract import Store
from perdure.testing.contract.builders import (
    COMPLETED,
    FAILED,
    HOUR,
    NAME,
    NAMESPACE,
    OTHER_NAMESPACE,
    START,
    TICK,
    advanced,
    claim_nodes,
    commit,
    commit_tick,
    cooling_run,
    new_job,
    new_run,
    new_schedule,
    read_run,
    read_schedule,
    save_schedule,
    submit,
)
from perdure.testing.contract.handles import Listener

DONE = ScheduleCommitState.DONE
CONFLICT = ScheduleCommitState.CONFLICT
TAKEN = ScheduleCommitState.TAKEN


async def runs_in(store: Store) -> list[str]:
    return sorted(run.id for run in await store.queries.list_runs(RunFilter(), 100))


class TestSchedulesCommit:
    async def test_keeps_everything_of_a_new_one(self, store: Store, second: Store) -> None:
        new = await save_schedule(store)

        assert await read_schedule(second) == new

    async def test_refuses_a_new_one_whose_name_is_taken(self, store: Store) -> None:
        first = await save_schedule(store)
        answer = await store.schedules.commit(
            ScheduleCommit(schedule=new_schedule(), expected=None)
        )

        assert answer.state is CONFLICT
        assert await read_schedule(store) == first

    async def test_lets_another_namespace_have_the_name(self, store: Store) -> None:
        first = await save_schedule(store)
        other = await save_schedule(store, namespace=OTHER_NAMESPACE)

        assert await read_schedule(store) == first
        assert await read_schedule(store, namespace=OTHER_NAMESPACE) == other

    async def test_refuses_a_change_of_one_that_is_gone(self, store: Store) -> None:
        first = await save_schedule(store)
        await store.schedules.delete(NAMESPACE, NAME)

        assert (await commit_tick(store, first)).state is CONFLICT
        assert await runs_in(store) == []

    async def test_replaces_it_as_a_whole(self, store: Store) -> None:
        first = await save_schedule(store)
        other = advanced(first, due_at=None, queued=(), paused_at=START, paused_by="ann")
        answer = await store.schedules.commit(
            ScheduleCommit(schedule=other, expected=first.revision)
        )

        assert answer.state is DONE
        assert await read_schedule(store) == other

    async def test_starts_a_run_with_its_jobs(self, store: Store) -> None:
        answer = await commit_tick(store, await save_schedule(store))

        assert answer.state is DONE
        assert answer.submitted is not None
        assert answer.submitted.is_new
        assert answer.submitted.run == await read_run(store, TICK)
        [job] = await claim_nodes(store)
        assert job.node is not None
        assert job.node.run == TICK

    async def test_starts_a_job(self, store: Store) -> None:
        job = new_job(namespace=NAMESPACE)
        answer = await commit_tick(store, await save_schedule(store), run=None, job=job)

        assert answer.inserted is not None
        assert answer.inserted.id == job.id
        [kept] = await store.queries.list_jobs(JobFilter(namespace=NAMESPACE), 10)
        assert kept.id == job.id

    async def test_starts_nothing_on_a_revision_that_is_not_current(self, store: Store) -> None:
        first = await save_schedule(store)
        await commit_tick(store, first)
        late = new_run(id="nightly@late")

        answer = await commit_tick(store, first, run=late, job=new_job(namespace=NAMESPACE))

        assert answer.state is CONFLICT
        assert await runs_in(store) == [TICK]
        assert (
            await store.queries.count_jobs(JobFilter(namespace=NAMESPACE)) == 1
        )  # that of the run

    async def test_changes_nothing_when_the_id_of_the_run_is_taken(self, store: Store) -> None:
        before = await submit(store, id=TICK)
        first = await save_schedule(store)

        assert (await commit_tick(store, first)).state is TAKEN
        assert await read_schedule(store) == first
        assert await read_run(store, TICK) == before
        assert await claim_nodes(store) == []

    async def test_makes_nothing_when_the_id_of_its_first_run_is_taken(self, store: Store) -> None:
        await submit(store, id=TICK)
        new = ScheduleCommit(schedule=new_schedule(), expected=None, run=new_run(id=TICK))

        assert (await store.schedules.commit(new)).state is TAKEN
        assert await store.schedules.list(NAMESPACE, NAME) == []

    async def test_starts_one_run_however_many_try_at_once(self, store: Store) -> None:
        clones = [store.clone() for _ in range(4)]
        for each in clones:
            await each.open()
        first = await save_schedule(store)

        answers = await asyncio.gather(
            *(
                commit_tick(each, first, run=new_run(id=f"tick-{n}"))
                for n, each in enumerate(clones * 3)
            )
        )

        assert [answer.state for answer in answers].count(DONE) == 1
        assert len(await runs_in(store)) == 1
        for each in clones:
            await each.close()

    async def test_makes_one_schedule_however_many_try_at_once(
        self, store: Store, second: Store
    ) -> None:
        new = [ScheduleCommit(schedule=new_schedule(), expected=None) for _ in range(6)]
        answers = await asyncio.gather(
            *((store, second)[n % 2].schedules.commit(each) for n, each in enumerate(new))
        )

        [done] = [n for n, answer in enumerate(answers) if answer.state is DONE]
        assert await read_schedule(store) == new[done].schedule

    async def test_writes_the_other_state_when_the_run_is_skipped(self, store: Store) -> None:
        await store.runs.submit(cooling_run())
        first = await save_schedule(store)
        other = advanced(first, skipped=99)

        answer = await commit_tick(store, first, run=cooling_run(id=TICK), if_skipped=other)

        assert answer.submitted is not None
        assert answer.submitted.run.status is RunStatus.SKIPPED
        assert await read_schedule(store) == other

    async def test_wakes_workers(self, store: Store, second: Store) -> None:
        listener = Listener(second)
        await save_schedule(store)

        await listener.receives(HintType.DUE)

    async def test_runs_of_other_namespaces_are_not_in_the_way(self, store: Store) -> None:
        await submit(store, id=TICK, namespace=OTHER_NAMESPACE)

        assert (await commit_tick(store, await save_schedule(store))).state is DONE


class TestSchedulesList:
    async def test_of_one_name_has_no_other(self, store: Store) -> None:
        saved = await save_schedule(store)
        await save_schedule(store, "other")
        theirs = await save_schedule(store, namespace=OTHER_NAMESPACE)

        assert await store.schedules.list(NAMESPACE, NAME) == [saved]
        assert await store.schedules.list(None, NAME) == [saved, theirs]
        assert await store.schedules.list(NAMESPACE, "nightly ") == []

    async def test_has_those_of_a_namespace_by_name(self, store: Store) -> None:
        for name in ("b", "Z", "a", "ä"):
            await save_schedule(store, name)
        await save_schedule(store, "other", namespace=OTHER_NAMESPACE)

        found = await store.schedules.list(NAMESPACE)
        assert [each.name for each in found] == ["Z", "a", "b", "ä"]

    async def test_has_all_of_them_for_an_operator(self, store: Store) -> None:
        await save_schedule(store, "a", namespace=OTHER_NAMESPACE)
        await save_schedule(store, "b")

        found = await store.schedules.list(None)
        assert [(each.namespace, each.name) for each in found] == [
            (NAMESPACE, "b"),
            (OTHER_NAMESPACE, "a"),
        ]


class TestMaintenanceDueSchedules:
    async def test_has_those_whose_time_has_come_earliest_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        await save_schedule(store, "second", due_at=START + 2 * HOUR)
        await save_schedule(store, "first", due_at=START + HOUR)
        await save_schedule(store, "third", due_at=START + 3 * HOUR)
        await save_schedule(store, "never", due_at=None)
        await save_schedule(store, "other", namespace=OTHER_NAMESPACE, due_at=START)

        assert await store.maintenance.due_schedules(NAMESPACE, 10) == []
        clock.advance(2 * HOUR)
        due = await store.maintenance.due_schedules(NAMESPACE, 10)
        assert [each.name for each in due] == ["first", "second"]
        assert [each.name for each in await store.maintenance.due_schedules(NAMESPACE, 1)] == [
            "first"
        ]

    async def test_is_announced_by_the_poll(self, store: Store) -> None:
        assert (await store.maintenance.poll(NAMESPACE)).next_tick_at is None
        await save_schedule(store, "later", due_at=START + 2 * HOUR)
        await save_schedule(store, "sooner", due_at=START + HOUR)
        await save_schedule(store, "other", namespace=OTHER_NAMESPACE, due_at=START)

        assert (await store.maintenance.poll(NAMESPACE)).next_tick_at == START + HOUR

    async def test_omits_one_that_was_advanced(self, store: Store, clock: ManualClock) -> None:
        first = await save_schedule(store)
        clock.advance(HOUR)
        await commit_tick(store, first)

        assert await store.maintenance.due_schedules(NAMESPACE, 10) == []
        assert (await store.maintenance.poll(NAMESPACE)).next_tick_at == START + 2 * HOUR


class TestSchedulesDelete:
    async def test_removes_it_and_leaves_what_it_started(self, store: Store) -> None:
        await commit_tick(store, await save_schedule(store))

        assert await store.schedules.delete(NAMESPACE, NAME)
        assert await store.schedules.list(NAMESPACE, NAME) == []
        assert (await read_run(store, TICK)).status is RunStatus.RUNNING
        assert (await store.maintenance.poll(NAMESPACE)).next_tick_at is None

    async def test_says_so_if_there_is_none(self, store: Store) -> None:
        await save_schedule(store, namespace=OTHER_NAMESPACE)

        assert not await store.schedules.delete(NAMESPACE, NAME)
        await read_schedule(store, namespace=OTHER_NAMESPACE)


class TestCooldown:
    """Of ``runs.submit``."""

    async def test_the_first_run_starts(self, store: Store) -> None:
        submitted = await store.runs.submit(cooling_run())

        assert submitted.run.status is RunStatus.RUNNING
        assert len(await claim_nodes(store)) == 1

    async def test_a_run_within_it_is_skipped_and_starts_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        first = await store.runs.submit(cooling_run())
        clock.advance(HOUR / 2)
        second = await store.runs.submit(cooling_run())

        assert second.is_new
        assert second.run.status is RunStatus.SKIPPED
        assert second.run.finished_at == START + HOUR / 2
        assert second.run.number == 2
        assert first.run.id.encode() in second.run.summary
        assert await store.queries.run_jobs(NAMESPACE, second.run.id) == []
        assert (await read_run(store, second.run.id)) == second.run

    async def test_a_run_after_it_starts(self, store: Store, clock: ManualClock) -> None:
        await store.runs.submit(cooling_run())
        clock.advance(HOUR)

        assert (await store.runs.submit(cooling_run())).run.status is RunStatus.RUNNING

    async def test_counts_from_the_end_of_a_completed_run(
        self, store: Store, clock: ManualClock
    ) -> None:
        first = await store.runs.submit(cooling_run(jobs=()))
        clock.advance(2 * HOUR)
        await commit(store, run=first.run.id, status=COMPLETED)
        clock.advance(HOUR / 2)

        second = await store.runs.submit(cooling_run())
        assert second.run.status is RunStatus.SKIPPED
        assert f"'{first.run.id}' was completed".encode() in second.run.summary
        clock.advance(HOUR / 2)
        assert (await store.runs.submit(cooling_run())).run.status is RunStatus.RUNNING

    async def test_counts_from_the_run_that_completed_last(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.runs.submit(cooling_run(status=COMPLETED, jobs=()))
        clock.advance(HOUR)
        last = await store.runs.submit(cooling_run(jobs=()))
        clock.advance(2 * HOUR)
        await commit(store, run=last.run.id, status=COMPLETED)
        clock.advance(HOUR / 2)

        skipped = await store.runs.submit(cooling_run())

        assert skipped.run.status is RunStatus.SKIPPED
        assert f"'{last.run.id}' was completed".encode() in skipped.run.summary

    async def test_a_failed_run_counts_from_its_beginning(
        self, store: Store, clock: ManualClock
    ) -> None:
        first = await store.runs.submit(cooling_run(jobs=()))
        clock.advance(HOUR)
        await commit(store, run=first.run.id, status=FAILED)

        assert (await store.runs.submit(cooling_run())).run.status is RunStatus.RUNNING

    async def test_a_skipped_run_does_not_restart_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.runs.submit(cooling_run())
        clock.advance(HOUR / 2)
        await store.runs.submit(cooling_run())
        clock.advance(HOUR / 2)

        assert (await store.runs.submit(cooling_run())).run.status is RunStatus.RUNNING

    async def test_other_flows_and_namespaces_do_not_count(self, store: Store) -> None:
        await store.runs.submit(cooling_run())
        other_flow = await store.runs.submit(cooling_run(flow="billing"))
        elsewhere = cooling_run(namespace=OTHER_NAMESPACE, jobs=())

        assert other_flow.run.status is RunStatus.RUNNING
        assert (await store.runs.submit(elsewhere)).run.status is RunStatus.RUNNING

    async def test_an_id_that_is_taken_says_more(self, store: Store) -> None:
        first = await store.runs.submit(cooling_run())
        again = cooling_run(id=first.run.id, on_existing="use_existing")

        answer = await store.runs.submit(again)
        assert not answer.is_new
        assert answer.run == first.run

    async def test_of_many_at_once_one_starts(self, store: Store) -> None:
        clones = [store.clone() for _ in range(3)]
        for each in clones:
            await each.open()

        submitted = await asyncio.gather(*(each.runs.submit(cooling_run()) for each in clones * 5))

        statuses = [each.run.status for each in submitted]
        assert statuses.count(RunStatus.RUNNING) == 1
        assert statuses.count(RunStatus.SKIPPED) == len(statuses) - 1
        for each in clones:
            await each.close()

    async def test_skipped_runs_are_listed_and_pruned(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.runs.submit(cooling_run())
        skipped = await store.runs.submit(cooling_run())
        wanted = RunFilter(namespace=NAMESPACE, status=RunStatus.SKIPPED)

        assert await store.queries.list_runs(wanted, 10) == [skipped.run]
        clock.advance(HOUR)
        assert await store.maintenance.prune_runs(NAMESPACE, {RunStatus.SKIPPED: HOUR}, 10) == 1
        assert await store.queries.count_runs(wanted) == 0

    async def test_a_child_does_not_count(self, store: Store) -> None:
        parent = new_run(children=(replace(cooling_run(id="child"), cooldown=None),))
        await store.runs.submit(parent)

        assert (await store.runs.submit(cooling_run())).run.status is RunStatus.RUNNING
