"""A whole store in one file, and from the file into another store, where its work continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, StoreInUse
from perdure.model import worker
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.store.contract.transfer import Contents, TransferRow, TransferStore
from perdure.store.opening import store_at
from perdure.transfer.file import ExportFile, written
from perdure.transfer.format import FORMAT, SCHEMA, Header, name_of

NOT_MOVABLE = declare(
    "store.not_movable",
    "store {url!r} is in the memory of one process and cannot be moved",
    "Only SQLite and PostgreSQL stores can be",
)


Progress = Callable[[int, int], None]
"""Told how many rows are done, of how many."""


class Transferred(Value):
    """What was moved."""

    counts: dict[str, int]
    """Rows by kind."""
    exported_at: datetime


async def export_store(
    place: str | Store, path: Path, *, is_live: bool = False, tell: Progress = lambda done, of: None
) -> Transferred:
    """Write all that a store keeps into a new file, as of one moment.

    Raises ``StoreInUse`` while workers are at work there, unless ``is_live``.
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
                    tell(done, total)
    finally:
        await store.close()
    return Transferred(counts=dict(header.counts), exported_at=header.exported_at)


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

    async def batches() -> AsyncIterator[Sequence[TransferRow]]:
        done = 0
        found = file.batches()
        while batch := await asyncio.to_thread(next, found, None):
            yield batch
            done += len(batch)
            tell(done, total)

    store = store_at(place)
    transfer = _transfer_of(store)
    await store.open()
    try:
        await transfer.import_rows(batches())
    finally:
        await store.close()
    return Transferred(counts=dict(header.counts), exported_at=header.exported_at)


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
    if contents.held_until is not None and contents.held_until > contents.at:
        seconds = (contents.held_until - contents.at).total_seconds()
        raise StoreInUse(
            url=store.url, reason=f"jobs are held under leases for another {seconds:.0f} s"
        )
