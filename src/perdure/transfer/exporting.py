"""From a store into a file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, StoreInUse
from perdure.model import worker
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.store.contract.transfer import Contents, TransferStore
from perdure.store.opening import store_at
from perdure.transfer.file import written
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
    transfer = transfer_of(store)
    await store.open()
    try:
        async with transfer.export_rows() as dump:
            if not is_live:
                await _check_idle(store, dump.contents)
            header = _header_of(store, dump.contents)
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


def transfer_of(store: Store) -> TransferStore:
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


def _header_of(store: Store, contents: Contents) -> Header:
    return Header(
        format=FORMAT,
        schema=SCHEMA,
        perdure=version("perdure"),
        store=urlsplit(store.url).scheme,
        exported_at=contents.at,
        counts={name_of(kind): count for kind, count in contents.counts.items() if count},
    )
