"""What happened, line by line: when, who, what. Two histories are the same if their lines are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from proof.simulate.actors import ACTING
from proof.simulate.loop import SimulatedLoop


class Trace:
    """Takes lines as they come; hashes them all, and shows them if somebody wants to see."""

    def __init__(self, loop: SimulatedLoop, show: Callable[[str], None] | None = None) -> None:
        self._loop = loop
        self._show = show
        self._hash = hashlib.blake2b(digest_size=16)

    def __call__(self, what: str) -> None:
        actor = ACTING.get(self._loop.home).name
        line = f"{self._loop.now:12.6f}  {actor:<12}  {what}"
        self._hash.update(line.encode())
        if self._show is not None:
            self._show(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
