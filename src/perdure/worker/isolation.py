"""What keeps a worker running whatever its bodies do to its process: exit, fork, raise Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
_log = logging.getLogger("perdure.worker")


def run_until_main_ends(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``, but nothing except ``main`` ends the event loop.

    asyncio lets ``SystemExit`` and ``KeyboardInterrupt`` out of any task or callback end the loop,
    also out of a task that a body started. The body that awaits such a task gets the exception
    too, and its attempt fails.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt):
                if task.done() or ctrl_c_raises():
                    raise
                _log.exception("a task or callback of a body tried to end the process")


def ctrl_c_raises() -> bool:
    """Whether a ``KeyboardInterrupt`` in this thread may come from the terminal.

    Not if an event loop handles the signal: then it comes from the code that raised it.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


# Forked children

_serving: set[object] = set()
_forking = threading.local()


@contextmanager
def guarded_forks() -> Iterator[None]:
    """While a worker runs in this process, a process forked from it starts like a spawned one.

    It would inherit the worker's signal handlers, and the descriptor that they write to: the
    event loop of the worker would take a signal to the child for its own and stop the worker, and
    the child would ignore the signal.
    """
    mark = object()
    _serving.add(mark)
    try:
        yield
    finally:
        _serving.discard(mark)


def _before_fork() -> None:
    if _serving:
        # Until the child has its own handlers, a signal to it waits.
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _after_fork_in_parent() -> None:
    mask, _forking.mask = getattr(_forking, "mask", None), None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    if _serving:
        _serving.clear()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                is_ctrl_c = number == signal.SIGINT
                signal.signal(number, signal.default_int_handler if is_ctrl_c else signal.SIG_DFL)
    _after_fork_in_parent()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


def exit_if_forked(worker_pid: int, error: BaseException | None = None) -> None:
    """End a process that a body forked and that returned from the body.

    It is a copy of the worker, with its connections: it must not record the outcome too.
    """
    if os.getpid() == worker_pid:
        return
    code: Any = 0
    if isinstance(error, SystemExit):
        code = error.code
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    if not isinstance(code, int | None):  # as the interpreter does: a message
        print(code, file=sys.stderr)
        code = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code or 0)
