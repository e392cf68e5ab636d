"""Keeps a worker running whatever its bodies do to its process: exit, fork, raise Ctrl-C."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from perdure.model.text import visible_block

T = TypeVar("T")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SENT = (0, -1, -6, 128)  # SI_USER, SI_QUEUE, SI_TKILL, SI_KERNEL
HANDLER_SECONDS_MAX = 1.0
"""How late the main thread may notice a signal that the system gave to another thread."""
_log = logging.getLogger("perdure.worker")


def run_until_main_ends(
    main: Coroutine[Any, Any, T],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Like ``asyncio.run``, but nothing except ``main`` ends the event loop.

    asyncio lets ``SystemExit`` and ``KeyboardInterrupt`` out of any task or callback end the loop,
    also out of a task that a body or a limiter started. Whatever awaits such a task gets the
    exception too, and an attempt fails.
    """
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt):
                if task.done() or ctrl_c_raises():
                    raise
                _log.exception("a task or callback tried to end the process")


def ctrl_c_raises() -> bool:
    """Whether a ``KeyboardInterrupt`` in this thread may come from the terminal.

    Not if an event loop handles the signal: then it comes from the code that raised it.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


# Signals


def run_in_thread(
    serve: Callable[..., Coroutine[Any, Any, T]], on_signal: Callable[[bool], None]
) -> T:
    """Run ``serve`` in a thread, while this one, the main thread, waits for signals to stop.

    From its start to its end, ``on_signal`` is called for each signal, with whether this process or
    one of its descendants is known to have sent it. Only a thread that waits for a signal learns
    the sender. It has to be the main thread, which the kernel prefers to others that could take the
    signal: another thread would get it only if all threads blocked it, and so would every program
    that a body starts. The kernel does not guarantee this: if another thread takes the signal,
    or the system does not name its sender, the sender is unknown.
    """
    is_ready, handles_signals = threading.Event(), threading.Event()
    result: Future[T] = Future()
    main_thread, knows_senders = threading.get_ident(), hasattr(signal, "sigtimedwait")

    def started() -> None:
        is_ready.set()
        handles_signals.wait()

    def run() -> None:
        try:
            result.set_result(run_until_main_ends(serve(started=started)))
        except BaseException as error:
            result.set_exception(error)
        is_ready.set()
        handles_signals.wait()
        if knows_senders:
            signal.pthread_kill(main_thread, signal.SIGTERM)  # it need not wait any longer

    thread = threading.Thread(target=copy_context().run, args=(run,), name="perdure worker")
    thread.daemon = True  # interrupted before it has started, it must not keep the process
    thread.start()
    is_ready.wait()
    former = {
        number: signal.signal(number, lambda _number, _frame: on_signal(False))
        for number in STOP_SIGNALS
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS if knows_senders else ())
    handles_signals.set()
    try:
        while not result.done():
            if not knows_senders:
                thread.join(HANDLER_SECONDS_MAX)
                continue
            info = signal.sigtimedwait(STOP_SIGNALS, HANDLER_SECONDS_MAX)
            if info is not None and _was_sent(info) and not result.done():
                on_signal(is_descendant(info.si_pid))
        thread.join()
        while knows_senders and signal.sigtimedwait(STOP_SIGNALS, 0) is not None:
            pass  # those that came too late, and the one from the thread
    finally:
        for number, handler in former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return result.result()


def _was_sent(info: signal.struct_siginfo) -> bool:
    """Whether there was a signal at all.

    CPython 3.11 returns uninitialized memory if the process was frozen and continues after the
    timeout.
    """
    return info.si_signo in STOP_SIGNALS and info.si_code in _SENT


def is_descendant(pid: int) -> bool:
    """Whether a process is this one, or was started by it or by its descendants."""
    worker = os.getpid()
    while pid not in (worker, 0, 1):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:  # it has ended
            return False
        pid = int(stat.rpartition(")")[2].split()[1])
    return pid == worker


# The end of a process whose bodies do not end

EXIT_SUPERSEDED, EXIT_BODY_RUNS = 6, 7
"""Exit codes; the command line has the same."""


def kill_process_in(seconds: float) -> None:
    """End this process after this time, even if a body never releases the GIL."""
    # Its thread does not need the GIL. It writes the stacks of all threads to stderr.
    faulthandler.dump_traceback_later(seconds, exit=True, file=2)


def exit_process(code: int) -> NoReturn:
    """End this process without waiting for its threads."""
    try:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


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
    exit_code = 1
    try:
        if error is None:
            exit_code = 0
        elif isinstance(error, SystemExit) and isinstance(error.code, int | None):
            exit_code = (error.code or 0) & 0xFF
        elif isinstance(error, SystemExit):
            print(visible_block(f"SystemExit: {error.code}"), file=sys.stderr)
        else:
            trace = "".join(traceback.format_exception(error)).rstrip("\n")
            print(visible_block(trace), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(exit_code)
