"""From a file into a store that keeps nothing yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from perdure.store.contract import Store
from perdure.store.contract.transfer import TransferRow
from perdure.store.opening import store_at
from perdure.transfer.exporting import Progress, Transferred, transfer_of
from perdure.transfer.file import ExportFile


async def import_store(
    place: str | Store, path: Path, *, tell: Progress = lambda done, of: None
) -> Transferred:
    """Write all of an export into an empty store, in one transaction.

    The file is read to its end first: one that is not whole is refused before the store is opened.
    Raises ``InvalidExport`` and ``StoreNotEmpty``, with nothing written.
    """
    file = ExportFile(path)
    header = await asyncio.to_thread(file.verified)
    total = sum(header.counts.values())
    store = store_at(place)
    transfer = transfer_of(store)
    await store.open()
    try:
        await transfer.import_rows(_told(file, total, tell))
    finally:
        await store.close()
    return Transferred(counts=dict(header.counts), exported_at=header.exported_at)


async def _told(
    file: ExportFile, total: int, tell: Progress
) -> AsyncIterator[Sequence[TransferRow]]:
    done = 0
    batches = file.batches()
    while batch := await asyncio.to_thread(next, batches, None):
        yield batch
        done += len(batch)
        tell(done, total)
