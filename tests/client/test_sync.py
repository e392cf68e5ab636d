"""The sync client: the same names, from any thread, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from perdure import (
    AsyncClient,
    AsyncJobHandle,
    AsyncJobQueue,
    AsyncRunHandle,
    Client,
    Flow,
    JobHandle,
    JobQueue,
    NodeNotWaiting,
    PayloadTooLarge,
    QueuedJob,
    ResultTimeout,
    RunHandle,
    RunStatus,
    RunTimeout,
    Status,
    StoreError,
    Worker,
    task,
)
from perdure.client.client import AsyncTransactionClient
from perdure.client.facade import followed
from perdure.client.portal import Portal
from perdure.client.sync import SyncJobs, TransactionClient
from perdure.operations.catalog import OPERATIONS
from perdure.operations.jobs import Jobs
from tests.client.flows import (
    Point,
    add,
    asking,
    echo,
    embed,
    failing,
    keep,
    mirror,
    ordering,
    outside,
)
from tests.support.codecs import Reversed
from tests.support.refusal import refused

# The sync facade: the same names, from any thread, and nothing left behind.


@task
def fail() -> None:
    raise ValueError("no")


@pytest.fixture
def sync_client(store_url: str) -> Iterator[Client]:
    with Client(store_url, tasks=[add]) as sync_client:
        yield sync_client


@pytest.fixture
def working(store_url: str) -> Iterator[None]:
    running = Worker(
        store_url, tasks=[add, echo, embed, fail], queues=["default", "embeddings"]
    ).start()
    yield
    running.shutdown()
    running.join()


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    return [
        (each.name, each.kind, each.default)
        for each in inspect.signature(method).parameters.values()
    ]


def public_methods(facade: type) -> dict[str, list[tuple[str, Any, Any]]]:
    methods = inspect.getmembers(facade, inspect.isfunction)
    return {name: parameters(method) for name, method in methods if not name.startswith("_")}


class TestFacades:
    @pytest.mark.parametrize(
        "blocking, target",
        [
            (Client, AsyncClient),
            (JobQueue, AsyncJobQueue),
            (TransactionClient, AsyncTransactionClient),
        ],
    )
    def test_take_what_their_async_methods_take(self, blocking, target):
        assert public_methods(blocking) == public_methods(target)
        assert parameters(blocking) == parameters(target)

    @pytest.mark.parametrize(
        "blocking, target, asked",
        [
            (JobHandle, AsyncJobHandle, {"status", "progress"}),
            (RunHandle, AsyncRunHandle, {"status"}),
        ],
    )
    def test_of_handles_ask_by_properties_and_are_the_same_otherwise(self, blocking, target, asked):
        of_target = public_methods(target)
        assert all(of_target.pop(name) == parameters(lambda self: None) for name in asked)
        assert public_methods(blocking) == of_target
        assert all(isinstance(getattr(blocking, name), property) for name in asked)

    def test_carry_the_documentation_of_their_async_methods(self):
        assert Client.enqueue.__doc__ == AsyncClient.enqueue.__doc__
        assert SyncJobs.list.__doc__ == Jobs.list.__doc__


@pytest.mark.usefixtures("working")
class TestClient:
    def test_waits_for_results(self, sync_client):
        job = sync_client.enqueue(sync_client.task("add").options(group="run-1"), 1, b=2)
        assert job.result(timeout=30) == 3
        assert (job.status, job.is_new) == (Status.COMPLETED, True)
        assert sync_client.jobs.find_result(add, [1, 2]) == 3
        assert sync_client.jobs.get(job.id).result == 3
        assert sync_client.jobs.count(status="completed", group="run-1") == 1

    def test_watches(self, sync_client):
        job = sync_client.enqueue(embed, "hello")
        updates = list(job.watch())
        assert updates[-1].status is Status.COMPLETED
        assert job.progress.percent == 100

    def test_serves_many_threads_at_once(self, sync_client):
        def one(number: int) -> Any:
            return sync_client.enqueue(echo, number).result(timeout=60)

        with ThreadPoolExecutor(16) as threads:
            assert list(threads.map(one, range(200))) == list(range(200))


class TestRuns:
    @pytest.fixture(autouse=True)
    def serving(self, store_url: str) -> Iterator[None]:
        running = Worker(store_url, flows=[ordering, asking, failing]).start()
        yield
        running.shutdown()
        running.join()

    def test_give_results(self, sync_client):
        run = sync_client.submit(ordering, 3, id="order-3")
        assert run.result(timeout=30) == 6
        assert (run.id, run.is_new, run.status) == ("order-3", True, RunStatus.COMPLETED)
        assert run.outputs()["total"] == 6
        assert list(run.watch()) == run.events()
        assert [each.id for each in sync_client.runs.list(flow=ordering)] == ["order-3"]


class TestOperating:
    def test_reaches_everything(self, sync_client):
        job = sync_client.enqueue(add.options(group="run-1"), 1)

        assert sync_client.jobs.disable(job.id).after is Status.DISABLED
        assert sync_client.jobs.enable(job.id).after is Status.WAITING
        assert job.cancel().after is Status.CANCELLED
        assert job.cancel().was_finished
        assert job.retry().after is Status.WAITING
        assert sync_client.jobs.cancel_group("run-1").cancelled == 1
        sync_client.queues.pause("default", by="ann")
        assert [each.paused_by for each in sync_client.queues.list() if each.is_paused] == ["ann"]
        sync_client.queues.resume("default")
        assert [each.total for each in sync_client.queues.list()] == [1]
        assert [each.id for each in sync_client.jobs.list(limit=1)] == [job.id]
        assert sync_client.jobs.handle(job.id).record().status is Status.CANCELLED
        assert list(sync_client.workers.list()) == []


class TestWatch:
    def test_may_be_left_early(self, sync_client):
        job = sync_client.enqueue(add, 1)
        for update in job.watch():
            assert update.status is Status.WAITING
            break
        assert job.cancel().after is Status.CANCELLED

    def test_may_outlive_its_client(self, sync_client):
        updates = sync_client.enqueue(add, 1).watch()
        next(updates)
        sync_client.close()
        with refused("client.closed", StoreError):
            next(updates)

    def test_can_be_interrupted_while_it_takes_its_time_to_end(self):
        async def updates() -> AsyncGenerator[int, None]:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.Event().wait()
                yield 1
            finally:
                for _ in range(100):  # until the interrupted thread closes it
                    await asyncio.sleep(0.001)

        async def nothing() -> None: ...

        portal = Portal(nothing)
        with pytest.raises(KeyboardInterrupt):
            next(followed(portal, updates()))

        portal.close()


class TestLifetime:
    def test_opens_on_first_use_and_starts_no_thread_before(self, memory_url):
        before = set(threading.enumerate())  # some may be threads of earlier tests that are ending
        sync_client = Client(memory_url)
        assert set(threading.enumerate()) <= before
        sync_client.enqueue(add, 1)
        assert len(set(threading.enumerate()) - before) == 1
        sync_client.close()
        assert set(threading.enumerate()) <= before

    def test_ends_with_close_for_good(self, memory_url):
        sync_client = Client(memory_url)
        sync_client.enqueue(add, 1)
        sync_client.close()
        sync_client.close()
        with refused("client.closed", StoreError):
            sync_client.enqueue(add, 1)

    @pytest.mark.usefixtures("working")
    def test_ends_with_close_in_a_handler(self, store_url):
        sync_client = Client(store_url)
        closed = threading.Event()

        def close(_: object) -> None:
            sync_client.close()
            closed.set()

        subscription = sync_client.events.subscribe(close)
        sync_client.enqueue(add, 1)
        assert closed.wait(20)
        sync_client.close()
        assert not subscription.is_active

    def test_ends_when_nothing_refers_to_the_client(self, memory_url):
        sync_client = Client(memory_url)
        sync_client.enqueue(add, 1)
        [thread] = [each for each in threading.enumerate() if each.name == "perdure-client"]
        del sync_client
        gc.collect()
        thread.join(10)
        assert not thread.is_alive()

    def test_continues_while_a_handle_is_left(self, memory_url):
        job = Client(memory_url).enqueue(add, 1)
        gc.collect()
        assert job.status is Status.WAITING

    def test_ends_those_who_wait_when_another_thread_closes(self, memory_url):
        sync_client = Client(memory_url)
        job = sync_client.enqueue(add, 1)
        updates = job.watch()
        next(updates)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(job.result)
            sync_client.close()

            with pytest.raises(StoreError):
                waiting.result(10)

    def test_leaves_an_unused_client_silent(self):
        assert run_program("Client('memory://unused')") == (0, "")

    def test_closes_at_exit_without_a_word(self, sqlite_url):
        program = f"""
            client = Client({sqlite_url!r})
            job = client.enqueue(add, 1)
            updates = job.watch()
            next(updates)
        """
        assert run_program(program) == (0, "")
        with Client(sqlite_url) as sync_client:
            assert sync_client.jobs.count() == 1

    def test_says_so_in_a_forked_child(self, memory_url):
        program = """
            import os, warnings
            warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads
            client = Client('memory://fork')
            client.enqueue(add, 1)
            child = os.fork()
            if child == 0:
                try:
                    client.enqueue(add, 2)
                except StoreError as error:
                    os._exit(0 if error.code == 'client.forked' else 1)
                os._exit(2)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert code == 0, code
        """
        assert run_program(program) == (0, "")

    def test_lets_an_interrupt_through(self):
        program = """
            import threading, signal, os
            client = Client('memory://interrupt')
            job = client.enqueue(add, 1)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                job.result()
            except KeyboardInterrupt:
                assert job.status == 'waiting'
                client.close()
        """
        assert run_program(program) == (0, "")

    async def test_works_inside_a_running_event_loop(self, memory_url):
        with Client(memory_url) as sync_client:
            assert sync_client.enqueue(add, 1).status is Status.WAITING


def run_program(text: str) -> tuple[int, str]:
    """Run a program with all warnings on; its exit code and what it had to say."""
    head = "from perdure import Client, StoreError\nfrom tests.client.flows import add\n"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", head + textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])},
    )
    # That a step took long is about this machine, which may be busy.
    said = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    return done.returncode, "\n".join(said)


# The door from blocking code to async code.


async def nothing() -> None: ...


def is_waiting(thread: threading.Thread) -> bool:
    """Whether it waits in the standard library's threading module; no event tells that."""
    assert thread.ident is not None
    return sys._current_frames()[thread.ident].f_code.co_filename == threading.__file__


async def answer(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal(nothing)
    yield portal
    portal.close()


class TestRun:
    def test_returns_or_raises_what_the_coroutine_does(self, portal):
        async def fail() -> None:
            raise KeyError("x")

        with pytest.raises(KeyError):
            portal.run(fail())
        assert portal.run(answer("still there")) == "still there"

    def test_refuses_to_wait_for_itself(self, portal):
        async def inside() -> None:
            portal.run(answer(1))

        with refused("client.own_loop", StoreError):
            portal.run(inside())

    @pytest.mark.parametrize("moment", ["call", "return"])
    def test_ends_the_coroutine_of_a_caller_that_is_interrupted_on_the_way(self, portal, moment):
        """Before it is handed to the loop, or after that but before its future is known."""

        async def hang() -> None:
            await asyncio.Event().wait()

        def interrupt(frame: FrameType, event: str, arg: Any) -> Any:
            if frame.f_code is not asyncio.run_coroutine_threadsafe.__code__:
                return None
            if event == moment:
                raise KeyboardInterrupt
            return interrupt

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

    def test_cancels_the_coroutine_of_a_caller_that_is_interrupted(self, portal):
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

    def test_of_a_portal_that_was_never_used_does_nothing(self, portal):
        portal.close()
        with refused("client.closed", StoreError):
            portal.run(answer(1))

    def test_cancels_what_is_under_way(self, portal):
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

    def test_leaves_no_call_of_that_moment_hanging(self):
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


# Sync methods: they encode values on the caller's thread, and pass every argument on.


asking_first = Flow("asking").wait_for_signal("answer").then(keep).build()
OPEN_FORM = {"type": "object", "additionalProperties": True}
deciding = Flow("deciding").approve("Refund?", name="review", form=OPEN_FORM).build()


class Watched:
    """A value that notes the thread on which it is encoded."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()

    def model_dump(self, mode: str) -> dict[str, int]:
        self.threads.add(threading.current_thread())
        return {"a": 1}


@pytest.fixture
def memory_client(memory_url: str) -> Iterator[Client]:
    with Client(
        memory_url, tasks=[add, echo], flows=[asking_first, deciding, outside]
    ) as memory_client:
        yield memory_client


@pytest.fixture
def queue(memory_client: Client) -> Iterator[JobQueue]:
    with JobQueue(memory_client.store_url) as queue:
        yield queue


def answered(memory_client: Client) -> RunHandle[Any]:
    run = memory_client.submit(asking_first)
    run.signal("answer")
    return run


def report(memory_client: Client, **content: Any) -> None:
    with suppress(NodeNotWaiting):  # not handed over yet
        memory_client.runs.report(memory_client.submit(outside).id, "hand_over", **content)


ENCODING: dict[str, Callable[[Client, Any], Any]] = {
    "enqueue": lambda client, value: client.enqueue(echo, value),
    "enqueue_many": lambda client, value: client.enqueue_many(echo, [value]),
    "submit": lambda client, value: client.submit(asking_first, value),
    "run": lambda client, value: with_timeout(client, value),
    "jobs.enqueue": lambda client, value: client.jobs.enqueue(echo, [value]),
    "jobs.enqueue_many": lambda client, value: client.jobs.enqueue_many(echo, [value]),
    "jobs.find_result": lambda client, value: client.jobs.find_result(echo, [value], default=0),
    "jobs.resume": lambda client, value: client.jobs.resume(parked(client), data=value),
    "runs.submit": lambda client, value: client.runs.submit(asking_first, value),
    "runs.signal": lambda client, value: client.runs.signal(
        client.submit(asking_first).id, "answer", value
    ),
    "runs.broadcast": lambda client, value: client.runs.broadcast("answer", value),
    "runs.report result": lambda client, value: report(client, status="completed", result=value),
    "runs.report progress": lambda client, value: report(client, progress=value),
    "runs.fork": lambda client, value: client.runs.fork(
        answered(client).id, patch={"answer": value}
    ),
    "approvals.decide": lambda client, value: client.approvals.decide(
        f"{client.submit(deciding).id}:review", "approve", data=value
    ),
    "schedules.save of a flow": lambda client, value: client.schedules.save(
        "nightly", asking_first, every="1h", input=value
    ),
    "schedules.save of a task": lambda client, value: client.schedules.save(
        "nightly", echo, every="1h", args=[value]
    ),
    "handle.signal": lambda client, value: client.submit(asking_first).signal("answer", value),
    "handle.fork": lambda client, value: answered(client).fork(patch={"answer": value}),
}


def parked(memory_client: Client) -> str:
    with JobQueue(memory_client.store_url) as queue:
        queue.enqueue("convert", 1)
        job = queue.dequeue("worker-1")
        assert job is not None
        queue.release(job)
        return job.id


def with_timeout(memory_client: Client, value: Any) -> None:
    with pytest.raises(RunTimeout):
        memory_client.run(asking_first, value, timeout=0.001)


class TestCallersThread:
    def test_is_where_every_operation_encodes_that_takes_values(self):
        """One that is new here and takes values has to be listed above."""
        values = {"args", "data", "input", "inputs", "kwargs", "patch", "payload", "progress"}
        taking = {
            name for name, each in OPERATIONS.items() if not values.isdisjoint(each.parameters)
        }
        listed = {name.split(" ")[0] for name in ENCODING}
        assert taking == {name for name in listed if name in OPERATIONS}

    @pytest.mark.parametrize("call", ENCODING.values(), ids=ENCODING)
    def test_is_where_values_are_encoded(self, memory_client, call):
        value = Watched()
        call(memory_client, value)
        assert value.threads == {threading.current_thread()}


class TestArguments:
    """Of the methods that are written by hand; the others pass on whatever they are given."""

    def test_of_clients_reach_the_client(self, memory_url):
        with Client(
            memory_url,
            namespace="shop",
            tasks=[add],
            flows=[asking_first],
            on_conflict="use_existing",
            aging="1m",
            payload_max_bytes=10,
            codec=Reversed(),
        ) as memory_client:
            run = memory_client.submit("asking", 12, id="a")

            assert memory_client.namespace == "shop"
            assert memory_client.submit("asking", 12, id="a").is_new is False
            assert memory_client.task("add") is add
            assert run.events()[0].details["aging_ms"] == 60_000
            with pytest.raises(PayloadTooLarge):
                memory_client.submit("asking", "x" * 10)
        with Client(memory_url, namespace="shop") as plain:
            assert plain.runs.get("a").events[0].value == 21  # without the codec

    def test_of_queues_reach_the_queue(self, memory_url):
        with JobQueue(
            memory_url, namespace="shop", payload_max_bytes=10, codec=Reversed()
        ) as queue:
            id = queue.enqueue("convert", 1)

            assert queue.namespace == "shop"
            assert queue.get_job(id).args == [1]
            with pytest.raises(PayloadTooLarge):
                queue.enqueue("convert", "x" * 10)

    def test_of_submissions_reach_the_run(self, memory_client):
        first = memory_client.submit(asking_first, {"n": 1}, id="a")

        assert first.events()[0].value == {"n": 1}
        assert (
            memory_client.submit(asking_first, 2, id="a", on_conflict="use_existing").is_new
            is False
        )
        with pytest.raises(RunTimeout):
            memory_client.run(asking_first, 2, id="a", on_conflict="use_existing", timeout=0.001)
        with pytest.raises(RunTimeout):
            memory_client.run(asking_first, 2, id="b", timeout=0.001)
        assert memory_client.runs.get("b").events[0].value == 2

    def test_of_many_calls_reach_each_job(self, memory_client):
        [one] = memory_client.enqueue_many(add, [1], kwargs={"b": 2})
        [two] = memory_client.jobs.enqueue_many("add", [1], {"b": 3}, {"queue": "slow"})
        assert one.record().args == [1, 2]
        record = memory_client.jobs.get(two.id)
        assert (record.args, record.queue) == ([1, 3], "slow")

    def test_of_forks_reach_the_new_run(self, memory_client):
        forked = answered(memory_client).fork(
            after="answer", patch={"answer": "no"}, new_id="b", by="ann"
        )
        assert (forked.id, forked.is_new) == ("b", True)
        assert forked.outputs()["answer"] == "no"
        origins = [each.details.get("origin") for each in forked.events()]
        assert [each["by"] for each in origins if each is not None] == ["ann"]

    def test_of_waits_end_them(self, memory_client):
        job = memory_client.enqueue(add, 1)

        with pytest.raises(ResultTimeout):
            job.result(0.001)
        with pytest.raises(ResultTimeout):
            memory_client.jobs.results([job], timeout=0.001)
        [error] = memory_client.jobs.results([job], timeout=0.001, return_errors=True)
        assert isinstance(error, ResultTimeout)
        with pytest.raises(RunTimeout):
            memory_client.submit(asking_first).result(0.001)

    def test_of_handles_give_results_their_type(self, memory_client, queue):
        id = memory_client.enqueue(mirror, Point(1, 2)).id
        queue.ack(claimed(queue), {"x": 2, "y": 1})
        assert memory_client.jobs.handle(id, mirror).result(10) == Point(2, 1)
        assert memory_client.jobs.handle(id).result(10) == {"x": 2, "y": 1}


def claimed(queue: JobQueue) -> QueuedJob:
    job = queue.dequeue("worker")
    assert job is not None
    return job
