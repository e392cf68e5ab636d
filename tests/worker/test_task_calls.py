"""How nodes call their tasks: context, inputs, config, schemas and types; steps and values."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    BaseContext,
    Context,
    Flow,
    InvalidFlow,
    InvalidInput,
    MissingSecret,
    Progress,
    Retry,
    RunFailed,
    Worker,
    resource,
    task,
)
from perdure.model.event import NodeCompleted, decode_event
from perdure.model.ids import RunId
from perdure.store.contract import EventsAfter, Store
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import complete, paused
from perdure.worker.events import AttemptRequeued, AttemptRetried, AttemptStarted
from tests.support.refusal import failing, fails, refused
from tests.support.tasks import echo
from tests.worker import process_tasks

# How nodes call their bodies: inputs, config, schemas, checks and kinds, and what is refused.


AGAIN = Retry(3, first=0)
PAGES = resource("pages", list[int])


@task
async def load(number: int) -> dict[str, Any]:
    return {"total": number, "lines": [{"name": "pen"}], "text": "{{ input }}"}


@task
async def charge(amount: int, reason: str = "", *, currency: str = "EUR") -> list[Any]:
    return [amount, reason, currency]


async def events_of(store: Store, run: str, found_type: type[Any]) -> list[Any]:
    id = RunId(run)
    [loaded] = await store.runs.load([EventsAfter(namespace="default", id=id, number=0)])
    assert loaded is not None
    events = [decode_event(id, event.number, event.data) for event in loaded.events]
    return [event for event in events if isinstance(event, found_type)]


class TestInputs:
    async def test_reach_threads_and_processes_and_the_context(self, client, start_worker):
        @task
        def in_thread(amount: int, ctx: Context = CONTEXT) -> list[Any]:
            return [amount, dict(ctx.inputs)]

        inputs = {"amount": "input"}
        thread = Flow("thread").then(in_thread, inputs=inputs).build()
        process = Flow("process").then(process_tasks.inputs_in_process, inputs=inputs).build()
        await start_worker(flows=[thread, process])

        assert await (await client.submit(thread, 7)).result(10) == [7, {"amount": 7}]
        assert await (await client.submit(process, 7)).result(30) == [7, {"amount": 7}]

    async def test_are_converted_to_the_types_of_the_task(self, world):
        class Line(msgspec.Struct):
            name: str

        async def first(lines: list[Line]) -> str:
            return lines[0].name

        first.__annotations__["lines"] = list[Line]
        typed = task(name="first")(first)
        flow = Flow("typed").then(load).then(typed, inputs={"lines": "load.output.lines"}).build()

        assert await (await world.submit(flow, 7)).result(10) == "pen"


class TestConfig:
    async def test_is_filled_in_once(self, client, start_worker):
        @task
        async def echo(text: str, whole: Any, about: str) -> list[Any]:
            return [text, whole, about]

        config = {
            "text": "<{{ order.text }}>",
            "whole": "{{ order.lines }}",
            "about": "{{ run.flow }} {{ run.id }} {{ node.id }}",
        }
        flow = (
            Flow("filling")
            .then(load)
            .then(echo, inputs={"order": "load.output"}, config=config)
            .build()
        )
        await start_worker(flows=[flow])
        run = await client.submit(flow, 7, id="run-7")

        # What was filled in looks like a template, and is not read as one.
        assert await run.result(10) == ["<{{ input }}>", [{"name": "pen"}], "filling run-7 echo"]

    async def test_asks_for_secrets_away_from_the_event_loop(self, world):
        asked_in: list[threading.Thread] = []

        def provide(name: str) -> str:
            asked_in.append(threading.current_thread())
            return "a server knows"

        @task
        async def length(text: str) -> int:
            return len(text)

        flow = Flow("aside").then(length, config={"text": "{{ secret.key }}"}).build()

        assert await (await world.submit(flow, secrets=provide)).result(10) == 14
        assert len(asked_in) == 1
        assert threading.current_thread() not in asked_in

    async def test_that_does_not_fit_the_task_fails_the_node_for_good(self, client, start_worker):
        flow = (
            Flow("wrong")
            .then(load)
            .then(
                charge,
                inputs={"order": "load.output"},
                config={"amount": "{{ order.lines }}"},
                retries=AGAIN,
            )
            .build()
        )
        worker = await start_worker(flows=[flow], hold_off="0s")

        await fails(await client.submit(flow, 7), "job.invalid_input", RunFailed)
        assert worker.worker.stats().retried == 0


class TestSchemas:
    async def test_of_the_input_is_checked_before_the_body(self, client, world):
        ran: list[int] = []

        @task(retries=AGAIN)
        async def work(amount: int) -> int:
            ran.append(amount)
            return amount

        schema = {"properties": {"amount": {"maximum": 5}}}
        flow = Flow("small").then(work, inputs={"amount": "input"}, input_schema=schema).build()

        assert await (await world.submit(flow, 5, hold_off="0s")).result(10) == 5
        await fails(await client.submit(flow, 6), "node.invalid_input", RunFailed)
        assert ran == [5]

    async def test_of_the_output_is_an_error_that_is_retried(self, client, start_worker):
        @task(retries=AGAIN)
        async def guess(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            return {"total": ctx.attempt if ctx.attempt == 3 else "unknown"}

        schema = {"properties": {"total": {"type": "integer"}}}
        flow = Flow("guessing").then(guess, output_schema=schema).build()
        worker = await start_worker(flows=[flow], hold_off="0s")
        assert await (await client.submit(flow)).result(10) == {"total": 3}
        assert worker.worker.stats().retried == 2

    async def test_hold_for_processes_too(self, client, world):
        flow = Flow("process").then(process_tasks.echo_in_process, output_schema={"type": "string"})
        built = flow.build()
        assert await (await world.submit(built, "text")).result(30) == "text"
        await fails(await client.submit(built, 5), "node.check_failed", RunFailed)


class TestCheck:
    async def test_that_is_required_fails_the_node(self, client, world):
        check = {"condition": {"property": "total", "op": "lt", "value": 10}}
        flow = Flow("checked").then(load, check=check).build()
        assert (await (await world.submit(flow, 9)).result(10))["total"] == 9
        await fails(await client.submit(flow, 10), "node.check_failed", RunFailed)

    async def test_that_is_advisory_is_noted(self, world, store):
        schema = {"properties": {"total": {"maximum": 5}}}
        flow = Flow("noted").then(load, check={"schema": schema, "advisory": True}).build()
        run = await world.submit(flow, 7)
        await run.result(10)
        [completed] = await events_of(store, run.id, NodeCompleted)
        assert len(completed.warnings) == 1
        assert completed.warnings[0].startswith("total: ")


class Translate(NodeType):
    """Begins somewhere else, and takes what comes back."""

    name = "translate"
    ports = ("unsure",)

    class Config(NodeConfig):
        text: str
        to: str = "en"

    async def execute(self, config: Config, ctx: AsyncContext) -> Any:
        return paused({"text": config.text, "to": config.to}, name="agency")

    def resume(self, checkpoint: Any, report: Any, ctx: Context) -> Any:
        port = "unsure" if report.result == "?" else ""
        return complete([checkpoint, report.result], port=port)


class TestKind:
    async def test_gets_its_config_and_continues_from_its_checkpoint(self, client, start_worker):
        flow = (
            Flow("translating")
            .use(Translate, {"text": "{{ word }}"}, inputs={"word": "input"})
            .then(lambda value: ["sure", value], name="sure")
            .then(lambda value: ["unsure", value], name="unsure", after="translate:unsure")
            .build()
        )
        worker = await start_worker(flows=[flow])
        found = []
        for count, answer in enumerate(("house", "?"), start=1):
            run = await client.submit(flow, "Haus")
            await worker.emitted(AttemptRequeued, count=count)
            await client.runs.report(run.id, "translate", status="completed", result=answer)
            found.append(await run.result(10))

        checkpoint = {"text": "Haus", "to": "en"}
        assert found == [["sure", [checkpoint, "house"]], ["unsure", [checkpoint, "?"]]]

    async def test_may_execute_scripts_if_its_worker_says_so(self, client, start_worker, world):
        class Ask(NodeType):
            name = "ask"

            def execute(self, config: Any, ctx: Context) -> Any:
                return ctx.allows_scripts

        flow = Flow("asking").use(Ask, {}).build()
        first = await start_worker(flows=[flow])
        found = [await (await client.submit(flow)).result(10)]
        await first.stop()
        found.append(await (await world.submit(flow, allow_scripts=True)).result(10))

        assert found == [False, True]

    def test_scripts_are_allowed_by_true_or_false(self, memory_url):
        with refused("argument.type", name="allow_scripts"):
            Worker(memory_url, tasks=[load], allow_scripts="yes")  # type: ignore[arg-type]


# Which context a body gets, where it stands, and what its steps return.


RETRY_AT_ONCE = Retry(3, first=0, jitter=False)


@dataclass
class Page:
    number: int


def read(number: int) -> Page:
    return Page(number)


async def read_later(number: int) -> Page:
    return Page(number)


def named(ctx: BaseContext) -> str:
    return type(ctx).__name__


class TestACall:
    async def test_gives_each_body_its_own_wherever_it_stands(self, client, start_worker):
        @task
        def last(text: str, ctx: Context = CONTEXT) -> str:
            return f"{text} {named(ctx)}"

        @task
        async def first(ctx: AsyncContext = CONTEXT, text: str = "") -> str:
            return f"{text} {named(ctx)}"

        @task
        async def by_name(text: str, *, named_ctx: AsyncContext = CONTEXT, more: int = 0) -> str:
            return f"{text}{more} {named(named_ctx)}"

        @task
        def without_default(context: Context, text: str) -> str:
            return f"{text} {named(context)}"

        await start_worker(last, first, by_name, without_default)
        jobs: list[Any] = [
            await client.enqueue(last, "a"),
            await client.enqueue(first, text="b"),
            await client.enqueue(by_name, "c", more=1),
            await client.enqueue(without_default, text="d"),  # type: ignore[call-overload]
        ]

        assert await client.jobs.results(jobs, timeout=10) == [
            "a Context",
            "b AsyncContext",
            "c1 AsyncContext",
            "d Context",
        ]

    async def test_gives_a_sync_helper_in_a_thread_the_same_context(self, world):
        def help(ctx: Context) -> list[Any]:
            return [named(ctx), ctx.job_id, ctx.step("shared", read, 2)]

        @task
        async def work(ctx: AsyncContext = CONTEXT) -> list[Any]:
            first = await ctx.step("shared", read, 1)
            return [ctx.job_id, first, *await asyncio.to_thread(help, ctx.in_thread())]

        job = await world.enqueue(work)

        page = {"number": 1}
        assert await job.result(10) == [job.id, page, "Context", job.id, page]

    def test_of_a_plain_function_is_missing(self):
        def work(ctx: Context = CONTEXT) -> str:
            return ctx.job_id

        with refused("task.no_context", InvalidInput, name="job_id"):
            work()


class TestDirectCall:
    """A task that is called as a function gets a local context."""

    def test_of_a_sync_task(self):
        calls: list[str] = []

        def number(text: str) -> int:
            calls.append(text)
            return len(text)

        @task(queue="slow")
        def work(text: str, ctx: Context = CONTEXT, *, more: int = 0) -> list[Any]:
            ctx.progress(50, "half way", {"text": text})
            ctx.check()
            steps = [ctx.step("one", number, text), ctx.step("one", number, text)]
            kept = ctx.step("page", read, 7)
            facts = [ctx.task, ctx.queue, ctx.attempt, ctx.run_id, ctx.flow, ctx.aborted]
            return [steps, kept, facts, dict(ctx.arguments), more, len({ctx.job_id, ""})]

        progress: list[Progress] = []
        facts = ["work", "slow", 1, None, None, False]
        named_ctx = work.local(on_progress=progress.append)("abc", more=2)
        assert named_ctx == [[3, 3], Page(7), facts, {"text": "abc", "more": 2}, 2, 2]
        assert progress == [Progress(percent=50, message="half way", details={"text": "abc"})]
        assert calls == ["abc"]

        assert work("abc", more=2) == named_ctx
        assert work.options(delay="1h")("abc")[4] == 0
        assert calls == ["abc"] * 3  # each call has steps of its own

    async def test_of_an_async_task(self):
        @task
        async def work(ctx: AsyncContext = CONTEXT, number: int = 0) -> list[Any]:
            await ctx.progress(100)
            return [await ctx.step("one", read_later, number), ctx.arguments["number"]]

        progress: list[Progress] = []
        assert await work(number=3) == [Page(3), 3]
        assert await work.local(on_progress=progress.append)(number=4) == [Page(4), 4]
        assert [each.percent for each in progress] == [100]

    def test_without_a_default_and_with_the_callers_own(self):
        @task
        def work(number: int, ctx: Any) -> Any:
            return ctx if isinstance(ctx, str) else ctx.task

        assert [work(3), work(3, "mine"), work(3, ctx="mine")] == ["work", "mine", "mine"]

    def test_with_resources_and_secrets(self, monkeypatch):
        @task
        def work(
            number: int, pages: list[int] = PAGES, ctx: Context = CONTEXT
        ) -> tuple[list[int], str, bool]:
            return [*pages, number], ctx.secret("key"), ctx.resources["pages"] is pages

        local = work.local(resources={"pages": [1]}, secrets={"key": "1234"})
        assert local(2) == ([1, 2], "1234", True)
        monkeypatch.setenv("PERDURE_SECRET_KEY", "5678")
        assert work.local(resources={"pages": []})(2) == ([2], "5678", True)
        with refused("resource.wrong_type", task="work", name="pages"):
            work.local(resources={"pages": 3})(2)
        with refused("resource.missing", task="work", name="pages"):
            work.local(resources={"other": 3})(2)
        with refused("task.missing_secret", MissingSecret, name="key"):
            work.local(resources={"pages": []}, secrets={})(2)

    def test_cannot_pause(self):
        @task
        def work(ctx: Context = CONTEXT) -> None:
            ctx.pause()

        with refused("task.local_pause", InvalidInput, task="work"):
            work()

    def test_refuses_what_it_cannot_use(self):
        async def later(progress: Progress) -> None:
            pass

        wrong: list[dict[str, Any]] = [
            {"on_progress": 3},
            {"on_progress": later},
            {"resources": [3]},
            {"secrets": "text"},
        ]
        for given in wrong:
            with refused("argument.type", InvalidInput):
                echo.local(**given)


class TestStep:
    async def test_returns_what_the_function_declares_each_time(self, client, start_worker):
        seen: list[Page] = []

        @task(retries=RETRY_AT_ONCE)
        async def later(ctx: AsyncContext = CONTEXT) -> int:
            seen.append(await ctx.step("one", read_later, 1))
            seen.append(await ctx.step("two", read, 2))
            if ctx.attempt == 1:
                raise ValueError("again")
            return seen[-1].number

        @task(retries=RETRY_AT_ONCE)
        def in_thread(ctx: Context = CONTEXT) -> int:
            seen.append(ctx.step("three", read, 3))
            if ctx.attempt == 1:
                raise ValueError("again")
            return seen[-1].number

        await start_worker(later, in_thread, hold_off=0)

        assert await (await client.enqueue(later)).result(10) == 2
        assert await (await client.enqueue(in_thread)).result(10) == 3
        assert seen == [Page(1), Page(2)] * 2 + [Page(3)] * 2


class TestAnotherContext:
    def test_is_refused_when_the_task_is_made(self):
        async def later(ctx: Context = CONTEXT) -> None: ...

        def in_thread(context: AsyncContext = CONTEXT) -> None: ...

        wrong: dict[str, Any] = {"name": "ctx", "declared": "Context", "expected": "AsyncContext"}
        with refused("task.other_context", InvalidInput, body="async", **wrong):
            task(later)
        wrong = {"name": "context", "declared": "AsyncContext", "expected": "Context"}
        with refused("task.other_context", InvalidInput, body="sync", **wrong):
            task(retries=3)(in_thread)

    def test_is_refused_in_a_function_and_a_node_type_of_a_flow(self):
        async def later(value: int, ctx: Context) -> int:
            return value

        class Odd(NodeType):
            name = "odd"

            def execute(self, config: Any, ctx: AsyncContext) -> None: ...

        untyped: Any = later
        for flow in (Flow("a").then(untyped, name="x"), Flow("b").use(Odd())):
            with refused("task.other_context", InvalidFlow):
                flow.build()


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Order:
    id: int
    size: Size
    at: datetime


class Invoice(pydantic.BaseModel):
    order: int
    amount: float = pydantic.Field(gt=0)


class Note(TypedDict):
    text: str
    invoice: int


@task
async def to_order(id: int) -> Order:
    return Order(id=id, size=Size.LARGE, at=datetime(2026, 1, 2, tzinfo=UTC))


@task
def to_invoice(order: Order) -> Invoice:
    assert isinstance(order, Order)
    assert (order.size, order.at.tzinfo) == (Size.LARGE, UTC)
    return Invoice(order=order.id, amount=1.5)


@task
async def to_note(invoice: Invoice) -> Note:
    assert isinstance(invoice, Invoice)
    return {"text": "thanks", "invoice": invoice.order}


class TestValues:
    """What goes into nodes and comes out: validated as the types say, for sync and async tasks."""

    async def test_typed_items_and_gathered_values(self, world):
        @task
        def both(parts: dict[str, Invoice]) -> list[float]:
            return sorted(part.amount for part in parts.values())

        flow = (
            Flow("parts")
            .then(to_order)
            .fork(
                a=Flow().then(to_invoice, name="a"),
                b=Flow()
                .then(lambda order: [order, order], name="two")
                .map(to_invoice, name="each")
                .then(lambda invoices: invoices[1], name="second"),
            )
            .join(both)
            .build()
        )

        assert await (await world.submit(flow, 1)).result(10) == [1.5, 1.5]

    async def test_a_value_that_does_not_fit_fails_its_node_at_once(self, client, start_worker):
        flow = Flow("wrong").then(lambda value: value, name="give").then(to_note, retries=5).build()
        await start_worker(flows=[flow])
        wrong: list[Any] = [{"order": "seven", "amount": 1}, {"order": 7, "amount": -1}, {}, []]
        for value in wrong:
            run = await client.submit(flow, value)
            with failing("job.invalid_input", RunFailed) as raised:
                await run.result(10)
            assert raised.value.node == "to_note"
            assert "node_retried" not in [event.type for event in await run.events()]

    @pytest.mark.parametrize("found_type", ["async", "sync"])
    async def test_an_unstorable_output_fails_its_node(self, world, found_type):
        async def odd_async(_: Any) -> Any:
            return object()

        def odd_sync(_: Any) -> Any:
            return {"deep": [object()]}

        odd: Any = odd_async if found_type == "async" else odd_sync
        flow = Flow("odd").then(odd, name="odd", retries=5).build()
        run = await world.submit(flow, 1)
        await fails(run, "payload.not_serializable", RunFailed)

        assert [event.type for event in await run.events()][1:] == ["node_failed", "run_failed"]

    async def test_a_long_run_keeps_few_large_values(self, world, monkeypatch):
        monkeypatch.setattr("perdure.engine.cached_run.VALUES_MAX_BYTES", 1_000)

        @task
        async def grow(value: Any) -> Any:
            return {"text": "x" * 400, "count": value["count"] + 1}

        @task
        async def count(outputs: dict[str, Any]) -> int:
            return sum(int(output["count"]) for output in outputs.values())

        branches = {
            f"b{number}": Flow().loop(
                grow, name=f"loop-{number}", until=lambda value: value["count"] >= 5
            )
            for number in range(6)
        }
        flow = Flow("large").fork(branches).join(count).build()

        assert await (await world.submit(flow, {"count": 0})).result(15) == 30

    async def test_a_loop_whose_check_exits_fails_alone(self, client, start_worker):
        def leave(_: Any) -> bool:
            raise SystemExit(3)

        ends = Flow("ends").loop(echo, until=leave).build()
        goes_on = Flow("goes-on").then(echo).build()
        await start_worker(flows=[ends, goes_on])

        await fails(await client.submit(ends, 1), None, RunFailed, type="SystemExit")
        assert await (await client.submit(goes_on, 2)).result(10) == 2

    async def test_each_of_two_flows_calls_its_own_task_of_one_name(self, client, start_worker):
        flows = []
        for number in (1, 10):

            @task(name="add")
            async def add(value: int, number: int = number) -> int:
                return value + number

            flows.append(Flow(f"adding-{number}").then(add).build())
        await start_worker(flows=flows)

        runs = [await client.submit(flow, 0) for flow in flows]
        assert [await run.result(10) for run in runs] == [1, 10]

    async def test_a_task_that_is_named_like_a_check_of_the_flow_is_a_task(
        self, client, start_worker
    ):
        """Finding 30: its name alone made it a plain check, which runs within the commit."""

        @task(retries=Retry(1, first=0))
        async def add(value: int) -> int:
            return value + 1

        in_threads: list[bool] = []

        @task("counting.add.until", queue="checks", retries=Retry(2, first=0), timeout="300ms")
        def is_enough(value: int, ctx: Context = CONTEXT) -> bool:
            in_threads.append(threading.current_thread() is not threading.main_thread())
            if len(in_threads) == 1:
                raise ValueError("once")
            if len(in_threads) == 2:
                ctx.abort_signal.wait(10)
            return value >= 2

        flow = Flow("counting").loop(add, until=is_enough, name="add").build()
        worker = await start_worker(flows=[flow])

        assert await (await client.submit(flow, 0)).result(10) == 2
        assert in_threads == [True, True, True, True]
        checks = [each for each in worker.all(AttemptStarted) if each.queue == "checks"]
        assert [(each.task, each.attempt) for each in checks] == [
            (is_enough.name, 1),
            (is_enough.name, 2),
            (is_enough.name, 3),
            (is_enough.name, 1),
        ]
        failures = [each.failure.type for each in worker.all(AttemptRetried)]
        assert failures == ["ValueError", "perdure.errors.AttemptTimeout"]
