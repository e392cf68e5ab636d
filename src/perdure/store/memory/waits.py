"""What runs wait for, as it is read: what is due, and what others are to see to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from perdure.model.ids import RunId
from perdure.model.run import Wait, WaitFilter, WaitKind
from perdure.store.memory.run_records import RunRecords
from perdure.store.memory.stored_run import StoredWait
from perdure.store.memory.transaction import Handle


class MemoryWaits(Handle):
    async def due_waits(self, namespace: str, limit: int) -> list[Wait]:
        with self._transaction() as transaction:
            records = transaction.state.records
            due = records.due.up_to(transaction.now, limit, namespace)
            return [records.waits[place, run][key].as_wait() for place, run, key in due]

    async def run_waits(self, namespace: str, run: RunId) -> list[Wait]:
        with self._transaction() as transaction:
            waits = transaction.state.records.waits_of((namespace, run))
            return [wait.as_wait() for wait in sorted(waits, key=lambda wait: wait.key)]

    async def list_waits(self, filter: WaitFilter, limit: int) -> list[Wait]:
        with self._transaction() as transaction:
            found = _oldest_first(transaction.state.records, filter)
            page = islice((wait for wait in found if _matches(wait, filter)), limit)
            return [wait.as_wait() for wait in page]


def _oldest_first(records: RunRecords, filter: WaitFilter) -> Iterator[StoredWait]:
    """Waits in the order of a list, as few as a view of them allows."""
    if filter.run is None and filter.kind in (WaitKind.OUTSIDE, WaitKind.APPROVAL):
        places = records.listed.after(filter.after, filter.kind)
    elif filter.run is None and filter.kind is WaitKind.SIGNAL and filter.name is not None:
        places = records.listed.after(filter.after, (filter.kind, filter.name))
    else:
        yield from sorted(_candidates(records, filter), key=lambda wait: (wait.age, wait.place))
        return
    for namespace, run, key in places:
        yield records.waits[namespace, run][key]


def _candidates(records: RunRecords, filter: WaitFilter) -> list[StoredWait]:
    if filter.run is None:
        return [wait for waits in records.waits.values() for wait in waits.values()]
    places = records.by_name.ids(filter.run)
    return [wait for place in places for wait in records.waits_of(place)]


def _matches(wait: StoredWait, filter: WaitFilter) -> bool:
    return (
        filter.namespace in (None, wait.namespace)
        and filter.run in (None, wait.run)
        and filter.kind in (None, wait.kind)
        and filter.name in (None, wait.name)
        and (filter.deciders is None or _is_for(wait, filter.deciders))
        and (filter.after is None or wait.age > filter.after)
    )


def _is_for(wait: StoredWait, deciders: tuple[str, ...]) -> bool:
    """Whether it is in an inbox: one that names nobody is in all."""
    return not wait.deciders or not set(deciders).isdisjoint(wait.deciders)
