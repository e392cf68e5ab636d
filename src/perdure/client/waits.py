"""What runs wait for, as a list: plain values."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.client.access import Access
from perdure.client.results import decoded
from perdure.model.ids import Key, RunId
from perdure.model.payload import Codec
from perdure.model.run import Wait, WaitFilter, WaitKind
from perdure.model.value import Value
from perdure.store.contract import Store

WAITS_PAGE_MAX = 1_000


class WaitRecord(Value):
    """One thing that a run waits for."""

    run: RunId
    namespace: str
    node: str
    key: str
    """The node, and of a loop which iteration (``poll#2``), of a map which item (``pack[7]``)."""
    kind: WaitKind
    name: str
    """The signal, the child run's id, the name of a pause, the title of an approval."""
    opened_at: datetime
    due_at: datetime | None
    """When it ends by itself; None: never."""
    deciders: tuple[str, ...] = ()
    detail: Any = None
    """What whoever is waited for needs to know, as plain values."""


async def list_waits(access: Access, wanted: WaitFilter, limit: int) -> list[WaitRecord]:
    store = await access.store.opened()
    return [
        wait_record(wait, access.codec) for wait in await store.queries.list_waits(wanted, limit)
    ]


async def pages_of(store: Store, wanted: WaitFilter, size: int) -> AsyncGenerator[list[Wait], None]:
    """All matching waits, the longest open first, a page at a time."""
    while True:
        page = await store.queries.list_waits(wanted, size)
        if page:
            yield page
        if len(page) < size:
            return
        wanted = replace(wanted, after=place_of(page[-1]))


def place_of(wait: Wait | WaitRecord) -> tuple[datetime, RunId, str]:
    """By which the next page follows on."""
    return wait.opened_at, wait.run, wait.key


def wait_record(wait: Wait, codec: Codec) -> WaitRecord:
    return WaitRecord(
        run=wait.run,
        namespace=wait.namespace,
        node=Key.parse(wait.key).node,
        key=wait.key,
        kind=wait.kind,
        name=wait.name,
        opened_at=wait.opened_at,
        due_at=wait.due_at,
        deciders=wait.deciders,
        detail=decoded(wait.detail, codec) if wait.detail else None,
    )
