"""A door from blocking code to async code: an event loop on a thread of its own.

The thread starts on first use. It ends when the portal is closed, when its owner is garbage, or at
the latest when the interpreter exits. Any thread may use it, several at once.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from perdure.errors import StoreError

R = TypeVar("R")
_log = logging.getLogger("perdure.client")


class Portal:
    """Runs coroutines for blocking callers; ``on_stop`` is awaited last, on the same loop."""

    def __init__(self, on_stop: Callable[[], Awaitable[None]]) -> None:
        self._on_stop = on_stop
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._pid = 0
        self.is_closed = False

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Block the calling thread until the coroutine is done; interrupting it cancels that."""
        try:
            loop = self._entered()
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise StoreError("the client was closed while this call was under way") from None
        except BaseException:
            # An interrupt of the caller: what it waited for must not go on without it.
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and wait until its thread has ended."""
        self.stop_soon()
        atexit.unregister(self.close)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread() and self._is_here:
            thread.join()

    def stop_soon(self) -> None:
        """Let the loop stop by itself, without waiting. Safe where blocking is not."""
        self.is_closed = True
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and self._is_here and not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

    @property
    def _is_here(self) -> bool:
        return self._pid == os.getpid()

    def _entered(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self.is_closed:
                raise StoreError("this client is closed; make a new one")
            if self._loop is None:
                self._loop = self._start()
        if not self._is_here:
            raise StoreError(
                "this client was opened before the process forked, and its connections are the "
                "parent's; make a new one in the child"
            )
        if threading.current_thread() is self._thread:
            raise StoreError(
                "a blocking client was called on its own event loop, where it would wait for "
                "itself; use AsyncClient there"
            )
        return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._pid = os.getpid()
        # A daemon, so that a client nobody closed cannot keep the interpreter from exiting.
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="perdure-client", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)
        return started.result()

    async def _serve(self, started: concurrent.futures.Future[asyncio.AbstractEventLoop]) -> None:
        self._stop = asyncio.Event()
        started.set_result(asyncio.get_running_loop())
        await self._stop.wait()
        try:
            await self._on_stop()
        except Exception:
            _log.exception("closing a client failed")
