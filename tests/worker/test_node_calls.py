"""How nodes call their bodies: inputs, config, schemas, checks and kinds, and what is refused."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    Context,
    Flow,
    Retry,
    RunFailed,
    Worker,
    task,
)
from perdure.flows.built import BuiltFlow
from perdure.model.event import NodeCompleted, NodeSkipped, decode_event
from perdure.model.ids import RunId
from perdure.store.contract import EventsAfter, Store
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import complete, paused
from perdure.worker.events import AttemptRequeued
from tests.support.refusal import refused
from tests.worker import process_tasks

AGAIN = Retry(3, first=0)


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
    async def test_are_the_arguments_of_a_task_by_name(self, client, start_worker):
        inputs = {"amount": "load.output.total", "reason": "load.output.lines.0.name"}
        flow = Flow("charging").then(load).then(charge, inputs=inputs).build()
        await start_worker(flows=[flow])

        assert await (await client.submit(flow, 7)).result(10) == [7, "pen", "EUR"]

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

    async def test_are_converted_to_the_types_of_the_task(self, client, start_worker):
        class Line(msgspec.Struct):
            name: str

        async def first(lines: list[Line]) -> str:
            return lines[0].name

        first.__annotations__["lines"] = list[Line]
        typed = task(name="first")(first)
        flow = Flow("typed").then(load).then(typed, inputs={"lines": "load.output.lines"}).build()
        await start_worker(flows=[flow])

        assert await (await client.submit(flow, 7)).result(10) == "pen"


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

    async def test_asks_for_secrets_away_from_the_event_loop(self, client, start_worker):
        asked_in: list[threading.Thread] = []

        def provide(name: str) -> str:
            asked_in.append(threading.current_thread())
            return "a server knows"

        @task
        async def length(text: str) -> int:
            return len(text)

        flow = Flow("aside").then(length, config={"text": "{{ secret.key }}"}).build()
        await start_worker(flows=[flow], secrets=provide)

        assert await (await client.submit(flow)).result(10) == 14
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

        with pytest.raises(RunFailed, match="argument 'amount' of task 'charge'"):
            await (await client.submit(flow, 7)).result(10)
        assert worker.worker.stats().retried == 0

    async def test_with_a_missing_key_names_node_template_and_key(self, client, start_worker):
        flow = missing("error")
        worker = await start_worker(flows=[flow], hold_off="0s")

        with pytest.raises(
            RunFailed, match=r"node 'charge': template '{{ order.totl }}'"
        ) as caught:
            await (await client.submit(flow, 7)).result(10)
        assert "did you mean 'total'" in str(caught.value)
        assert worker.worker.stats().retried == 0

    async def test_with_a_missing_key_may_skip_the_node(self, client, start_worker, store):
        flow = missing("skip")
        await start_worker(flows=[flow])
        run = await client.submit(flow, 7)
        await run.result(10)

        [skipped] = await events_of(store, run.id, NodeSkipped)
        assert skipped.node == "charge"
        assert "order.totl" in skipped.reason

    async def test_with_a_missing_key_may_go_on_with_null(self, client, start_worker):
        flow = missing("default")
        await start_worker(flows=[flow])

        assert await (await client.submit(flow, 7)).result(10) == [7, None, "EUR"]


def missing(on_missing: Any) -> BuiltFlow:
    @task(name="charge", retries=AGAIN)
    async def charge(amount: int, reason: Any) -> list[Any]:
        return [amount, reason, "EUR"]

    config = {"amount": "{{ order.total }}", "reason": "{{ order.totl }}"}
    return (
        Flow(f"missing-{on_missing}")
        .then(load)
        .then(charge, inputs={"order": "load.output"}, config=config, on_missing=on_missing)
        .build()
    )


class TestSchemas:
    async def test_of_the_input_is_checked_before_the_body(self, client, start_worker):
        ran: list[int] = []

        @task(retries=AGAIN)
        async def work(amount: int) -> int:
            ran.append(amount)
            return amount

        schema = {"properties": {"amount": {"maximum": 5}}}
        flow = Flow("small").then(work, inputs={"amount": "input"}, input_schema=schema).build()
        await start_worker(flows=[flow], hold_off="0s")

        assert await (await client.submit(flow, 5)).result(10) == 5
        with pytest.raises(RunFailed, match="node 'work': its input does not fit: amount"):
            await (await client.submit(flow, 6)).result(10)
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

    async def test_hold_for_processes_too(self, client, start_worker):
        flow = Flow("process").then(process_tasks.echo_in_process, output_schema={"type": "string"})
        built = flow.build()
        await start_worker(flows=[built])

        assert await (await client.submit(built, "text")).result(30) == "text"
        with pytest.raises(RunFailed, match="does not satisfy its output_schema"):
            await (await client.submit(built, 5)).result(30)


class TestCheck:
    async def test_that_is_required_fails_the_node(self, client, start_worker):
        check = {"condition": {"property": "total", "op": "lt", "value": 10}}
        flow = Flow("checked").then(load, check=check).build()
        await start_worker(flows=[flow])

        assert (await (await client.submit(flow, 9)).result(10))["total"] == 9
        with pytest.raises(RunFailed, match="node 'load': the output does not satisfy its check"):
            await (await client.submit(flow, 10)).result(10)

    async def test_that_is_advisory_is_noted(self, client, start_worker, store):
        schema = {"properties": {"total": {"maximum": 5}}}
        flow = Flow("noted").then(load, check={"schema": schema, "advisory": True}).build()
        await start_worker(flows=[flow])
        run = await client.submit(flow, 7)
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
    async def test_gets_its_config_and_goes_on_from_its_checkpoint(self, client, start_worker):
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
            await worker.told(AttemptRequeued, count=count)
            await client.runs.report(run.id, "translate", status="completed", result=answer)
            found.append(await run.result(10))

        checkpoint = {"text": "Haus", "to": "en"}
        assert found == [["sure", [checkpoint, "house"]], ["unsure", [checkpoint, "?"]]]

    async def test_may_execute_scripts_only_if_its_worker_says_so(self, client, start_worker):
        class Ask(NodeType):
            name = "ask"

            def execute(self, config: Any, ctx: Context) -> Any:
                return ctx.allows_scripts

        flow = Flow("asking").use(Ask, {}).build()
        first = await start_worker(flows=[flow])
        found = [await (await client.submit(flow)).result(10)]
        await first.stop()
        await start_worker(flows=[flow], allow_scripts=True)
        found.append(await (await client.submit(flow)).result(10))

        assert found == [False, True]

    def test_scripts_are_allowed_by_true_or_false(self, memory_url):
        with refused("argument.type", name="allow_scripts"):
            Worker(memory_url, tasks=[load], allow_scripts="yes")  # type: ignore[arg-type]
