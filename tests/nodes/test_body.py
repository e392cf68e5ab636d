"""The task that executes a type: which method is called, with what, and what comes of it."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from perdure.errors import ExternalFailed, InvalidInput, Permanent
from perdure.model.wait import Report, ReportStatus
from perdure.nodes.call import node_type_task
from perdure.tasks.context import AsyncContext, Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import Complete, Pause, complete, paused
from tests.nodes.contexts import async_context, context, paused_before
from tests.support.refusal import refused

DONE = Report(status=ReportStatus.COMPLETED, result=[1], port="late")


class Greet(NodeType):
    """Greets."""

    name = "greet"

    class Config(NodeConfig):
        whom: str
        times: int = 1
        loud: bool = False

    def execute(self, config: Config, ctx: Context) -> Any:
        return [config.whom, config.times, config.loud, threading.current_thread().name]


class Ask(NodeType):
    name = "ask"
    poll_every = timedelta(minutes=7)

    async def execute(self, config: Any, ctx: AsyncContext) -> Any:
        await asyncio.sleep(0)
        return paused({"job": 3})

    def resume(self, checkpoint: Any, report: Report, ctx: Context) -> Any:
        return complete([checkpoint, report.result, threading.current_thread().name], "resumed")

    def poll(self, checkpoint: Any, ctx: Context) -> Any:
        if checkpoint == "gone":
            return "nothing"
        return DONE if checkpoint == {"job": 3} else None


class Wait(NodeType):
    name = "wait"

    def execute(self, config: Any, ctx: Context) -> Any:
        return paused({"job": 4})


class TestTheTask:
    def test_has_the_name_of_the_node_and_the_words_of_the_kind(self):
        task = node_type_task(Greet(), "orders.hello")

        assert (task.name, task.__doc__, task.retry) == ("orders.hello", "Greets.", None)
        assert task.context_parameter == "ctx"

    def test_runs_in_a_thread_unless_a_method_is_async(self):
        assert not node_type_task(Greet(), "a").is_async
        assert node_type_task(Ask(), "b").is_async


class TestTheConfig:
    def test_becomes_that_of_the_kind(self):
        given = {"whom": "Ann", "times": 2, "loud": True}

        assert node_type_task(Greet(), "a")(given, context())[:3] == ["Ann", 2, True]

    def test_takes_numbers_that_templates_left_as_texts(self):
        given = {"whom": "12", "times": "3", "loud": "true"}

        assert node_type_task(Greet(), "a")(given, context())[:3] == ["12", 3, True]

    def test_may_be_absent_where_nothing_is_required(self):
        assert isinstance(node_type_task(Wait(), "a")(None, context()), Pause)

    @pytest.mark.parametrize(
        "config, told",
        [
            ({"whom": 3}, "config 'whom' of node type 'greet': expected str, got int"),
            ({"whom": "Ann", "times": "x"}, "config 'times' of node type 'greet': expected int"),
            ({}, "config of node type 'greet': object missing required field whom"),
            ({"whom": "Ann", "tmes": 3}, "unknown field tmes"),
            ([1], "config of node type 'greet': expected object, got array"),
            ("{{", "config of node type 'greet'"),
        ],
    )
    def test_is_refused_for_good_if_it_does_not_fit(self, config, told):
        with pytest.raises(Permanent) as caught:
            node_type_task(Greet(), "a")(config, context())

        assert told in str(caught.value)


class TestAPause:
    async def test_is_asked_about_as_often_as_the_kind_says(self):
        pause = await node_type_task(Ask(), "a")({}, async_context())

        assert pause == Pause(checkpoint={"job": 3}, poll=timedelta(minutes=7))

    def test_is_not_asked_about_if_the_kind_cannot(self):
        assert node_type_task(Wait(), "a")({}, context()) == Pause(checkpoint={"job": 4})

    async def test_keeps_what_it_says_itself(self):
        class Often(Ask):
            async def execute(self, config: Any, ctx: AsyncContext) -> Any:
                return paused(poll="3s")

        pause = await node_type_task(Often(), "a")({}, async_context())

        assert pause.poll == timedelta(seconds=3)

    async def test_is_resumed_with_checkpoint_and_report(self):
        ctx = async_context(paused_before({"job": 3}, DONE))

        result = await node_type_task(Ask(), "a")({"whom": 3}, ctx)

        assert result.port == "resumed"
        assert result.output[:2] == [{"job": 3}, [1]]
        # A plain method of a kind with async ones must not block the loop.
        assert result.output[2] != threading.current_thread().name

    def test_gives_the_result_of_the_report_unless_the_kind_says_otherwise(self):
        ctx = context(paused_before({"job": 4}, DONE))

        assert node_type_task(Wait(), "a")({}, ctx) == Complete(output=[1], port="late")

    def test_fails_with_what_was_reported(self):
        report = Report(status=ReportStatus.FAILED, error="out of paper")

        with pytest.raises(ExternalFailed, match="out of paper"):  # which its retries may see to
            node_type_task(Wait(), "a")({}, context(paused_before(None, report)))

    async def test_polling_gives_the_report_as_plain_json(self):
        ctx = async_context(paused_before({"job": 3}, DONE), part="poll")

        found = await node_type_task(Ask(), "a")({}, ctx)

        assert found == {"status": "completed", "result": [1], "port": "late"}

    async def test_polling_gives_nothing_if_there_is_nothing_new(self):
        ctx = async_context(paused_before({"job": 9}, DONE), part="poll")

        assert await node_type_task(Ask(), "a")({}, ctx) is None

    async def test_polling_refuses_what_is_no_report(self):
        ctx = async_context(paused_before("gone", DONE), part="poll")

        with pytest.raises(Permanent, match=r"poll\(\) returns a Report or None, not str"):
            await node_type_task(Ask(), "a")({}, ctx)

    async def test_polling_without_a_pause_is_refused(self):
        with refused("node_type.no_pause_to_poll", Permanent, type="ask"):
            await node_type_task(Ask(), "a")({}, async_context(part="poll"))


class TestMethods:
    def test_that_find_the_input_wrong_fail_for_good(self):
        class Picky(Wait):
            def execute(self, config: Any, ctx: Context) -> Any:
                raise InvalidInput("too blue")

        with pytest.raises(Permanent, match="too blue"):
            node_type_task(Picky(), "a")({}, context())

    async def test_that_are_async_and_find_the_input_wrong_fail_for_good(self):
        class Picky(Ask):
            async def execute(self, config: Any, ctx: AsyncContext) -> Any:
                raise InvalidInput("too blue")

        with pytest.raises(Permanent, match="too blue"):
            await node_type_task(Picky(), "a")({}, async_context())

    def test_that_raise_anything_else_leave_it_to_the_retries(self):
        class Broken(Wait):
            def execute(self, config: Any, ctx: Context) -> Any:
                raise KeyError("blue")

        with pytest.raises(KeyError):
            node_type_task(Broken(), "a")({}, context())

    def test_that_return_a_coroutine_without_being_async_are_told_so(self):
        async def later() -> int:
            return 3

        class Sly(Wait):
            def execute(self, config: Any, ctx: Context) -> Any:
                return later()

        with pytest.raises(Permanent, match=r"execute\(\) returned a coroutine"):
            node_type_task(Sly(), "a")({}, context())

    async def test_that_return_a_coroutine_are_awaited_where_others_are_async(self):
        async def later() -> int:
            return 3

        class Sly(Ask):
            def resume(self, checkpoint: Any, report: Report, ctx: Context) -> Any:
                return later()

        assert await node_type_task(Sly(), "a")({}, async_context(paused_before(None, DONE))) == 3
