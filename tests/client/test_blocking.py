"""The blocking face: the same names, from any thread, and nothing left behind."""

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
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from perdure import (
    AsyncClient,
    AsyncJobHandle,
    AsyncJobQueue,
    AsyncRunHandle,
    Client,
    JobFailed,
    JobHandle,
    JobQueue,
    NoResult,
    ResultTimeout,
    RunFailed,
    RunHandle,
    RunStatus,
    Status,
    StoreError,
    Worker,
    task,
)
from perdure.client.client import AsyncTransactionClient
from perdure.client.facade import followed
from perdure.client.portal import Portal
from perdure.client.sync import SyncJobs, TransactionClient
from perdure.operations.jobs import Jobs
from tests.client.flows import asking, failing, ordering
from tests.client.tasks import add, echo, embed
from tests.support.refusal import refused


@task
def fail() -> None:
    raise ValueError("no")


@pytest.fixture
def client(store_url: str) -> Iterator[Client]:
    with Client(store_url, tasks=[add]) as client:
        yield client


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


def public_methods(face: type) -> dict[str, list[tuple[str, Any, Any]]]:
    methods = inspect.getmembers(face, inspect.isfunction)
    return {name: parameters(method) for name, method in methods if not name.startswith("_")}


class TestFaces:
    @pytest.mark.parametrize("blocking, target", [(Client, AsyncClient), (JobQueue, AsyncJobQueue)])
    def test_take_what_their_async_twins_take(self, blocking, target):
        assert public_methods(blocking) == public_methods(target)
        assert parameters(blocking) == parameters(target)

    def test_in_transactions_take_what_their_async_twins_take(self):
        assert public_methods(TransactionClient) == public_methods(AsyncTransactionClient)
        assert parameters(TransactionClient) == parameters(AsyncTransactionClient)

    def test_of_handles_have_what_their_twins_have(self):
        asked = {"status", "progress"}  # properties here, methods without arguments there
        blocking, target = public_methods(JobHandle), public_methods(AsyncJobHandle)

        assert asked.isdisjoint(blocking)
        assert blocking == {name: each for name, each in target.items() if name not in asked}
        assert all(isinstance(getattr(JobHandle, name), property) for name in asked)

    def test_of_runs_have_what_their_twins_have(self):
        blocking, target = public_methods(RunHandle), public_methods(AsyncRunHandle)

        assert target.pop("status") == parameters(lambda self: None)
        assert blocking == target
        assert isinstance(RunHandle.status, property)

    def test_carry_the_documentation_of_their_twins(self):
        assert Client.enqueue.__doc__ == AsyncClient.enqueue.__doc__
        assert SyncJobs.list.__doc__ == Jobs.list.__doc__


@pytest.mark.usefixtures("working")
class TestClient:
    def test_waits_for_results(self, client):
        job = client.enqueue(client.task("add").options(group="run-1"), 1, b=2)

        assert job.result(timeout=30) == 3
        assert (job.status, job.is_new) == (Status.COMPLETED, True)
        assert client.jobs.find_result(add, [1, 2]) == 3
        assert client.jobs.get(job.id).result == 3
        assert client.jobs.count(status="completed", group="run-1") == 1

    def test_enqueues_many(self, client):
        jobs = client.enqueue_many(add, [1, (2, 3)])

        assert client.jobs.results(jobs, timeout=30) == [2, 5]

    def test_reads_inputs_on_the_thread_of_the_caller(self, client):
        threads: list[threading.Thread] = []

        def inputs() -> Iterator[int]:
            threads.append(threading.current_thread())
            yield 1

        client.enqueue_many(add, inputs())

        assert threads == [threading.current_thread()]

    def test_raises_typed_errors(self, client):
        job = client.enqueue(fail)

        with pytest.raises(JobFailed, match="ValueError: no"):
            job.result(timeout=30)
        assert [each.failure.message for each in job.attempts()] == ["no"]
        with pytest.raises(NoResult):
            client.jobs.find_result(fail)

    def test_watches(self, client):
        job = client.enqueue(embed, "hello")

        updates = list(job.watch())

        assert updates[-1].status is Status.COMPLETED
        assert job.progress.percent == 100

    def test_serves_many_threads_at_once(self, client):
        def one(number: int) -> Any:
            return client.enqueue(echo, number).result(timeout=60)

        with ThreadPoolExecutor(16) as threads:
            assert list(threads.map(one, range(200))) == list(range(200))


class TestRuns:
    @pytest.fixture(autouse=True)
    def serving(self, store_url: str) -> Iterator[None]:
        running = Worker(store_url, flows=[ordering, asking, failing]).start()
        yield
        running.shutdown()
        running.join()

    def test_give_results(self, client):
        run = client.submit(ordering, 3, id="order-3")

        assert run.result(timeout=30) == 6
        assert (run.id, run.is_new, run.status) == ("order-3", True, RunStatus.COMPLETED)
        assert run.outputs()["total"] == 6
        assert list(run.watch()) == run.events()
        assert [each.id for each in client.runs.list(flow=ordering)] == ["order-3"]

    def test_are_acted_on(self, client):
        run = client.submit(asking, 3)

        assert client.runs.pause(run.id, reason="maintenance", by="ann").after is RunStatus.PAUSED
        assert client.runs.get(run.id).reason == "maintenance"
        client.runs.resume(run.id)
        client.runs.signal(run.id, "answer", "yes")
        assert run.result(timeout=30) == "yes"
        assert client.runs.handle(run.id).fork(after="keep", patch={"keep": 1}).is_new
        assert client.runs.handle(run.id).children() == []

    def test_raise_typed_errors(self, client):
        run = client.submit(failing, 3)

        with pytest.raises(RunFailed, match="out of paper"):
            run.result(timeout=30)
        assert client.runs.retry(run.id).after is RunStatus.RUNNING

    def test_are_written_as_json_on_the_thread_of_the_caller(self, client):
        threads: list[threading.Thread] = []

        class Model:
            def model_dump(self, mode: str) -> int:
                threads.append(threading.current_thread())
                return 3

        client.submit(ordering, Model())  # type: ignore[misc]

        assert set(threads) == {threading.current_thread()}


class TestOperating:
    def test_reaches_everything(self, client):
        job = client.enqueue(add.options(group="run-1"), 1)

        assert client.jobs.disable(job.id).after is Status.DISABLED
        assert client.jobs.enable(job.id).after is Status.WAITING
        assert job.cancel().after is Status.CANCELLED
        assert job.cancel().was_finished
        assert job.retry().after is Status.WAITING
        assert client.jobs.cancel_group("run-1").cancelled == 1
        client.queues.pause("default", by="ann")
        assert [each.paused_by for each in client.queues.list() if each.is_paused] == ["ann"]
        client.queues.resume("default")
        assert [each.total for each in client.queues.list()] == [1]
        assert [each.id for each in client.jobs.list(limit=1)] == [job.id]
        assert client.jobs.handle(job.id).record().status is Status.CANCELLED
        assert list(client.workers.list()) == []

    def test_times_out(self, client):
        job = client.enqueue(add, 1)

        with pytest.raises(ResultTimeout):
            job.result(timeout=0.01)


class TestWatch:
    def test_may_be_left_early(self, client):
        job = client.enqueue(add, 1)

        for update in job.watch():
            assert update.status is Status.WAITING
            break

        assert job.cancel().after is Status.CANCELLED

    def test_may_outlive_its_client(self, client):
        updates = client.enqueue(add, 1).watch()
        next(updates)
        client.close()

        with pytest.raises(StoreError, match="closed"):
            next(updates)

    def test_can_be_interrupted_while_it_takes_its_time_to_end(self):
        async def updates() -> AsyncGenerator[int, None]:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.Event().wait()
                yield 1
            finally:
                for _ in range(100):  # until whoever was interrupted has come to close it
                    await asyncio.sleep(0.001)

        async def nothing() -> None: ...

        portal = Portal(nothing)
        with pytest.raises(KeyboardInterrupt):
            next(followed(portal, updates()))

        portal.close()


class TestLifetime:
    def test_opens_on_first_use_and_starts_no_thread_before(self, memory_url):
        before = threading.active_count()
        client = Client(memory_url)
        assert threading.active_count() == before

        client.enqueue(add, 1)
        assert threading.active_count() == before + 1

        client.close()
        assert threading.active_count() == before

    def test_ends_with_close_for_good(self, memory_url):
        client = Client(memory_url)
        client.enqueue(add, 1)
        client.close()
        client.close()

        with refused("client.closed", StoreError):
            client.enqueue(add, 1)

    def test_ends_when_nobody_has_the_client_any_more(self, memory_url):
        client = Client(memory_url)
        client.enqueue(add, 1)
        [thread] = [each for each in threading.enumerate() if each.name == "perdure-client"]

        del client
        gc.collect()

        thread.join(10)
        assert not thread.is_alive()

    def test_goes_on_while_a_handle_is_left(self, memory_url):
        job = Client(memory_url).enqueue(add, 1)
        gc.collect()

        assert job.status is Status.WAITING

    def test_ends_those_who_wait_when_another_thread_closes(self, memory_url):
        client = Client(memory_url)
        job = client.enqueue(add, 1)
        updates = job.watch()
        next(updates)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(job.result)
            client.close()

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
        with Client(sqlite_url) as client:
            assert client.jobs.count() == 1

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
                    os._exit(0 if 'before the process forked' in str(error) else 1)
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
        with Client(memory_url) as client:
            assert client.enqueue(add, 1).status is Status.WAITING


def run_program(text: str) -> tuple[int, str]:
    """Run a program with all warnings on; its exit code and what it had to say."""
    head = "from perdure import Client, StoreError\nfrom tests.client.tasks import add\n"
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
