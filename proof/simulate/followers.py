"""Followers of ends: processes that stream them, crash, and continue after their last cursor."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

from perdure.client.client import AsyncClient
from perdure.errors import EventsGap, PerdureError
from perdure.model.client_event import EVENTS, EventSource
from proof.simulate.guard import End
from proof.simulate.loop import Actor
from proof.simulate.world import World

ENDS = [name for name, type in EVENTS.items() if type in (EventSource.JOB, EventSource.RUN)]
LIFE_SECONDS = 8.0
"""Maximum time until a follower is killed."""
DOWN_SECONDS = 40.0
"""Maximum time for which a follower is gone: ends may be pruned meanwhile."""
CATCH_UP_SECONDS = DOWN_SECONDS + 10.0
"""A follower has delivered all ends by then."""


class Follower:
    """One follower, across restarts: each continues after the cursor of the one before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._draw = random.Random(f"{world.seed} follower")
        self._cursor: str | None = None
        self._since: int | None = None
        """The number of the first end that it followed, without a gap since."""
        self._delivered: set[End] = set()
        self._generation = 0

    async def run(self, until: float) -> None:
        """Follow, under kills until a given time."""
        while (seconds := until - self._world.loop.now) > 0:
            actor = self._start()
            await asyncio.sleep(min(seconds, LIFE_SECONDS * self._draw.random()))
            self._world.loop.kill(actor.process)
        if not self._world.seconds_back:  # a cursor is a time of the store's clock
            await asyncio.sleep(self._draw.choice((0.0, DOWN_SECONDS)) * self._draw.random())
        self._start()

    def missed(self) -> Iterator[str]:
        """Ends that were kept and not delivered."""
        if self._since is None:
            return
        ends, kept = self._world.guard.ends, self._world.guard.kept_ends
        for end, number in ends.items():
            if number >= self._since and end in kept and end not in self._delivered:
                yield f"the follower did not get {' '.join(map(str, end))}"

    def _start(self) -> Actor:
        self._generation += 1
        actor = self._world.process(f"follower-{self._generation}")
        self._world.spawn(actor, self._follow(actor))
        return actor

    async def _follow(self, actor: Actor) -> None:
        client, world = AsyncClient(self._world.store_of(actor)), self._world
        while True:
            try:
                async for event in client.events.stream(types=ENDS, after=self._cursor):
                    end = (event.type, event.run or event.job or "", event.at)
                    if end not in world.guard.ends:
                        world.find(f"the follower got {' '.join(map(str, end))}, which never was")
                    elif self._since is None:
                        self._since = len(world.guard.ends)
                    self._delivered.add(end)
                    self._cursor = event.cursor
            except EventsGap:
                world.trace("a gap: following from here on")
                self._cursor = self._since = None
            except PerdureError as error:
                world.trace(f"follower: {type(error).__name__}")
            except Exception as error:
                world.find(f"follower: {type(error).__name__}: {error}")
            await asyncio.sleep(1)
