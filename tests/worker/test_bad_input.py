"""What a worker cannot use is refused by name before it starts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import zlib
from datetime import timedelta
from functools import partial
from subprocess import PIPE
from typing import Any

import pytest

from perdure import (
    Concurrency,
    InvalidInput,
    JobFailed,
    Rate,
    Retry,
    Status,
    StoreUnreachable,
    Worker,
    task,
)
from perdure.worker.events import WorkerEvent
from tests.support.held import insert_call
from tests.support.refusal import fails, refused
from tests.support.tasks import nothing
from tests.worker import process_tasks


@task(name="nothing")
async def something() -> None:
    pass


BAD_SETTINGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "tasks that are None": ({"tasks": None}, "argument.type", "tasks"),
    "a task for a list": ({"tasks": nothing}, "argument.type", "tasks"),
    "a function for a list": ({"tasks": print}, "argument.type", "tasks"),
    "queues that are a number": ({"queues": 5}, "argument.type", "queues"),
    "no concurrency": ({"concurrency": 0}, "argument.range", "concurrency"),
    "too much concurrency": ({"concurrency": 10_001}, "argument.range", "concurrency"),
    "a concurrency that is no number": ({"concurrency": "many"}, "argument.type", "concurrency"),
    "no lease": ({"lease": 0}, "argument.not_positive", "lease"),
    "no poll": ({"poll": "0s"}, "argument.not_positive", "poll"),
    "no crashes": ({"max_crashes": 0}, "argument.range", "max_crashes"),
    "crashes that are no number": ({"max_crashes": "3"}, "argument.type", "max_crashes"),
    "a payload limit of nothing": ({"payload_max_bytes": 0}, "argument.range", "payload_max_bytes"),
    "something that is no limit": ({"limits": [5]}, "argument.type", "limits"),
    "tags that are a number": ({"tags": 5}, "argument.type", "tags"),
    "a limit for a list": ({"limits": Rate(1, per="1s")}, "argument.type", "limits"),
    "queues as a text": ({"queues": "mail"}, "argument.type", "queues"),
    "a queue without a name": ({"queues": [""]}, "argument.name", "queue"),
    "tags as a text": ({"tags": "gpu"}, "argument.type", "tags"),
    "a lease without an end": ({"lease": "9999999d"}, "argument.range", "lease"),
    "a poll without an end": ({"poll": "9999999d"}, "argument.range", "poll"),
    "a grace without an end": ({"grace": "9999999d"}, "argument.range", "grace"),
    "an abort grace without an end": ({"abort_grace": "9999999d"}, "argument.range", "abort_grace"),
    "a hold-off without an end": ({"hold_off": "9999999d"}, "argument.range", "hold_off"),
    "a retention without an end": (
        {"keep_completed": timedelta.max},
        "argument.range",
        "keep_completed",
    ),
    "a negative poll": ({"poll": -1}, "argument.negative", "poll"),
    "a grace that is no duration": ({"grace": "soon"}, "argument.duration", "grace"),
    "a negative hold-off": ({"hold_off": -1}, "argument.negative", "hold_off"),
    "a retention that is no duration": (
        {"keep_completed": "7 days"},
        "argument.duration",
        "keep_completed",
    ),
    "a namespace without a name": ({"namespace": ""}, "argument.name", "namespace"),
}


@pytest.mark.parametrize("settings, code, name", BAD_SETTINGS.values(), ids=BAD_SETTINGS)
def test_settings_are_refused(settings, code, name):
    with refused(code, InvalidInput, name=name, where=(name,)):
        Worker("memory://", **{"tasks": [nothing], **settings})


UNUSABLE_SETTINGS: dict[str, tuple[dict[str, Any], str, tuple[str, ...] | None]] = {
    "a function for a task": ({"tasks": [print]}, "task.not_a_task", None),
    "two tasks of one name": ({"tasks": [nothing, something]}, "task.duplicate", None),
    "no tasks": ({"tasks": []}, "worker.without_code", ()),
    "an id that cannot be stored": ({"id": "a\x00b"}, "argument.name", ("id",)),
    "no queues": ({"queues": []}, "worker.without_queues", ("queues",)),
    "every namespace": ({"namespace": "*"}, "worker.several_namespaces", ("namespace",)),
    "a limit on nothing": ({"limits": [Concurrency(1)]}, "limit.without_key", ("limits",)),
    "a computed key on a worker": (
        {"limits": [Rate(1, per="1s", key=lambda: "x")]},
        "limit.computed_key",
        ("limits",),
    ),
}


@pytest.mark.parametrize("settings, code, where", UNUSABLE_SETTINGS.values(), ids=UNUSABLE_SETTINGS)
def test_settings_that_make_no_worker_are_refused(settings, code, where):
    with refused(code, InvalidInput, where=where):
        Worker("memory://", **{"tasks": [nothing], **settings})


def test_a_task_that_no_process_could_import_is_refused():
    @task(isolation="process")
    def local() -> None:
        pass

    unnamed = task("unnamed", isolation="process")(lambda: None)
    for each in (local, unnamed):
        with refused("task.not_importable", InvalidInput):
            Worker("memory://", tasks=[each])


TYPED = """
from perdure import InvalidInput, Worker, task
@task(isolation="process")
def work(): pass
try:
    Worker("memory://", tasks=[work])
    print("accepted")
except InvalidInput as error:
    print(error.code)
"""


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["-"], "task.in_main_module"),
        (["-c", TYPED], "task.in_main_module"),
        (["-m", "package"], "task.in_main_module"),
        (["-m", "package.module"], "accepted"),
        (["package/module.py"], "accepted"),
    ],
)
def test_a_task_in_a_main_module_that_cannot_be_imported_is_refused(arguments, expected, tmp_path):
    (package := tmp_path / "package").mkdir()
    for name in ("__main__.py", "module.py"):
        (package / name).write_text(TYPED)
    done = subprocess.run(
        [sys.executable, *arguments], input=TYPED, stdout=PIPE, text=True, check=True, cwd=tmp_path
    )
    assert expected in done.stdout


async def test_run_outside_the_main_thread_names_the_alternative():
    worker = Worker("memory://", tasks=[nothing])
    with refused("worker.not_main_thread", InvalidInput):
        await asyncio.to_thread(worker.run)


async def hear_async(event: WorkerEvent) -> None:
    pass


class HearsAsync:
    async def __call__(self, event: WorkerEvent) -> None:
        pass


@pytest.mark.parametrize(
    "listener, code",
    [
        (None, "argument.type"),
        ("print", "argument.type"),
        (hear_async, "worker.async_listener"),
        (partial(hear_async), "worker.async_listener"),
        (HearsAsync(), "worker.async_listener"),
    ],
)
def test_what_cannot_listen_is_refused(listener, code):
    with refused(code, InvalidInput):
        Worker("memory://", tasks=[nothing]).on(WorkerEvent, listener)


@pytest.mark.parametrize("found_type", [JobFailed, "job_failed", None])
def test_what_is_no_event_type_is_refused(found_type):
    with refused(
        "worker.unknown_event",
        value=found_type if isinstance(found_type, str | None) else repr(found_type),
    ):
        Worker("memory://", tasks=[nothing]).on(found_type, print)


UNREACHABLE = ["postgresql://postgres@127.0.0.1:1/nowhere", "sqlite:////nowhere/at/all/work.db"]


@pytest.mark.parametrize("url", UNREACHABLE)
async def test_an_unreachable_store_is_reported_however_a_worker_is_started(url):
    worker = Worker(url, tasks=[nothing])
    with pytest.raises(StoreUnreachable):
        await asyncio.to_thread(worker.start)
    with pytest.raises(StoreUnreachable):
        await worker.serve()


@pytest.mark.parametrize("url", UNREACHABLE)
def test_an_unreachable_store_is_reported_by_run(url):
    with pytest.raises(StoreUnreachable):
        Worker(url, tasks=[nothing]).run()


UNUSABLE = [
    b'[["two"], {}]',
    b'[[], {"other": 1}]',
    b"[[1, 2, 3], {}]",
    b'[{"1": 1}, {}]',
    b"[[1], []]",
    b"no json",
    b"{}",
]


@pytest.mark.parametrize("isolation", ["async", "process"])
async def test_of_a_foreign_client_fails_its_job_for_good(client, store, start_worker, isolation):
    calls: list[int] = []

    @task(retries=Retry(5, first=0))
    async def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    work: Any = double if isolation == "async" else process_tasks.retry_adding
    await start_worker(work, concurrency=1)
    for stored in UNUSABLE:
        job = await insert_call(store, work.name, stored)
        await fails(client.jobs.handle(job), "job.invalid_input", JobFailed)

    assert calls == []


@pytest.mark.parametrize("found_type", ["async", "sync"])
async def test_results_that_cannot_be_stored_fail_the_job(client, start_worker, found_type):
    results: dict[str, Any] = {
        "object": object(),
        "nan": float("nan"),
        "surrogate": "\ud800",
        "large": "x" * 2_000,
        "cycle": [],
    }
    results["cycle"].append(results["cycle"])

    def give_sync(name: str) -> Any:
        return results[name]

    async def give_async(name: str) -> Any:
        return results[name]

    bodies: dict[str, Any] = {"async": give_async, "sync": give_sync}
    give = task(name="give", retries=Retry(5, first=0))(bodies[found_type])
    worker = await start_worker(give, payload_max_bytes=1_000)
    for name in results:
        with pytest.raises(JobFailed) as caught:
            await (await client.enqueue(give, name)).result(10)
        assert caught.value.failure is not None
        code = "payload.too_large" if name == "large" else "payload.not_serializable"
        assert caught.value.failure.code == code

    assert worker.worker.stats().failed == len(results)
    assert worker.worker.stats().running == 0


class Broken:
    """A codec that fails on request."""

    def __init__(self, where: str) -> None:
        self._where = where

    def encode(self, data: bytes) -> bytes:
        if self._where == "encode":
            raise zlib.error("broken")
        return data

    def decode(self, data: bytes) -> bytes:
        if self._where == "decode":
            raise zlib.error("broken")
        return data


@pytest.mark.parametrize("where", ["encode", "decode"])
@pytest.mark.parametrize("found_type", ["async", "sync"])
async def test_to_a_codec_fails_the_job_and_frees_its_slot(client, start_worker, where, found_type):
    @task(name="work")
    async def work_async() -> int:
        return 1

    @task(name="work")
    def work_sync() -> int:
        return 1

    work: Any = work_async if found_type == "async" else work_sync
    worker = await start_worker(work, codec=Broken(where), concurrency=1)
    for _ in range(2):
        with pytest.raises(JobFailed, match="broken"):
            await (await client.enqueue(work)).result(10)

    assert worker.worker.stats().running == 0


async def test_a_stored_policy_that_cannot_be_read_costs_only_its_job(client, store, start_worker):
    @task
    async def work() -> str:
        return "ran"

    worker = await start_worker(work)
    broken = await insert_call(store, work.name, b"[[], {}]", policy=b"no json")
    with pytest.raises(JobFailed):
        await client.jobs.handle(broken).result(10)

    assert await (await client.enqueue(work)).result(10) == "ran"
    assert worker.worker.stats().running == 0
    assert await client.jobs.handle(broken).status() is Status.FAILED


async def test_a_file_that_is_no_database_is_reported(tmp_path):
    path = tmp_path / "work.db"
    path.write_text("not a database, and long enough to be read as one " * 40)
    with refused("store.not_a_database"):
        await Worker(f"sqlite:///{path}", tasks=[nothing]).serve()
