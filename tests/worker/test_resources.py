"""Resources: opened once per process, built for each job, injected into bodies and contexts."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pytest

from perdure import (
    CONTEXT,
    BaseContext,
    Context,
    Flow,
    InvalidInput,
    JobFailed,
    NodeType,
    Permanent,
    Retry,
    RunFailed,
    Worker,
    resource,
    run_flow,
    run_flow_async,
    task,
)
from perdure.testing import AsyncKit
from tests.support.refusal import failing, fails, refused
from tests.support.tasks import nothing
from tests.worker import resource_tasks as tasks
from tests.worker.conftest import StartWorker
from tests.worker.resource_tasks import DB, NOTES, Pool, Session

BODIES = (tasks.in_thread, tasks.on_loop, tasks.in_process, tasks.async_in_process)
PROVIDERS: tuple[Callable[[BaseContext], Any], ...] = (
    tasks.provide,
    tasks.provide_async,
    tasks.provide_and_close,
    tasks.provide_and_close_async,
)

Notes = Callable[[], list[tuple[str, int]]]


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    """What was opened and closed so far, and in which process."""
    file = tmp_path / "notes"
    file.touch()
    monkeypatch.setenv(NOTES, str(file))

    def read() -> list[tuple[str, int]]:
        lines = file.read_text(encoding="utf-8").splitlines()
        return [(text, int(pid)) for text, _, pid in (line.rpartition(" ") for line in lines)]

    return read


CACHE = resource("cache", dict[str, str])


def opening(**values: Any) -> Callable[[], Any]:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[dict[str, Any]]:
        yield values

    return lifespan


class TestBodies:
    @pytest.mark.parametrize("provide", PROVIDERS)
    async def test_get_resources_in_threads_on_the_loop_and_in_processes(
        self, client, start_worker, notes, provide
    ):
        await start_worker(
            *BODIES, lifespan=tasks.lifespan, provide=provide, provides=["session"], concurrency=2
        )

        for body in BODIES:
            assert await (await client.enqueue(body, tenant="ann")).result(30) == ["ann", True]
            with failing(None, JobFailed, type="ValueError"):
                await (await client.enqueue(body, tenant="bad")).result(30)

        if provide in (tasks.provide_and_close, tasks.provide_and_close_async):
            ends = [text for text, _ in notes() if text != "opened"]
            assert ends == ["committed", "rolled back"] * len(BODIES)

    async def test_share_what_is_opened_once_per_process_and_closed_at_the_end(
        self, client, start_worker, notes
    ):
        @task
        def pool_here(db: Pool = DB) -> int:
            return db.pid

        used = (pool_here, tasks.pool_in_process, tasks.without_resources)
        running = await start_worker(*used, lifespan=tasks.lifespan, concurrency=1)
        assert notes() == [("opened", os.getpid())]
        free = await (await client.enqueue(tasks.without_resources)).result(30)
        assert len(notes()) == 1  # its process opened nothing: no body asked for it

        for _ in range(2):
            assert await (await client.enqueue(pool_here)).result(10) == os.getpid()
            assert await (await client.enqueue(tasks.pool_in_process)).result(30) == free
        assert notes() == [("opened", os.getpid()), ("opened", free)]
        await running.stop()

        assert notes()[2:] == [("closed", free), ("closed", os.getpid())]

    async def test_get_them_in_nodes_with_the_facts_of_their_job(self, world):
        facts: list[tuple[object, ...]] = []

        def provide(ctx: BaseContext) -> dict[str, Any]:
            facts.append((ctx.task, ctx.flow, ctx.run_id, ctx.node, dict(ctx.arguments)))
            return {"session": Session("ann", Pool())}

        class Ask(NodeType):
            name = "ask"
            resources = (tasks.SESSION,)

            def execute(self, config: Any, ctx: Context) -> str:
                return f"{ctx.resources['session'].tenant} in {ctx.flow}"

        @task
        def plain(number: int) -> int:
            return number

        @task
        def asking(number: int, session: Session = tasks.SESSION) -> str:
            return f"{session.tenant} {number}"

        def ending(value: str, session: Session = tasks.SESSION) -> str:
            return f"{value} {session.tenant}"

        flow = (
            Flow("asking")
            .then(plain)
            .then(asking)
            .then(ending, name="ending")
            .use(Ask(), name="ask")
            .build()
        )
        run = await world.submit(flow, 7, provide=provide, provides=["session"])

        assert await run.result(10) == "ann in asking"
        assert [node.output for node in await run.nodes() if node.id == "ending"] == ["ann 7 ann"]
        assert facts == [  # not for tasks that cannot get it
            ("asking", "asking", run.id, "asking", {"number": 7}),
            ("asking.ending", "asking", run.id, "ending", {"value": "ann 7"}),
            ("asking.ask", "asking", run.id, "ask", {"config": {}}),
        ]

    async def test_fail_if_what_is_built_cannot_be_closed(self, world):
        @contextmanager
        def provide(ctx: BaseContext) -> Iterator[dict[str, Any]]:
            yield {"session": Session("ann", Pool())}
            raise OSError("cannot commit")

        @task
        def save(session: Session = tasks.SESSION) -> str:
            return "saved"

        job = await world.enqueue(save, provide=provide, provides=["session"])
        await fails(job, None, JobFailed, type="OSError")

    async def test_mask_secrets_that_the_factory_reads(self, world):
        def provide(ctx: BaseContext) -> dict[str, Any]:
            return {"session": Session(ctx.secret("key"), Pool())}

        @task
        def leak(session: Session = tasks.SESSION) -> str:
            return session.tenant

        settings = {"provide": provide, "provides": ["session"], "secrets": {"key": "very secret"}}
        assert await (await world.enqueue(leak, **settings)).result(10) == "***"


class TestRefused:
    async def test_a_missing_or_wrong_resource_keeps_the_worker_from_starting(
        self, store_url, client
    ):
        @task
        def load(id: int, db: Pool = DB, cache: dict[str, str] = CACHE) -> None:
            pass

        class Ask(NodeType):
            name = "ask"
            resources = (resource("model", str),)

            def execute(self, config: Any, ctx: Context) -> None:
                pass

        flow = Flow("uses").then(load).use(Ask(), name="ask").build()
        parent = Flow("parent").flow(flow, name="child").build()

        with refused("resource.missing", InvalidInput, task="load", name="db", nearest=()) as first:
            await Worker(store_url, flows=[parent]).serve()
        assert [fault.args["name"] for fault in first.value.faults] == ["db", "cache", "model"]
        with refused("resource.missing", task="uses.ask", name="model", known=("db", "cache")):
            await Worker(store_url, flows=[parent], lifespan=opening(db=Pool(), cache={})).serve()
        with refused("resource.missing", task="load", name="cache", nearest=("cach",)):
            await Worker(
                store_url, flows=[parent], lifespan=opening(db=Pool(), cach={}, model="")
            ).serve()
        with refused("resource.wrong_type", task="load", name="db", expected="Pool"):
            await Worker(
                store_url, flows=[parent], lifespan=opening(db="a pool", cache={}, model="")
            ).serve()
        with refused("resource.missing"):  # also in a thread, which ends
            Worker(store_url, flows=[parent]).start()
        assert not (await client.workers.list()).items

    @pytest.mark.parametrize(
        "code, values", [("resource.not_named", Pool()), ("resource.given_twice", {"session": 1})]
    )
    async def test_an_unusable_lifespan_keeps_the_worker_from_starting(
        self, store_url, code, values
    ):
        @asynccontextmanager
        async def lifespan() -> AsyncIterator[Any]:
            yield values

        built: dict[str, Any] = {"provide": tasks.provide, "provides": ["session"]}
        with refused(code, InvalidInput):
            await Worker(store_url, tasks=[nothing], lifespan=lifespan, **built).serve()

    async def test_a_lifespan_that_fails_fails_the_start(self, store_url, client):
        @asynccontextmanager
        async def lifespan() -> AsyncIterator[None]:
            if store_url:
                raise ConnectionError("no database")
            yield

        with pytest.raises(ConnectionError):
            await Worker(store_url, tasks=[nothing], lifespan=lifespan).serve()
        assert not (await client.workers.list()).items

    async def test_a_lifespan_that_fails_to_close_is_logged(self, start_worker, caplog):
        @asynccontextmanager
        async def lifespan() -> AsyncIterator[None]:
            yield
            raise ConnectionError("gone")

        running = await start_worker(nothing, lifespan=lifespan)
        with caplog.at_level(logging.ERROR, "perdure.worker"):
            await running.stop()

        [logged] = [each for each in caplog.records if each.exc_info]
        assert logged.exc_info[0] is ConnectionError

    @pytest.mark.parametrize(
        "built, code",
        [
            ({"session": "text"}, "resource.wrong_type"),
            ({"other": 1}, "resource.other_names"),
            ({}, "resource.other_names"),
            ({"session": 1, "more": 2}, "resource.other_names"),
            ("text", "resource.not_named"),
        ],
    )
    async def test_wrong_values_for_a_job_fail_it_for_good(self, world, built, code):
        @task(retries=Retry(3, first=0))
        def save(session: Session = tasks.SESSION) -> None:
            pass

        job = await world.enqueue(save, provide=lambda ctx: built, provides=["session"])
        await fails(job, code, JobFailed)

    async def test_a_missing_name_in_the_context_fails_the_job_for_good(self, world):
        @task(retries=Retry(3, first=0))
        def read(ctx: Context = CONTEXT) -> None:
            assert "db" in ctx.resources
            assert ctx.resources.get("other") is None
            ctx.resources["other"]

        job = await world.enqueue(read, lifespan=opening(db=1))
        await fails(job, "resource.missing", JobFailed)

    @pytest.mark.parametrize(
        "code, settings",
        [
            ("resource.provides_nothing", {"provide": tasks.provide}),
            ("resource.provides_nothing", {"provides": ["session"]}),
            ("argument.type", {"lifespan": tasks.lifespan}),
            ("argument.type", {"provide": {"session": 1}, "provides": ["session"]}),
            ("argument.type", {"provide": tasks.provide, "provides": "session"}),
            ("argument.name", {"provide": tasks.provide, "provides": [""]}),
            ("resource.not_importable", {"lifespan": opening(db=1)}),
            ("resource.not_importable", {"provide": lambda ctx: {}, "provides": ["session"]}),
        ],
    )
    def test_settings_that_cannot_work(self, code, settings):
        if code == "argument.type" and "lifespan" in settings:
            settings = {"lifespan": settings["lifespan"]()}
        with refused(code, InvalidInput):
            Worker("memory://", tasks=[tasks.pool_in_process], **settings)

    async def test_a_resource_passed_by_the_caller(self, client):
        @task
        def load(id: int, db: Pool = DB, **more: Any) -> None:
            pass

        for options in ({"db": Pool()}, {"db": None}):
            with refused("task.resource_given", InvalidInput, name="db", task="load"):
                await client.enqueue(load, 1, **options)
        with refused("task.invalid_call", InvalidInput):
            await client.enqueue(load, 1, Pool())

    def test_a_declaration_without_a_class(self):
        class Unchecked(Protocol):
            def query(self) -> None: ...

        several: list[Any] = [Unchecked, "Pool", None]
        for declared in several:
            with refused("resource.not_a_type", InvalidInput, name="db"):
                resource("db", declared)
        with refused("argument.name", InvalidInput):
            resource("", Pool)

    def test_a_body_that_is_called_without_its_resource(self):
        @task
        def load(id: int, db: Pool = DB) -> object:
            return db.pid

        assert load(1, Pool()) == os.getpid()
        with refused("resource.not_given", InvalidInput, name="db", attribute="pid"):
            load(1)


@runtime_checkable
class Store(Protocol):
    def find(self, id: int) -> str: ...


STORE = resource("store", Store)


class FakeStore:
    def find(self, id: int) -> str:
        return f"fake {id}"


@task
def find(id: int, store: Store = STORE) -> str:
    return store.find(id)


class TestFakes:
    flow = Flow("finding").then(find).build()

    def test_are_passed_to_run_flow(self):
        assert run_flow(self.flow, 3, resources={"store": FakeStore()}) == "fake 3"

    async def test_that_do_not_fit_are_refused(self):
        for resources in ({}, None, {"store": 3}):
            code = "resource.wrong_type" if resources else "resource.missing"
            with refused(code, InvalidInput, task="find", name="store"):
                await run_flow_async(self.flow, 3, resources=resources)
            async with AsyncKit(resources=resources) as kit:
                with refused(code, Permanent, task="find", name="store"):
                    await kit.submit(self.flow, 3)
        not_named: Any = [3]
        with refused("argument.type", InvalidInput):
            await run_flow_async(self.flow, 3, resources=not_named)

    async def test_are_passed_to_a_kit(self):
        async with AsyncKit(resources={"store": FakeStore()}) as kit:
            run = await kit.submit(self.flow, 3)
            await run.assert_completed("fake 3")
            assert [(call.args, call.kwargs) for call in kit.calls_of(find)] == [((3,), {})]

    async def test_are_not_needed_for_tasks_that_are_faked(self):
        async with AsyncKit(fakes={find: lambda id: f"faked {id}"}) as kit:
            await (await kit.submit(self.flow, 3)).assert_completed("faked 3")

    async def test_are_refused_for_child_processes(self):
        flow = Flow("apart").then(tasks.pool_in_process).build()
        with refused("resource.not_importable", InvalidInput, task="pool_in_process"):
            await run_flow_async(flow, resources={"db": Pool()})


async def test_a_failed_run_names_the_node_whose_resource_does_not_fit(
    client, start_worker: StartWorker
):
    flow = Flow("finding").then(find).build()
    await start_worker(flows=[flow], provide=lambda ctx: {"store": 3}, provides=["store"])
    with failing("resource.wrong_type", RunFailed) as failed:
        await (await client.submit(flow, 3)).result(10)
    assert failed.value.node == "find"
