"""An event loop on its own thread, for blocking callers.

The thread starts on first use. It ends when the portal is closed, when its owner is
garbage-collected, or at interpreter exit. Thread-safe.
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

from perdure.diagnostics import declare
from perdure.errors import StoreError
from perdure.operations.lazy_store import CLOSED

R = TypeVar("R")
_log = logging.getLogger("perdure.client")

CLOSED_MEANWHILE = declare("client.closed_meanwhile", "the client was closed during this call")
FORKED = declare(
    "client.forked",
    "this client was opened before the process forked, and its connections belong to the parent",
    "Create a new client in the child process",
)
OWN_LOOP = declare(
    "client.own_loop",
    "a blocking client was called on its own event loop and would deadlock",
    "Use AsyncClient there",
)


class Portal:
    """Runs coroutines for blocking callers; awaits ``on_stop`` last, on the same loop."""

    def __init__(self, on_stop: Callable[[], Awaitable[None]]) -> None:
        self._on_stop = on_stop
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._pid = 0
        self._handling: set[threading.Thread] = set()
        self.is_closed = False

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Block until the coroutine is done; an interrupt cancels the coroutine."""
        loop: asyncio.AbstractEventLoop | None = None
        future: concurrent.futures.Future[R] | None = None
        try:
            # Under the lock, so that no coroutine is submitted to a loop that is stopping.
            with self._lock:
                loop = self._entered()
                future = asyncio.run_coroutine_threadsafe(coroutine, loop)
            return future.result()
        except concurrent.futures.CancelledError:
            raise StoreError(CLOSED_MEANWHILE.fault()) from None
        except BaseException:
            # The call failed or its caller was interrupted: the coroutine must not keep running.
            if future is not None:
                future.cancel()
            elif loop is None:
                coroutine.close()
            else:  # interrupted while submitting: it may be running, so the loop must end it
                loop.call_soon_threadsafe(_end, coroutine)
            raise

    def handle(self, handler: Callable[[Any], object], subject: Any) -> object:
        """Call a handler on a thread of the loop's executor."""
        thread = threading.current_thread()
        self._handling.add(thread)
        try:
            return handler(subject)
        finally:
            self._handling.discard(thread)

    def close(self) -> None:
        """Stop the loop and wait until its thread has ended. A handler, for which that thread
        waits, only asks it to stop.
        """
        self.stop_soon()
        thread, current = self._thread, threading.current_thread()
        if current is thread or current in self._handling:
            return
        if thread is not None and self._is_here:
            thread.join()

    def stop_soon(self) -> None:
        """Ask the loop to stop without waiting, as a finalizer must."""
        if self._loop is not None and not self._is_here:
            return  # in a forked child: the loop and its lock belong to the parent
        with self._lock:
            was_closed, self.is_closed = self.is_closed, True
            if self._loop is not None and self._stop is not None and not was_closed:
                self._loop.call_soon_threadsafe(self._stop.set)

    @property
    def _is_here(self) -> bool:
        return self._pid == os.getpid()

    def _entered(self) -> asyncio.AbstractEventLoop:
        if self.is_closed:
            raise StoreError(CLOSED.fault())
        if self._loop is None:
            self._loop = self._start()
        if not self._is_here:
            raise StoreError(FORKED.fault())
        if threading.current_thread() is self._thread:
            raise StoreError(OWN_LOOP.fault())
        return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._pid = os.getpid()
        # A daemon, so that an unclosed client cannot block interpreter exit.
        self._thread = threading.Thread(
            target=self._serve_until_stopped, args=[started], name="perdure-client", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)
        return started.result()

    def _serve_until_stopped(
        self, started: concurrent.futures.Future[asyncio.AbstractEventLoop]
    ) -> None:
        asyncio.run(self._serve(started))
        atexit.unregister(self.close)

    async def _serve(self, started: concurrent.futures.Future[asyncio.AbstractEventLoop]) -> None:
        self._stop = asyncio.Event()
        started.set_result(asyncio.get_running_loop())
        await self._stop.wait()
        try:
            await self._on_stop()
        except Exception:
            _log.exception("closing a client failed")


def _end(coroutine: Coroutine[Any, Any, Any]) -> None:
    for task in asyncio.all_tasks():
        if task.get_coro() is coroutine:
            task.cancel()
            return
    coroutine.close()
