"""The door from blocking code to async code."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from perdure.client.portal import Portal
from perdure.errors import StoreError
from tests.support.refusal import refused


async def nothing() -> None: ...


def is_waiting(thread: threading.Thread) -> bool:
    """Whether it waits in the standard library's threading module; no event tells that."""
    assert thread.ident is not None
    return sys._current_frames()[thread.ident].f_code.co_filename == threading.__file__


async def answer(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


class TestRun:
    def test_returns_what_the_coroutine_returns(self):
        portal = Portal(nothing)

        assert portal.run(answer(42)) == 42

        portal.close()

    def test_raises_what_the_coroutine_raises(self):
        async def fail() -> None:
            raise KeyError("x")

        portal = Portal(nothing)

        with pytest.raises(KeyError):
            portal.run(fail())
        assert portal.run(answer("still there")) == "still there"

        portal.close()

    def test_refuses_to_wait_for_itself(self):
        portal = Portal(nothing)

        async def inside() -> None:
            portal.run(answer(1))

        with refused("client.own_loop", StoreError):
            portal.run(inside())

        portal.close()

    @pytest.mark.parametrize("moment", ["call", "return"])
    def test_ends_the_coroutine_of_a_caller_that_is_interrupted_on_the_way(self, moment):
        """Before it is handed to the loop, or after that but before its future is known."""

        async def hang() -> None:
            await asyncio.Event().wait()

        def interrupt(frame: FrameType, event: str, arg: Any) -> Any:
            if frame.f_code is not asyncio.run_coroutine_threadsafe.__code__:
                return None
            if event == moment:
                raise KeyboardInterrupt
            return interrupt

        portal = Portal(nothing)
        portal.run(answer(1))
        coroutine, before = hang(), sys.gettrace()
        sys.settrace(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                portal.run(coroutine)
        finally:
            sys.settrace(before)

        portal.run(answer(1))  # what was asked for before this has been done
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
        portal.close()

    def test_cancels_the_coroutine_of_a_caller_that_is_interrupted(self):
        portal = Portal(nothing)
        cancelled = threading.Event()

        async def interrupt_the_caller() -> None:
            async with asyncio.timeout(10):
                while not is_waiting(threading.main_thread()):  # noqa: ASYNC110 (no event tells it)
                    await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        with pytest.raises(KeyboardInterrupt):
            portal.run(interrupt_the_caller())

        assert cancelled.wait(10)
        portal.close()


class TestClose:
    def test_awaits_the_last_act_on_the_same_loop(self):
        loops: list[asyncio.AbstractEventLoop] = []

        async def note() -> None:
            loops.append(asyncio.get_running_loop())

        portal = Portal(note)
        portal.run(note())
        portal.close()

        assert len(loops) == 2
        assert loops[0] is loops[1]

    def test_ends_the_thread_even_if_the_last_act_fails(self, caplog):
        async def fail() -> None:
            raise OSError("gone")

        portal = Portal(fail)
        portal.run(answer(1))
        portal.close()

        assert [record.getMessage() for record in caplog.records] == ["closing a client failed"]
        assert "perdure-client" not in {thread.name for thread in threading.enumerate()}

    def test_of_a_portal_that_was_never_used_does_nothing(self):
        portal = Portal(nothing)
        portal.close()

        with refused("client.closed", StoreError):
            portal.run(answer(1))

    def test_cancels_what_is_under_way(self):
        portal = Portal(nothing)
        entered = threading.Event()

        async def wait_for_ever() -> None:
            entered.set()
            await asyncio.Event().wait()

        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(portal.run, wait_for_ever())
            entered.wait(10)
            portal.close()

            with refused("client.closed_meanwhile", StoreError):
                waiting.result(10)

    def test_leaves_nobody_hanging_who_comes_at_that_moment(self):
        for _ in range(20):
            portal = Portal(nothing)
            portal.run(answer(0))
            started = threading.Barrier(5)

            def come(portal: Portal = portal, started: threading.Barrier = started) -> int:
                started.wait(10)
                for count in range(1_000_000):
                    try:
                        portal.run(answer(count))
                    except StoreError:
                        return count
                raise AssertionError("the portal never closed")

            with ThreadPoolExecutor(4) as threads:
                coming = [threads.submit(come) for _ in range(4)]
                started.wait(10)
                portal.close()

                assert all(each.result(10) >= 0 for each in coming)
