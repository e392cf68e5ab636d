"""A store in one file: the calls that changed it, each with its time.

Every handle keeps the whole contents in memory, by applying the calls of the file in their order.
A call that may change something is appended to the file before it is applied. So all handles, in
any process, apply the same calls at the same times, and have the same contents.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints
from zlib import crc32

import msgspec

from perdure.clock import Clock, system_clock
from perdure.errors import InvalidStoreUrl, SchemaMismatch, StoreError, StoreUnreachable
from perdure.store.contract import PARTS
from perdure.store.memory.store import MemoryStore

SCHEME = "journal:///"
HEADER = f"perdure-journal 1, Perdure {version('perdure')}\n".encode()
"""With the version, because another one may apply the same call differently."""
LENGTH = 4
WATCH_SECONDS = 0.01
READS = {
    "admin": {
        "count_ended",
        "flow_stats",
        "inspect_storage",
        "live_flows",
        "paused_queues",
        "queue_stats",
        "run_stats",
    },
    "jobs": {"check"},
    "live": {"read", "subscribers"},
    "maintenance": {"due_schedules", "due_waits", "poll"},
    "runs": {"event_values", "get_definition", "latest_events", "load", "load_steps"},
    "schedules": {"list"},
}
"""Methods that change nothing, besides those of ``queries`` and ``audit``. Any other is written to
the journal, so that one that is missing here costs space and is otherwise harmless."""


class Call(msgspec.Struct, array_like=True):
    """A call of a method of a part, such as ``jobs.insert``."""

    at: datetime
    part: str
    method: str
    arguments: dict[str, msgspec.Raw]


class JournalStore(MemoryStore):
    """A handle on the file. POSIX only, because it uses ``flock``."""

    contract_number = 1

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        if not url.startswith(SCHEME) or not url.removeprefix(SCHEME):
            raise InvalidStoreUrl(url=url, reason="write journal:///path")
        self._path = Path(url.removeprefix(SCHEME)).absolute()
        self._clock = clock or system_clock
        self._time = self._clock()
        """The time of the call that is applied."""
        super().__init__("memory://", clock=lambda: self._time)
        self._file = -1
        self._end = 0
        """How much of the file was applied."""
        self._watching: asyncio.Task[None] | None = None
        self._parts: dict[str, Any] = {name: getattr(self, name) for name in PARTS}
        for name, part in {**self._parts, "audit": self.audit}.items():
            setattr(self, name, Part(self, name, part))

    @property
    def url(self) -> str:
        return f"{SCHEME}{self._path}"

    async def open(self) -> None:
        if self._file != -1:
            return
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise StoreUnreachable(url=self.url, reason=str(error)) from error
        with self._locked():
            if os.fstat(self._file).st_size == 0:
                self._append(HEADER)
            self._check_header()
            await self._catch_up()
        self._watching = asyncio.create_task(self._watch())

    async def require(self) -> None:
        try:
            self._file = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise StoreUnreachable(url=self.url, reason=str(error)) from error
        try:
            self._check_header()
        finally:
            os.close(self._file)
            self._file = -1

    async def close(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        if self._file != -1:
            os.close(self._file)
            self._file = -1

    def clone(self) -> JournalStore:
        return JournalStore(self.url, self._clock)

    async def now(self) -> datetime:
        return self._clock()

    async def read(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        with self._locked():
            await self._catch_up()
            self._time = self._clock()
            return await method(*args, **kwargs)

    async def write(self, part: str, method: str, arguments: dict[str, Any]) -> Any:
        encoded = {name: encode(value) for name, value in arguments.items()}
        with self._locked():
            await self._catch_up()
            call = Call(self._clock(), part, method, encoded)
            try:
                decoded = arguments_of(call)
            except msgspec.ValidationError as error:
                raise TypeError(f"invalid arguments of {part}.{method}: {error}") from error
            # Written before it is applied: whatever happens then, others apply it alike.
            self._append(record_of(call))
            return await self._apply(call, decoded)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._file == -1:
            raise StoreError(f"the store at {self.url} is not open")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _check_header(self) -> None:
        if (found := os.pread(self._file, len(HEADER), 0)) != HEADER:
            what = repr(found.partition(b"\n")[0])
            raise SchemaMismatch(f"{self._path} starts with {what}, not {HEADER!r}")
        self._end = max(self._end, len(HEADER))

    def _append(self, data: bytes) -> None:
        """Add to the file, whole or not at all. The lock is held."""
        start = os.fstat(self._file).st_size
        try:
            if os.write(self._file, data) < len(data):
                raise OSError("the disk is full")
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, start)
            raise StoreError(f"cannot write to {self._path}: {error}") from error
        self._end = max(self._end, start + len(data))

    async def _catch_up(self) -> None:
        """Apply what other handles added. The lock is held, so what is incomplete stays so."""
        while (size := os.fstat(self._file).st_size) > self._end:
            added = os.pread(self._file, size - self._end, self._end)
            for call, length in calls_in(added):
                self._end += length
                with suppress(Exception):  # it raised for its caller as well
                    await self._apply(call, arguments_of(call))
            if self._end < size:  # a process was killed while it wrote this
                os.ftruncate(self._file, self._end)

    async def _apply(self, call: Call, arguments: dict[str, Any]) -> Any:
        self._time = call.at
        return await getattr(self._parts[call.part], call.method)(**arguments)

    async def _watch(self) -> None:
        """Apply what other processes add, so that listeners of this handle get their hints."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if os.fstat(self._file).st_size > self._end:
                with self._locked():
                    await self._catch_up()


class Part:
    """A part of a store whose calls go through the journal."""

    def __init__(self, store: JournalStore, name: str, part: Any) -> None:
        self._store = store
        self._name = name
        self._part = part

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)

        async def read(*args: Any, **kwargs: Any) -> Any:
            return await self._store.read(method, *args, **kwargs)

        async def write(*args: Any, **kwargs: Any) -> Any:
            arguments = signature(method).bind(*args, **kwargs).arguments
            return await self._store.write(self._name, name, arguments)

        is_read = self._name in ("queries", "audit") or name in READS.get(self._name, ())
        return read if is_read else write


def encode(value: Any) -> msgspec.Raw:
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict)):
        value = list(value)  # may be a generator
    return msgspec.Raw(msgspec.msgpack.encode(value))


@cache
def argument_types(part: str, method: str) -> dict[str, Any]:
    hints = get_type_hints(getattr(PARTS[part], method))
    return {
        name: list[get_args(hint)] if get_origin(hint) is Iterable else hint  # type: ignore[misc]
        for name, hint in hints.items()
    }


def arguments_of(call: Call) -> dict[str, Any]:
    types = argument_types(call.part, call.method)
    return {
        name: msgspec.msgpack.decode(value, type=types[name])
        for name, value in call.arguments.items()
    }


def record_of(call: Call) -> bytes:
    body = msgspec.msgpack.encode(call)
    return len(body).to_bytes(LENGTH) + crc32(body).to_bytes(LENGTH) + body


def calls_in(data: bytes) -> Iterator[tuple[Call, int]]:
    """The complete calls at the start of ``data``, each with the length of its record."""
    start = 0
    while start + 2 * LENGTH <= len(data):
        first = start + 2 * LENGTH
        end = first + int.from_bytes(data[start : start + LENGTH])
        body = data[first:end]
        if end > len(data) or crc32(body) != int.from_bytes(data[start + LENGTH : first]):
            return
        yield msgspec.msgpack.decode(body, type=Call), end - start
        start = end
