"""Inserting jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.clock import ManualClock
from perdure.errors import FingerprintTaken, InvalidInput
from perdure.model.job import (
    FINISHED,
    Inserted,
    Job,
    JobFilter,
    NewJob,
    Progress,
    Status,
    StoredOnConflict,
)
from perdure.model.outcome import Completed
from perdure.model.partition import Partition
from perdure.store.contract import Store
from perdure.store.failures import replaced_by
from perdure.store.lifecycle import Transition
from perdure.testing.contract.builders import (
    HOUR,
    MINUTE,
    PARTITION,
    SECOND,
    claim_ids,
    claim_new,
    insert,
    insert_in_status,
    job_record,
    new_job,
    read_job,
    settle,
    status_of,
)

LIVE = sorted(set(Status) - FINISHED)


class TestJobsInsert:
    async def test_makes_a_job_waiting_when_it_is_ready_at_once(self, store: Store) -> None:
        id = await insert(store)

        assert await status_of(store, id) is Status.WAITING

    async def test_schedules_a_job_whose_delay_lies_ahead(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await read_job(store, await insert(store, delay=MINUTE))

        assert (job.status, job.ready_at) == (Status.SCHEDULED, clock() + MINUTE)

    async def test_schedules_a_job_whose_run_at_lies_ahead_whatever_its_delay(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await read_job(store, await insert(store, run_at=clock() + HOUR, delay=MINUTE))

        assert (job.status, job.ready_at) == (Status.SCHEDULED, clock() + HOUR)

    async def test_makes_a_job_waiting_when_its_run_at_has_passed(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await read_job(store, await insert(store, run_at=clock() - HOUR))

        assert (job.status, job.ready_at) == (Status.WAITING, clock() - HOUR)

    async def test_keeps_every_field(self, store: Store, clock: ManualClock) -> None:
        new = new_job(
            namespace="team-a",
            partition=Partition(queue="gpu", task="embed", tags=("a100", "fast"), keys=("user-7",)),
            priority=2,
            input=b'{"text":"hello"}',
            input_hash=2**62 + 1,
            delay=5 * SECOND,
            deadline=MINUTE,
            group="run-1",
            fingerprint="hello-v1",
            max_attempts=4,
            policy=b'{"retries":2}',
        )
        await store.jobs.insert([new])

        assert await store.queries.get_job("team-a", new.id) == Job(
            id=new.id,
            namespace="team-a",
            queue="gpu",
            task="embed",
            tags=("a100", "fast"),
            status=Status.SCHEDULED,
            priority=2,
            group="run-1",
            fingerprint="hello-v1",
            attempt=0,
            failures=0,
            snoozes=0,
            crashes=0,
            max_attempts=4,
            worker=None,
            epoch=0,
            progress=Progress(percent=0),
            created_at=clock(),
            ready_at=clock() + 5 * SECOND,
            deadline_at=clock() + MINUTE,
            started_at=None,
            finished_at=None,
            lease_until=None,
            input=b'{"text":"hello"}',
            output=None,
            limit_keys=("user-7",),
        )

    async def test_answers_in_the_order_of_the_jobs(self, store: Store) -> None:
        jobs = [new_job(priority=priority) for priority in (5, 1, 3, 2, 4)]

        answer = await store.jobs.insert(list(reversed(jobs)))

        assert answer == [Inserted(id=job.id, is_new=True) for job in reversed(jobs)]

    async def test_takes_no_jobs_and_thousands_of_them(self, store: Store) -> None:
        assert await store.jobs.insert([]) == []

        answer = await store.jobs.insert([new_job() for _ in range(3000)])

        assert len({inserted.id for inserted in answer}) == 3000
        assert await store.queries.count_jobs(JobFilter()) == 3000

    async def test_keeps_any_text_and_any_bytes_as_they_are(self, store: Store) -> None:
        text = '\'; DROP TABLE jobs; -- "%s" {x} ☃ \\ \N{PILE OF POO}'
        payload = bytes(range(256))
        partition = Partition(queue=text, task=text, tags=(text,), keys=(text,))
        id = await insert(
            store, namespace=text, partition=partition, group=text, fingerprint=text, input=payload
        )

        job = await read_job(store, id)

        assert (job.namespace, job.queue, job.task, job.tags) == (text, text, text, (text,))
        assert (job.group, job.fingerprint, job.input) == (text, text, payload)
        assert await claim_ids(store, partition, namespace=text) == [id]

    @pytest.mark.parametrize("fingerprint", [None, "once"])
    async def test_changes_nothing_when_the_same_id_comes_again(
        self, store: Store, fingerprint: str | None
    ) -> None:
        job = new_job(fingerprint=fingerprint, on_conflict="replace")
        await store.jobs.insert([job])
        await claim_ids(store)
        before = await job_record(store, job.id)

        answer = await store.jobs.insert([job, job])

        assert answer == [Inserted(id=job.id, is_new=True)] * 2
        assert await job_record(store, job.id) == before

    async def test_refuses_a_deadline_that_is_not_after_now_and_writes_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        for late in (new_job(deadline=0 * SECOND), new_job(deadline_at=clock() - SECOND)):
            good = new_job()

            with pytest.raises(InvalidInput) as caught:
                await store.jobs.insert([good, late])

            assert caught.value.code == "job.deadline_passed"
            assert await store.queries.get_job(None, good.id) is None
            assert await store.queries.get_job(None, late.id) is None

    @pytest.mark.parametrize("fingerprint", [None, "once"])
    async def test_takes_a_job_again_whose_deadline_has_passed_since(
        self, store: Store, clock: ManualClock, fingerprint: str | None
    ) -> None:
        job = new_job(fingerprint=fingerprint, deadline_at=clock() + MINUTE)
        await store.jobs.insert([job])
        before = await job_record(store, job.id)
        clock.advance(HOUR)

        assert await store.jobs.insert([job]) == [Inserted(id=job.id, is_new=True)]
        assert await job_record(store, job.id) == before

    async def test_lets_a_deadline_at_win_over_a_deadline(
        self, store: Store, clock: ManualClock
    ) -> None:
        id = await insert(store, deadline=MINUTE, deadline_at=clock() + HOUR)

        assert (await read_job(store, id)).deadline_at == clock() + HOUR


class TestInsertJobsWithAFingerprint:
    @pytest.mark.parametrize("status", LIVE)
    async def test_yields_the_live_job_that_has_it(self, store: Store, status: Status) -> None:
        live = await insert_in_status(store, status, fingerprint="once")
        before = await job_record(store, live.id)
        rival = new_job(fingerprint="once")

        answer = await store.jobs.insert([rival])

        assert answer == [Inserted(id=live.id, is_new=False)]
        assert await store.queries.get_job(None, rival.id) is None
        assert await job_record(store, live.id) == before

    @pytest.mark.parametrize("status", LIVE)
    async def test_raises_when_asked_to_and_writes_nothing(
        self, store: Store, status: Status
    ) -> None:
        live = await insert_in_status(store, status, fingerprint="once")
        other = new_job()

        with pytest.raises(FingerprintTaken) as caught:
            await store.jobs.insert([other, new_job(fingerprint="once", on_conflict="raise")])

        assert (caught.value.queue, caught.value.fingerprint) == (PARTITION.queue, "once")
        assert caught.value.job_id == live.id
        assert await store.queries.get_job(None, other.id) is None

    @pytest.mark.parametrize("status", LIVE)
    async def test_cancels_the_live_job_when_asked_to_replace_it(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        live = await insert_in_status(store, status, fingerprint="once")
        clock.advance(SECOND)

        new = await insert(store, fingerprint="once", on_conflict="replace")

        old, state, history = await job_record(store, live.id)
        assert old is not None
        assert state is not None
        assert (old.status, old.finished_at) == (Status.CANCELLED, clock())
        assert state.failure == history[-1].failure == replaced_by(new)
        assert state.failure.code == "job.replaced"
        assert await status_of(store, new) is Status.WAITING

    async def test_takes_the_claim_of_a_replaced_job_away(self, store: Store) -> None:
        claimed = await claim_new(store, fingerprint="once")
        await insert(store, fingerprint="once", on_conflict="replace")

        assert await settle(store, claimed, Completed(output=b"late")) is None

        job = await read_job(store, claimed.id)
        assert (job.status, job.epoch > claimed.epoch) == (Status.CANCELLED, True)

    @pytest.mark.parametrize("status", sorted(FINISHED))
    async def test_finds_it_free_once_its_job_is_finished(
        self, store: Store, status: Status
    ) -> None:
        finished = await insert_in_status(store, status, fingerprint="once")

        for on_conflict in ("return", "replace", "raise"):
            job = new_job(fingerprint="once", on_conflict=on_conflict)
            assert await store.jobs.insert([job]) == [Inserted(id=job.id, is_new=True)]
            await store.admin.change_jobs(Transition.ABORT, None, [job.id])

        assert await status_of(store, finished.id) is status

    async def test_knows_it_by_namespace_and_queue(self, store: Store) -> None:
        await insert(store, fingerprint="once")
        elsewhere = [
            new_job(fingerprint="once", namespace="team-b"),
            new_job(fingerprint="once", partition=Partition(queue="other", task=PARTITION.task)),
        ]
        another_task = new_job(
            fingerprint="once", partition=Partition(queue=PARTITION.queue, task="other")
        )

        assert [each.is_new for each in await store.jobs.insert(elsewhere)] == [True, True]
        assert [each.is_new for each in await store.jobs.insert([another_task])] == [False]

    async def test_yields_the_live_job_of_its_own_queue(self, store: Store) -> None:
        other = Partition(queue="other", task=PARTITION.task)
        mine = await insert(store, fingerprint="once")
        theirs = await insert(store, fingerprint="once", partition=other)

        assert await insert(store, fingerprint="once") == mine
        assert await insert(store, fingerprint="once", partition=other) == theirs

    async def test_yields_the_first_of_one_call(self, store: Store) -> None:
        first, second = new_job(fingerprint="once"), new_job(fingerprint="once")

        answer = await store.jobs.insert([first, second])

        assert answer == [
            Inserted(id=first.id, is_new=True),
            Inserted(id=first.id, is_new=False),
        ]
        assert await store.queries.count_jobs(JobFilter()) == 1

    async def test_raises_within_one_call_and_writes_nothing(self, store: Store) -> None:
        jobs = [new_job(fingerprint="once", on_conflict="raise") for _ in range(2)]

        with pytest.raises(FingerprintTaken):
            await store.jobs.insert(jobs)

        assert await store.queries.count_jobs(JobFilter()) == 0

    async def test_replaces_within_one_call(self, store: Store) -> None:
        first, second = (new_job(fingerprint="once", on_conflict="replace") for _ in range(2))

        answer = await store.jobs.insert([first, second])

        assert answer == [Inserted(id=job.id, is_new=True) for job in (first, second)]
        assert await status_of(store, first.id) is Status.CANCELLED
        assert await claim_ids(store) == [second.id]

    @pytest.mark.parametrize("on_conflict", ["return", "raise", "replace"])
    async def test_treats_jobs_of_one_call_in_their_order(
        self, store: Store, on_conflict: StoredOnConflict
    ) -> None:
        live = await insert(store, fingerprint="a")
        jobs = [
            new_job(fingerprint="a"),
            new_job(fingerprint="b", on_conflict=on_conflict),
            new_job(fingerprint="a", on_conflict="replace"),
            new_job(fingerprint="a"),
        ]

        answer = await store.jobs.insert(jobs)

        assert [each.id for each in answer] == [live, jobs[1].id, jobs[2].id, jobs[2].id]
        assert [each.is_new for each in answer] == [False, True, True, False]
        assert await status_of(store, live) is Status.CANCELLED


class TestInsertJobsAsTheyAreMade:
    async def test_takes_jobs_from_a_generator_in_their_order(self, store: Store) -> None:
        jobs = [new_job() for _ in range(4_500)]  # more than one statement of any backend

        inserted = await store.jobs.insert(job for job in jobs)

        assert [each.id for each in inserted] == [job.id for job in jobs]
        assert await store.queries.count_jobs(JobFilter()) == len(jobs)

    async def test_writes_nothing_when_making_a_job_fails(self, store: Store) -> None:
        def failing_after(count: int) -> Iterator[NewJob]:
            yield from (new_job() for _ in range(count))
            raise ValueError("this input is odd")

        for count in (0, 1, 4_500):
            with pytest.raises(ValueError, match="odd"):
                await store.jobs.insert(failing_after(count))

        assert await store.queries.count_jobs(JobFilter()) == 0

    async def test_repeated_with_ids_that_are_in_already_changes_nothing(
        self, store: Store
    ) -> None:
        jobs = [new_job() for _ in range(4_500)]
        await store.jobs.insert(jobs)

        inserted = await store.jobs.insert(jobs)

        assert [each.id for each in inserted] == [job.id for job in jobs]
        assert await store.queries.count_jobs(JobFilter()) == len(jobs)
