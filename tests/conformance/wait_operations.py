"""Random waits and lists of them, for the random operations on runs."""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from perdure.model.ids import RunId
from perdure.model.run import NewWait, WaitFilter, WaitType
from perdure.store.contract import Store
from tests.conformance.builders import SECOND
from tests.conformance.scene import NAMESPACES, Do, Scene

NAMES = ("paid", "sent")
DECIDERS: tuple[tuple[str, ...], ...] = ((), ("ann",), ("bob", "ann"), ('{"a\\b",}', "ann"))


def page_waits(scene: Scene, filter: WaitFilter, limit: int) -> Do:
    async def page(store: Store) -> list[Any]:
        """Keys, so that their order counts; in one namespace, where no two are alike."""
        found: list[Any] = []
        wanted = replace(filter, namespace=filter.namespace or NAMESPACES[0])
        while waits := await store.queries.list_waits(wanted, limit):
            found += [[wait.run, wait.key] for wait in waits]
            last = waits[-1]
            wanted = replace(wanted, after=(last.opened_at, last.run, last.key))
        return found

    return page


def drawn_wait(random: Random, key: str) -> tuple[NewWait, int | None]:
    """What is waited for, and in how many seconds it is due, if that is to be said as a time."""
    found_type = random.choice(
        [found_type for found_type in WaitType if found_type is not WaitType.CHILD]
    )
    seconds = random.choice([None, 0, 10, 30])
    wait = NewWait(
        key=key,
        type=found_type,
        name=random.choice(NAMES),
        delay=None if seconds is None else seconds * SECOND,
        deciders=random.choice(DECIDERS),
        detail=random.choice([b"", b"\x00\xff", b'{"form":{}}']),
    )
    return wait, random.choice([None, None, None, -5, 20])


def drawn_filter(random: Random) -> WaitFilter:
    return WaitFilter(
        namespace=random.choice([None, *NAMESPACES]),
        run=random.choice([None, None, None, *RunId("run-0"), RunId("run-1")]),
        type=random.choice([None, *WaitType]),
        name=random.choice([None, None, *NAMES]),
        deciders=random.choice([None, None, *DECIDERS]),
    )
