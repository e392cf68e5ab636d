"""Sorted views of what is kept, so that no operation looks at more of it than it is about."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Id = TypeVar("Id")
Groups = tuple[Hashable, ...]
ALL = ""
"""The group of an index that needs no more than one."""


class Index(Generic[Item, Id]):
    """Items by group, each group sorted by ``order`` and then by id.

    ``groups`` says in which groups an item belongs; none keeps it out, as a partial index does.
    """

    def __init__(
        self,
        groups: Callable[[Item], Groups],
        order: Callable[[Item], Any],
        id: Callable[[Item], Id] = attrgetter("id"),
    ) -> None:
        self._groups = groups
        self._order = order
        self._id = id
        self._entries: dict[Hashable, list[tuple[Any, Id]]] = {}

    def move(self, before: Item | None, after: Item | None) -> None:
        """Follow one write: an item that came, changed or went."""
        old_groups = () if before is None else self._groups(before)
        new_groups = () if after is None else self._groups(after)
        if not old_groups and not new_groups:
            return
        old, new = self._entry(before), self._entry(after)
        if old_groups == new_groups and old == new:
            return
        for group in old_groups:
            self._remove(group, old)
        for group in new_groups:
            insort(self._entries.setdefault(group, []), new)

    def groups(self) -> Iterator[Any]:
        return iter(self._entries)

    def entries(self, group: Hashable = ALL) -> Sequence[tuple[Any, Id]]:
        return self._entries.get(group, ())

    def ids(self, group: Hashable = ALL) -> list[Id]:
        return [id for _, id in self.entries(group)]

    def first(self, group: Hashable = ALL) -> Any:
        """The lowest order value in the group, or None."""
        entries = self.entries(group)
        return entries[0][0] if entries else None

    def up_to(self, order: Any, limit: int, group: Hashable = ALL) -> list[Id]:
        """The first ids whose order value is at most ``order``."""
        return [id for _, id in islice(self.entries(group), min(limit, self._end(order, group)))]

    def after(self, order: Any, group: Hashable = ALL) -> Iterator[Id]:
        """The ids whose order value is above ``order``; None is below all."""
        entries = self.entries(group)
        start = 0 if order is None else self._end(order, group)
        return (entries[number][1] for number in range(start, len(entries)))

    def count_after(self, order: Any, group: Hashable = ALL) -> int:
        return len(self.entries(group)) - self._end(order, group)

    def _end(self, order: Any, group: Hashable) -> int:
        return bisect_right(self.entries(group), order, key=lambda entry: entry[0])

    def _entry(self, item: Item | None) -> Any:
        return None if item is None else (self._order(item), self._id(item))

    def _remove(self, group: Hashable, entry: tuple[Any, Id]) -> None:
        entries = self._entries[group]
        del entries[bisect_left(entries, entry)]
        if not entries:
            del self._entries[group]
