"""Shared waits: one subscription and one read serve every waiter of a client.

A waiter is registered before the store is read, so every change is either part of the read or
announced by a later hint. A hint that names other subjects costs nothing; one without names costs a
read, a few times a second at most. A slow poll covers lost hints. Without waiters, nothing is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from perdure.errors import StoreError
from perdure.model.hint import Hint, HintType
from perdure.model.ids import JobId, RunId
from perdure.model.job import JobState
from perdure.model.run import Run
from perdure.operations.lazy_store import CLOSED, LazyStore
from perdure.store.contract import Store

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")

POLL_SECONDS = 2.0
CLOSE_POLL_SECONDS = 0.5
"""While there is a watcher: no hint announces that a job was claimed."""
SPACING_SECONDS = 0.02
"""Between reads caused by hints without names."""
LINGER_SECONDS = 5.0
"""How long the subscription outlives the last waiter, so that consecutive waits share it."""
READ_MAX = 10_000
"""Maximum names per read."""


class StateWatch(Generic[K, S]):
    """One waiter's view of one subject: always the latest state, never the same twice."""

    __slots__ = ("_error", "_news", "is_close", "key", "latest")

    def __init__(self, key: K, *, is_close: bool) -> None:
        self.key = key
        self.is_close = is_close
        self.latest: S | None = None
        """None before the first read, and if the subject does not exist."""
        self._news = asyncio.Event()
        self._error: BaseException | None = None

    async def next(self) -> S | None:
        """Wait for a new state; None if the subject does not exist."""
        await self._news.wait()
        self._news.clear()
        if self._error is not None:
            raise self._error
        return self.latest

    def update(self, state: S | None) -> None:
        if state is None or state != self.latest:
            self.latest = state
            self._news.set()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._news.set()


class Waiting(Generic[K, S]):
    """All waiters of one client for jobs, or for runs, on the client's event loop.

    ``name`` is the subject's name in hints; ``read`` returns the states of existing subjects.
    """

    def __init__(
        self,
        store: LazyStore,
        hint: HintType,
        name: Callable[[K], str],
        read: Callable[[Store, Sequence[K]], Awaitable[Mapping[K, S]]],
    ) -> None:
        self._store = store
        self._hint = hint
        self._name = name
        self._read_states = read
        self._watches: dict[str, set[StateWatch[K, S]]] = {}
        self._close_count = 0
        self._due: set[str] = set()
        self._woken = asyncio.Event()
        self._read_all_at = 0.0
        self._all_read_at = 0.0
        self._reader: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, key: K, *, is_close: bool = False) -> Iterator[StateWatch[K, S]]:
        """Watch its state, now and on each change."""
        if self._store.is_closed:
            raise StoreError(CLOSED.fault(url=self._store.url))
        watch: StateWatch[K, S] = StateWatch(key, is_close=is_close)
        name = self._name(key)
        self._watches.setdefault(name, set()).add(watch)
        self._due.add(name)
        if is_close:
            self._close_count += 1
            soon = asyncio.get_running_loop().time() + CLOSE_POLL_SECONDS
            self._read_all_at = min(self._read_all_at, soon)
        self._woken.set()
        if self._reader is None:
            self._reader = asyncio.create_task(self._read_while_needed())
        try:
            yield watch
        finally:
            self._leave(name, watch)

    async def close(self) -> None:
        """Stop, and fail all waiters with the reason."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    def _leave(self, name: str, watch: StateWatch[K, S]) -> None:
        together = self._watches[name]
        together.remove(watch)
        self._close_count -= watch.is_close
        if not together:
            del self._watches[name]
            self._due.discard(name)
            self._woken.set()

    async def _read_while_needed(self) -> None:
        error: BaseException = StoreError(f"the client of {self._store.url} was closed")
        try:
            store = await self._store.opened()
            unsubscribe = store.subscribe(self._hear)
            try:
                while names := await self._next_names():
                    await self._read(names)
            finally:
                unsubscribe()
        except Exception as failure:
            error = failure
        finally:
            self._reader = None
            for watch in self._everybody():
                watch.fail(error)

    async def _read(self, names: list[str]) -> None:
        # Only current waiters: for one that joins during the read, the result would be stale.
        asking = [watch for name in names for watch in self._watches.get(name, ())]
        keys = list(dict.fromkeys(watch.key for watch in asking))
        store = await self._store.opened()
        try:
            states = await self._read_states(store, keys)
        except Exception as error:
            for watch in asking:
                watch.fail(error)
        else:
            for watch in asking:
                watch.update(states.get(watch.key))
        # Let satisfied waiters leave before deciding what to read next.
        await asyncio.sleep(0)

    async def _next_names(self) -> list[str]:
        """Wait for a reason to read and return the keys; empty once there are no waiters."""
        loop = asyncio.get_running_loop()
        while True:
            self._woken.clear()
            if self._watches and loop.time() >= self._read_all_at:
                self._all_read_at = loop.time()
                self._read_all_at = self._all_read_at + self._poll_seconds
                self._due.update(self._watches)
            if self._due:
                return [self._due.pop() for _ in range(min(len(self._due), READ_MAX))]
            until = self._read_all_at if self._watches else loop.time() + LINGER_SECONDS
            try:
                async with asyncio.timeout_at(until):
                    await self._woken.wait()
            except TimeoutError:
                if not self._watches:
                    return []

    @property
    def _poll_seconds(self) -> float:
        return CLOSE_POLL_SECONDS if self._close_count else POLL_SECONDS

    def _hear(self, hint: Hint) -> None:
        if hint.type is not self._hint or not self._watches:
            return
        if hint.names:
            named = hint.names & self._watches.keys()
            self._due.update(named)
            if not named:
                return
        else:
            self._read_all_at = min(self._read_all_at, self._all_read_at + SPACING_SECONDS)
        self._woken.set()

    def _everybody(self) -> list[StateWatch[K, S]]:
        return [watch for together in self._watches.values() for watch in together]


RunKey = tuple[str, RunId]
"""Namespace and id: run ids are chosen by callers, independently in each namespace."""


def waiting_for_jobs(store: LazyStore) -> Waiting[JobId, JobState]:
    async def read(store: Store, ids: Sequence[JobId]) -> Mapping[JobId, JobState]:
        return await store.queries.job_states(ids)

    return Waiting(store, HintType.CHANGED, str, read)


def waiting_for_runs(store: LazyStore) -> Waiting[RunKey, Run]:
    async def read(store: Store, keys: Sequence[RunKey]) -> Mapping[RunKey, Run]:
        found = await store.queries.get_runs(keys)
        return {key: run for key, run in zip(keys, found, strict=True) if run is not None}

    return Waiting(store, HintType.RUN, lambda key: key[1], read)
