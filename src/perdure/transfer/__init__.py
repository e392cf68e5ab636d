"""Export a whole store to a file, and import it into another store, where its work continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, StoreInUse
from perdure.model import worker
from perdure.model.job import Status
from perdure.model.run import RunStatus, WaitType
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.store.contract.transfer import (
    Contents,
    JobRow,
    RunRow,
    TransferRow,
    TransferStore,
    WaitRow,
)
from perdure.store.opening import store_at
from perdure.transfer.file import LINE_MAX_BYTES, ExportFile, written
from perdure.transfer.format import FORMAT, SCHEMA, Header, name_of

NOT_MOVABLE = declare(
    "store.not_movable",
    "store {url!r} is in the memory of one process and cannot be moved",
    "Only SQLite and PostgreSQL stores can be",
)


TITLES_ENCODED = 6
"""The first schema whose waits do not have the titles of approvals as their names."""
RUNS_QUEUED = 7
"""The first schema with runs that have not started."""
DISABLED_DATED = 13
"""The first schema that says since when jobs are disabled."""

Progress = Callable[[int, int], None]
"""Called with the number of finished rows and the total."""


class Transferred(Value):
    """The result of an export or import."""

    counts: dict[str, int]
    """Rows by type."""
    exported_at: datetime


async def export_store(
    place: str | Store,
    path: Path,
    *,
    is_live: bool = False,
    on_progress: Progress = lambda done, of: None,
) -> Transferred:
    """Write the whole contents of a store, as of one moment, to a new file.

    Raises ``StoreInUse`` while workers are running on it, unless ``is_live``.
    """
    store = store_at(place)
    transfer = _transfer_of(store)
    await store.open()
    try:
        async with transfer.export_rows() as dump:
            if not is_live:
                await _check_idle(store, dump.contents)
            counts = dump.contents.counts.items()
            header = Header(
                format=FORMAT,
                schema=SCHEMA,
                perdure=version("perdure"),
                store=urlsplit(store.url).scheme,
                exported_at=dump.contents.at,
                counts={name_of(row_type): count for row_type, count in counts if count},
            )
            total, done = sum(header.counts.values()), 0
            with written(path) as writer:
                writer.begin(header)
                async for batch in dump.batches():
                    writer.add(batch)
                    done += len(batch)
                    on_progress(done, total)
    finally:
        await store.close()
    return Transferred(counts=dict(header.counts), exported_at=header.exported_at)


async def import_store(
    place: str | Store,
    path: Path,
    *,
    line_max_bytes: int = LINE_MAX_BYTES,
    on_progress: Progress = lambda done, of: None,
) -> Transferred:
    """Import an export into an empty store, in one transaction.

    Reads line by line; a row may have ``line_max_bytes``, decompressed. The whole file is read
    first: an incomplete one is refused before the store is opened. Raises ``InvalidExport`` and
    ``StoreNotEmpty``, with nothing written.
    """
    file = ExportFile(path, line_max_bytes)
    header = await asyncio.to_thread(file.verified)
    total = sum(header.counts.values())

    async def batches() -> AsyncIterator[Sequence[TransferRow]]:
        done = 0
        found = file.batches()
        while batch := await asyncio.to_thread(next, found, None):
            yield _current(batch, header) if header.schema < SCHEMA else batch
            done += len(batch)
            on_progress(done, total)

    store = store_at(place)
    transfer = _transfer_of(store)
    await store.open()
    try:
        await transfer.import_rows(batches())
    finally:
        await store.close()
    return Transferred(counts=dict(header.counts), exported_at=header.exported_at)


def _current(batch: Sequence[TransferRow], header: Header) -> Sequence[TransferRow]:
    """Rows of an earlier schema, as the migrations since would have changed them."""
    return [_migrated(row, header.schema, header.exported_at) for row in batch]


def _migrated(row: TransferRow, schema: int, exported_at: datetime) -> TransferRow:
    if isinstance(row, WaitRow) and row.type == WaitType.APPROVAL and schema < TITLES_ENCODED:
        return replace(row, name="")  # details have the title, encoded
    if isinstance(row, RunRow) and row.status != RunStatus.SKIPPED and schema < RUNS_QUEUED:
        return replace(row, started_at=row.created_at)
    if isinstance(row, JobRow) and row.status == Status.DISABLED and schema < DISABLED_DATED:
        return replace(row, disabled_at=exported_at)
    return row


def _transfer_of(store: Store) -> TransferStore:
    if store.transfer is None:
        raise InvalidInput(NOT_MOVABLE.fault(url=store.url))
    return store.transfer


async def _check_idle(store: Store, contents: Contents) -> None:
    workers = [
        each.info.id
        for each in await store.queries.workers(None)
        if worker.is_live(each, contents.at)
    ]
    if workers:
        live = f"and {len(workers) - 1} more are live" if len(workers) > 1 else "is live"
        raise StoreInUse(url=store.url, reason=f"worker {workers[0]!r} {live}")
    if contents.leases_until is not None and contents.leases_until > contents.at:
        seconds = (contents.leases_until - contents.at).total_seconds()
        raise StoreInUse(
            url=store.url, reason=f"jobs are held under leases for another {seconds:.0f} s"
        )
