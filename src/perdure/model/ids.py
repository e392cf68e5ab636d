"""Ids and keys as distinct types, so that they cannot be confused."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NewType

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model.value import Value

JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
RunId = NewType("RunId", str)


INVALID_KEY = declare("run.invalid_key", "{key!r} is not the key of a node")

Part = Literal["", "check", "undo", "poll", "cancel", "remind", "notify", "run"]
_TEXT = re.compile(
    r"(undo:|check:|poll:|cancel:|remind:|notify:|run:)?([^#\[\]:]+)(?:#(\d+))?(?:\[(\d+)\])?"
)


class Key(Value):
    """A node, an iteration of a loop, or an item of a map. Committed once."""

    node: str
    iteration: int = 0
    """From 1 in a loop, else 0."""
    item: int | None = None
    """From 0 in a map."""
    part: Part = ""
    """Auxiliary work for the node; empty for its own work.

    ``check`` evaluates whether a loop is done, ``undo`` compensates the node, ``poll`` polls
    external work, ``cancel`` stops it, ``remind`` waits for the next reminder of an approval, and
    ``notify`` notifies people of it. Keys of part ``run`` are timers of the run itself:
    ``run:start``, ``run:timeout``.
    """

    @property
    def text(self) -> str:
        """The stored form."""
        if self.item is None and not self.iteration and not self.part:  # the usual case
            return self.node
        return _encode(self)

    @staticmethod
    def parse(text: str) -> Key:
        return _parse(text)


@lru_cache(maxsize=65_536)
def _encode(key: Key) -> str:
    part = f"{key.part}:" if key.part else ""
    iteration = f"#{key.iteration}" if key.iteration else ""
    item = "" if key.item is None else f"[{key.item}]"
    return f"{part}{key.node}{iteration}{item}"


@lru_cache(maxsize=65_536)
def _parse(text: str) -> Key:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InvalidInput(INVALID_KEY.fault(("key",), key=text))
    part, node, iteration, item = match.groups()
    return Key(
        node=node,
        iteration=int(iteration or 0),
        item=None if item is None else int(item),
        part=(part or "").rstrip(":"),  # type: ignore[arg-type]  # one of those in the pattern
    )


AUXILIARY_PARTS = frozenset({"undo", "poll", "cancel", "notify"})
"""Parts of keys for auxiliary jobs, whose results are not the output of the node."""
RUN_START = "run:start"
"""The key of the timer that starts a delayed run."""
RUN_TIMEOUT = "run:timeout"
"""The key of the timer that ends a run; unlike all others, it continues while the run is paused."""
