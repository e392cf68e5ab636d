"""Cycles of a directed graph, found without recursion in time linear in its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Following = Mapping[str, Sequence[str]]


def cycles_among(following: Following) -> list[list[str]]:
    """One cycle out of each group of nodes that can all reach one another."""
    left = _on_or_between_cycles(following)
    if not left:
        return []
    within = {
        id: [each for each in following[id] if each in left] for id in following if id in left
    }
    groups = _groups(within)
    found: dict[int, list[str]] = {}
    for id in within:
        group = groups[id]
        if group not in found and any(groups[each] == group for each in within[id]):
            found[group] = _walk(id, within, groups)
    return list(found.values())


def _on_or_between_cycles(following: Following) -> set[str]:
    """What is left once nodes that nothing leads to, and then those that lead nowhere, are out."""
    left = _without_sources(following, set(following))
    leading: dict[str, list[str]] = {id: [] for id in left}
    for id in left:
        for target in following[id]:
            if target in left:
                leading[target].append(id)
    return _without_sources(leading, left)


def _without_sources(following: Following, among: set[str]) -> set[str]:
    counts = dict.fromkeys(among, 0)
    for id in among:
        for target in following[id]:
            if target in counts:
                counts[target] += 1
    sources = [id for id, count in counts.items() if not count]
    for id in sources:
        for target in following[id]:
            if target in counts:
                counts[target] -= 1
                if not counts[target]:
                    sources.append(target)
    return among.difference(sources)


def _groups(following: Following) -> dict[str, int]:
    """The group of each node: those that can reach one another share a number (Kosaraju)."""
    leading: dict[str, list[str]] = {id: [] for id in following}
    for id, targets in following.items():
        for target in targets:
            leading[target].append(id)
    groups: dict[str, int] = {}
    for number, root in enumerate(reversed(_finishing_order(following))):
        to_visit = [root]
        while to_visit:
            id = to_visit.pop()
            if id not in groups:
                groups[id] = number
                to_visit.extend(leading[id])
    return groups


def _finishing_order(following: Following) -> list[str]:
    """The nodes in the order in which a search depth first is done with them."""
    order: list[str] = []
    seen: set[str] = set()
    for root in following:
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(following[root]))]
        while path:
            id, targets = path[-1]
            target = next((each for each in targets if each not in seen), None)
            if target is None:
                order.append(id)
                path.pop()
            else:
                seen.add(target)
                path.append((target, iter(following[target])))
    return order


def _walk(start: str, following: Following, groups: Mapping[str, int]) -> list[str]:
    """A cycle within the group of ``start``."""
    steps: dict[str, int] = {}
    id = start
    while id not in steps:
        steps[id] = len(steps)
        id = next(each for each in following[id] if groups[each] == groups[start])
    return list(steps)[steps[id] :]
