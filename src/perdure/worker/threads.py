"""Threads for sync bodies: reused when idle, and never waited for when abandoned.

A stock executor counts a hung thread against its size for ever; here a thread that never comes
back costs only itself, since the worker's slots are counted elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class Threads:
    """Runs each piece of work in a thread of its own, starting one when none is idle."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Work | None]] = []
        self._is_closed = False

    def run(self, work: Work) -> None:
        """``work`` must not raise."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            # Daemons, so that a body that never ends cannot keep the process from ending.
            threading.Thread(
                target=self._serve, args=(inbox,), name=self._name, daemon=True
            ).start()
        inbox.put(work)

    def close(self) -> None:
        """Let idle threads end; busy ones end with their work."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _serve(self, inbox: SimpleQueue[Work | None]) -> None:
        while (work := inbox.get()) is not None:
            work()
            del work
            with self._lock:
                if self._is_closed:
                    return
                self._idle.append(inbox)
