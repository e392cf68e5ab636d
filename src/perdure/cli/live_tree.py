"""Where each node of a flow stands in a list that is read from top to bottom."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.model.graph import Graph
from perdure.model.value import Value

BRANCH, LAST_BRANCH, BESIDE, CLEAR = "├ ", "╰ ", "│ ", "  "
GOES_ON = str.maketrans("├╰", "│ ")
"""From what is drawn before a node to what is drawn before lines that belong to it."""


class Place(Value):
    """A node, and what is drawn before its name to show which branch it is in."""

    node: str
    guide: str = ""


def places(graph: Graph) -> list[Place]:
    """All nodes: branches one below the other and set in, what joins them back below their fork.

    A join belongs to the node that every way to it leads through, however the branches between
    are entangled.
    """
    before = {id: _sources(graph, id) for id in graph.nodes}
    owners = _owners(before)
    below: dict[str | None, list[str]] = {}
    for id, owner in owners.items():
        below.setdefault(owner, []).append(id)
    return list(_walked(graph, before, below))


def _sources(graph: Graph, id: str) -> list[str]:
    return list(dict.fromkeys(edge.source for edge in graph.incoming[id]))


def _owners(before: dict[str, list[str]]) -> dict[str, str | None]:
    """Of each node the nearest one that every way to it leads through; None: there is none."""
    owners: dict[str, str | None] = {}
    depths: dict[str | None, int] = {None: 0}
    for id, sources in before.items():  # nodes come behind those that they follow
        known: list[str | None] = [source for source in sources if source in owners]
        owner = known[0] if known else None
        for other in known[1:]:
            owner = _shared(owner, other, owners, depths)
        owners[id] = owner
        depths[id] = depths[owner] + 1
    return owners


def _shared(
    one: str | None,
    other: str | None,
    owners: dict[str, str | None],
    depths: dict[str | None, int],
) -> str | None:
    while one != other:
        if depths[one] < depths[other]:
            one, other = other, one
        assert one is not None
        one = owners[one]
    return one


def _walked(
    graph: Graph, before: dict[str, list[str]], below: dict[str | None, list[str]]
) -> Iterator[Place]:
    to_visit = [(id, "", "") for id in reversed(below.get(None, []))]
    while to_visit:
        id, guide, rest = to_visit.pop()
        yield Place(node=id, guide=guide)
        branches = [each for each in below.get(id, []) if len(before[each]) == 1]
        joins = [each for each in below.get(id, []) if len(before[each]) > 1]
        is_fork = len({edge.target for edge in graph.outgoing[id]}) > 1
        following = []
        for number, branch in enumerate(branches, start=1):
            if not is_fork:
                following.append((branch, rest, rest))
            elif number < len(branches):
                following.append((branch, rest + BRANCH, rest + BESIDE))
            else:
                following.append((branch, rest + LAST_BRANCH, rest + CLEAR))
        following += [(join, rest, rest) for join in joins]
        to_visit.extend(reversed(following))
