"""Export and import of all rows (capability ``transfer``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from perdure.clock import ManualClock
from perdure.errors import StoreNotEmpty
from perdure.model.job import JobFilter, Status
from perdure.store.contract import Store, TransferStore
from perdure.store.contract.transfer import ROW_TYPES, JobRow, RunRow, TransferRow
from perdure.testing.contract.builders import (
    LEASE,
    MINUTE,
    NAMESPACE,
    claim_ids,
    claim_new,
    commit_next,
    failure,
    insert,
    insert_in_status,
    job_record,
    node_job,
    read_job,
    read_schedule,
    run_record,
    save_schedule,
    submit,
    timer,
)


async def exported(transfer: TransferStore) -> list[TransferRow]:
    async with transfer.export_rows() as dump:
        return [row async for batch in dump.batches() for row in batch]


async def batches_of(rows: Sequence[TransferRow]) -> AsyncIterator[Sequence[TransferRow]]:
    for row in rows:
        yield [row]


class TestTransferExportRows:
    async def test_gives_all_rows_in_the_order_of_their_types(
        self, store: Store, transfer: TransferStore, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job(),), waits=(timer("delay", delay=MINUTE),))
        await insert_in_status(store, Status.FAILED)
        await save_schedule(store)

        async with transfer.export_rows() as dump:
            rows = [row async for batch in dump.batches() for row in batch]
            contents = dump.contents

        types = [ROW_TYPES.index(type(row)) for row in rows]
        assert types == sorted(types)
        assert (contents.at, contents.leases_until) == (clock(), None)
        assert (contents.counts[RunRow], contents.counts[JobRow]) == (1, 2)
        assert sum(contents.counts.values()) == len(rows)

    async def test_is_one_view_that_later_writes_do_not_change(
        self, store: Store, transfer: TransferStore, second: Store
    ) -> None:
        id = await insert(store)

        async with transfer.export_rows() as dump:
            await insert(second)
            rows = [row async for batch in dump.batches() for row in batch]

        assert [row.id for row in rows if isinstance(row, JobRow)] == [id]

    async def test_requeues_claimed_jobs_under_a_new_epoch(
        self, store: Store, transfer: TransferStore, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)

        async with transfer.export_rows() as dump:
            [job] = [
                row async for batch in dump.batches() for row in batch if isinstance(row, JobRow)
            ]

        assert dump.contents.leases_until == clock() + LEASE
        assert (job.status, job.attempt, job.worker) == (Status.WAITING.value, 0, None)
        assert job.epoch == claimed.epoch + 1


class TestTransferImportRows:
    async def test_writes_everything_into_an_empty_store(
        self, store: Store, transfer: TransferStore, empty: Store
    ) -> None:
        await submit(store, jobs=(node_job(),), waits=(timer("delay", delay=MINUTE),))
        await commit_next(store)
        failed = await insert_in_status(store, Status.FAILED)
        await save_schedule(store)
        await store.admin.pause_queue(NAMESPACE, "mail", "ann")

        assert empty.transfer is not None
        await empty.transfer.import_rows(batches_of(await exported(transfer)))

        assert await run_record(empty) == await run_record(store)
        assert await job_record(empty, failed.id) == await job_record(store, failed.id)
        assert await read_schedule(empty) == await read_schedule(store)
        assert await empty.admin.paused_queues(None) == await store.admin.paused_queues(None)

    async def test_keeps_the_order_of_rows_before_later_ones(
        self, store: Store, transfer: TransferStore, empty: Store
    ) -> None:
        ids = [await insert(store) for _ in range(3)]

        assert empty.transfer is not None
        await empty.transfer.import_rows(batches_of(await exported(transfer)))
        ids.append(await insert(empty))

        assert await claim_ids(empty) == ids

    async def test_refuses_a_store_that_is_not_empty(
        self, store: Store, transfer: TransferStore
    ) -> None:
        id = await insert(store)
        rows = await exported(transfer)

        with pytest.raises(StoreNotEmpty):
            await transfer.import_rows(batches_of(rows))

        assert await store.queries.count_jobs(JobFilter()) == 1
        assert (await read_job(store, id)).status is Status.WAITING

    async def test_writes_nothing_if_reading_the_rows_fails(
        self, store: Store, transfer: TransferStore, empty: Store
    ) -> None:
        await insert(store)
        rows = await exported(transfer)

        async def torn() -> AsyncIterator[Sequence[TransferRow]]:
            yield rows
            raise ValueError(failure().message)

        assert empty.transfer is not None
        with pytest.raises(ValueError, match=failure().message):
            await empty.transfer.import_rows(torn())

        assert await empty.queries.count_jobs(JobFilter()) == 0
