"""What bodies meet: then, while a database is made by earlier code, and now."""

from __future__ import annotations

import asyncio

from perdure import Permanent


class World:
    """Then, some bodies never come back or fail; now they all do their work."""

    def __init__(self) -> None:
        self.is_then = False
        self.executed: list[str] = []
        """What was executed, in this process."""

    async def stall(self) -> None:
        if self.is_then:
            await asyncio.Event().wait()

    def fail(self) -> None:
        if self.is_then:
            raise Permanent("the power is out")

    def stumble(self) -> None:
        """As by an error that may pass."""
        if self.is_then:
            raise OSError("the line is busy")


world = World()
