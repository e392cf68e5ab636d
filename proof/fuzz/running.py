"""Runs many examples of one target on one backend."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from proof.fuzz.inspection import LogCapture
from proof.fuzz.targets import TARGETS, Target
from tests.postgres_schemas import drop_schema, with_query

ONE_STORE_EACH = ("stories", "shown stories", "corrupt rows", "terminal output", "imports")
"""Targets whose every example starts with an empty store."""


@dataclass
class Tally:
    tried: int = 0
    accepted: int = 0
    heard: int = 0
    """Captured log records."""


def fuzz(name: str, backend: str, examples: int, *, number: int, postgres_url: str = "") -> Tally:
    """Try examples drawn from a seed; raises the first violation, with its example."""
    target, tally = TARGETS[name], Tally()
    with (
        LogCapture(postgres_url) as ear,
        asyncio.Runner() as runner,
        tempfile.TemporaryDirectory() as folder,
    ):
        places = _Places(backend, folder, postgres_url)
        attempt = _attempt(runner, target, places, name in ONE_STORE_EACH)

        # No shrinking: each example costs a store, and the drawn ones are small.
        @seed(number)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=False,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(target.examples)
        def tried(example: Any) -> None:
            tally.tried += 1
            tally.accepted += attempt(example)
            ear.check()

        try:
            tried()
        finally:
            attempt.close()
            places.remove()
        ear.check()
        tally.heard = ear.heard
    return tally


class _attempt:
    """One stage for all examples, or one for each."""

    def __init__(
        self, runner: asyncio.Runner, target: Target, places: _Places, is_each: bool
    ) -> None:
        self._runner = runner
        self._target = target
        self._places = places
        self._stage = None if is_each else target.stage(places.new())
        self._try = None if self._stage is None else runner.run(self._stage.__aenter__())

    def __call__(self, example: Any) -> bool:
        return self._runner.run(self._tried(example))

    async def _tried(self, example: Any) -> bool:
        if self._try is not None:
            return await self._try(example)
        async with self._target.stage(self._places.new()) as attempt:
            return await attempt(example)

    def close(self) -> None:
        if self._stage is not None:
            self._runner.run(self._stage.__aexit__(None, None, None))


class _Places:
    """Empty stores of one backend."""

    def __init__(self, backend: str, folder: str, postgres_url: str) -> None:
        self._backend = backend
        self._folder = folder
        self._postgres_url = postgres_url
        self._schemas: list[str] = []

    def new(self) -> str:
        name = f"f_{secrets.token_hex(6)}"
        if self._backend == "memory":
            return f"memory://{name}"
        if self._backend == "sqlite":
            return f"sqlite:///{self._folder}/{name}.db"
        self._schemas.append(name)
        return with_query(self._postgres_url, schema=name)

    def remove(self) -> None:
        for schema in self._schemas:
            drop_schema(self._postgres_url, schema)
