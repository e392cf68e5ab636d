"""Wake-ups within one process: every handle on a database gets the hints of all others.

Hints from other processes arrive through the backend (NOTIFY, ``data_version``) and end up here
too. Listeners run on the event loop they subscribed from, whichever thread publishes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection
from weakref import WeakValueDictionary

from perdure.model.hint import Hint, HintType

Listener = Callable[[Hint], None]
HintTypes = Collection[HintType] | None
"""The hint types a listener subscribed to; None for all."""
_log = logging.getLogger("perdure.store")


class Hub:
    """The subscribers of one place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, tuple[asyncio.AbstractEventLoop, Listener, HintTypes]] = {}

    def subscribe(self, listener: Listener, types: HintTypes = None) -> Callable[[], None]:
        """Subscribe on the running event loop, until the returned function is called."""
        token = object()
        with self._lock:
            self._listeners[token] = (asyncio.get_running_loop(), listener, types)
        return lambda: self._drop(token)

    @property
    def has_listeners(self) -> bool:
        """Whether there are listeners."""
        return bool(self._listeners)

    def publish(self, hint: Hint) -> None:
        with self._lock:
            listeners = list(self._listeners.items())
        ours = _running_loop()
        for token, (loop, listener, types) in listeners:
            if types is not None and hint.type not in types:
                continue
            if loop is ours:  # the running loop needs no waking
                loop.call_soon(_call, listener, hint)
                continue
            try:
                loop.call_soon_threadsafe(_call, listener, hint)
            except RuntimeError:  # its loop is closed
                self._drop(token)

    def _drop(self, token: object) -> None:
        with self._lock:
            self._listeners.pop(token, None)


_hubs: WeakValueDictionary[str, Hub] = WeakValueDictionary()
_hubs_lock = threading.Lock()


def hub_of(place: str) -> Hub:
    """The hub that all handles on ``place`` share. Process-wide, because the place is."""
    with _hubs_lock:
        hub = _hubs.get(place)
        if hub is None:
            hub = _hubs[place] = Hub()
        return hub


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _call(listener: Listener, hint: Hint) -> None:
    try:
        listener(hint)
    except Exception:
        _log.exception("a wake-up listener failed")
