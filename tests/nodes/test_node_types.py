"""Node types: the registry, their config, the task that executes them, and those that decide."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from perdure.diagnostics import Fault, declare, render
from perdure.errors import ExternalFailed, InvalidInput, Permanent, UnknownNodeType
from perdure.expr.path import Path
from perdure.model.text import first_words, last_words
from perdure.model.wait import Report, ReportStatus
from perdure.nodes.call import node_type_task
from perdure.nodes.config import config_faults, has_template
from perdure.nodes.http import Http
from perdure.nodes.registry import STRUCTURAL, NodeTypes
from perdure.tasks.context import AsyncContext, Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import Complete, Pause, complete, paused
from tests.nodes.contexts import async_context, context, paused_before
from tests.support.refusal import refused

# The kinds that a flow may name.


NAMES = "match switch check note external http llm script container"
COME_WITH_IT = {*NAMES.split()}


class Translate(NodeType):
    """Translates a text."""

    name = "translate"
    ports = ("unsure",)

    class Config(NodeConfig):
        text: str

    def execute(self, config: Config, ctx: Context) -> Any:
        return config.text


class Tree(NodeConfig):
    left: Tree | None = None
    size: int = 0


class Plant(Translate):
    name = "plant"

    class Config(NodeConfig):
        tree: Tree


def named(name: Any) -> type[NodeType]:
    return type("Odd", (Translate,), {"name": name})


UNWRITABLE = ("", "a b", "1st", "x" * 101, "a:b", None, 3, "ä")


class Idle(NodeType):
    """Has no ``execute``."""

    name = "idle"


class TestNodeTypes:
    def test_has_those_that_come_with_it(self):
        assert set(NodeTypes()) == COME_WITH_IT

    def test_adds_yours_as_instance_or_class(self):
        own = Translate()
        assert NodeTypes([own])["translate"] is own
        assert isinstance(NodeTypes([Translate])["translate"], Translate)

    def test_suggests_the_nearest_for_an_unknown_name(self):
        with refused("flow.unknown_node_type", UnknownNodeType, nearest=("http",)) as caught:
            NodeTypes([Translate])["htp"]
        assert set(caught.value.fields["known"]) == {*STRUCTURAL, *COME_WITH_IT, "translate"}

    @pytest.mark.parametrize(
        "types, code",
        [
            ([Translate(), Translate()], "node_type.duplicate"),
            ([named("http")], "node_type.duplicate"),
            *(([named(name)], "node_type.invalid_name") for name in UNWRITABLE),
            *(([named(name)], "node_type.reserved_name") for name in (*STRUCTURAL, "outside")),
            ([3], "node_type.invalid"),
            (["http"], "node_type.invalid"),
            ([object()], "node_type.invalid"),
            ([dict], "node_type.invalid"),
            ([NodeType], "node_type.invalid_name"),
            ([Idle], "node_type.no_execute"),
            (Translate(), "argument.type"),
        ],
    )
    def test_refuses_what_cannot_be_registered(self, types, code):
        with refused(code, InvalidInput):
            NodeTypes(types)

    def test_lets_one_that_is_there_be_set_up_differently(self):
        own = Http(allow=["10.0.0.0/8"])
        assert NodeTypes([own])["http"] is own

    def test_refuses_a_config_that_is_no_settings(self):
        class Loose(NodeType):
            name = "loose"
            Config = dict

            def execute(self, config: Any, ctx: Context) -> Any:
                return config

        with refused("node_type.invalid_settings", InvalidInput, type="loose"):
            NodeTypes([Loose])

    def test_refuses_a_class_that_needs_arguments(self):
        class Demanding(Translate):
            name = "demanding"

            def __init__(self, key: str) -> None:
                self.key = key

        with refused("node_type.needs_instance", InvalidInput, type="Demanding"):
            NodeTypes([Demanding])

    def test_is_not_loaded_with_the_library(self):
        program = (
            "import sys, perdure; import perdure.nodes.registry as r; r.NodeTypes(); "
            "print([m for m in ('httpcore', 'h11', 'jsonschema') if m in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )

        assert done.stdout.strip() == "[]"


class TestDescribe:
    def test_describes_what_each_type_is_for(self):
        described = {each.name: each for each in NodeTypes([Translate]).describe()}
        assert described.keys() == {*COME_WITH_IT, "translate"}
        assert described["translate"].summary == "Translates a text."
        assert described["translate"].ports == ("unsure",)
        assert all(each.summary for each in described.values())

    def test_gives_schemas_that_hold(self):
        schemas = {each.name: each.schema for each in NodeTypes().describe()}
        for schema in schemas.values():
            Draft202012Validator.check_schema(schema)
            assert "$ref" not in str(schema)
        http = Draft202012Validator(schemas["http"])

        assert http.is_valid({"url": "https://example.org", "timeout": "5s", "max_bytes": 9})
        assert http.is_valid({"url": "{{ u }}", "max_bytes": "{{ n }}", "headers": "{{ h }}"})
        assert not http.is_valid({"url": "https://example.org", "max_bytes": "many"})
        assert not http.is_valid({"url": "https://example.org", "tmeout": "5s"})
        assert not http.is_valid({})

    def test_writes_nested_and_recursive_settings_in_place(self):
        [described] = [each for each in NodeTypes([Plant]).describe() if each.name == "plant"]
        form = Draft202012Validator(described.schema)
        assert form.is_valid({"tree": {"size": 3, "left": {"size": 4}}})
        assert form.is_valid({"tree": {"size": "{{ n }}"}})
        assert not form.is_valid({"tree": {"size": "many"}})


# Configs before templates are filled in: everything that is wrong, with its place.


class Address(NodeConfig):
    street: str
    number: int = 1


WORST = declare("test.worst", "the worst")


class Send(NodeType):
    name = "send"

    class Config(NodeConfig, rename={"from_": "from"}):
        to: Address
        from_: str
        copies: int = 1
        parts: list[Address] = []  # noqa: RUF012  # msgspec copies it
        labels: dict[str, int] = {}  # noqa: RUF012
        extra: Any = None

    def execute(self, config: Config, ctx: Context) -> Any:
        return config.copies

    def faults_of(self, config: Mapping[str, Any]) -> list[str | tuple[Path, str] | Fault]:
        if config.get("extra") == "bad":
            return ["extra is bad", (("extra",), "worse"), WORST.fault(("extra",))]
        return []


FITS = {"to": {"street": "Main"}, "from": "Ann"}


def faults(**changed: Any) -> list[tuple[Path, str]]:
    return described(config_faults(Send(), {**FITS, **changed}))


def described(faults: list[Fault]) -> list[tuple[Path, str]]:
    return [(fault.where, fault.code) for fault in faults]


class TestConfigFaults:
    def test_finds_none_where_all_fits(self):
        assert faults(copies=3, parts=[{"street": "x"}], labels={"a": 1}, extra=[None]) == []

    def test_names_every_fault_with_its_place(self):
        found = config_faults(
            Send(),
            {"too": 1, "copies": "many", "to": {"street": 3, "nmber": 2}, "labels": {"a": ""}},
        )

        assert described(found) == [
            (("too",), "config.unknown_setting"),
            (("to", "nmber"), "config.unknown_setting"),
            (("to", "street"), "config.type"),
            ((), "config.missing_setting"),
            (("copies",), "config.type"),
            (("labels", "a"), "config.type"),
        ]
        assert [fault.args["nearest"] for fault in found[:2]] == [("to",), ("number",)]

    @pytest.mark.parametrize(
        "changed",
        [
            {"copies": "{{ n }}"},
            {"to": "{{ address }}"},
            {"to": {"street": "{{ s }}", "number": "{{ n }}"}},
            {"parts": "{{ all }}"},
            {"parts": ["{{ one }}", {"street": "x"}]},
            {"labels": {"a": "{{ n }}"}},
            {"labels": {"a": "1{{ n }}"}},
        ],
    )
    def test_leaves_alone_what_templates_stand_for(self, changed):
        assert faults(**changed) == []

    def test_finds_inputs_outside_of_templates(self):
        found = faults(
            to={"street": "{{ s }}", "number": "one", "zip": 3},
            parts=["{{ one }}", {"number": 2}, {"street": "{{ s }}", "number": None}],
            labels={"a": "{{ n }}", "b": "two"},
        )

        assert [where for where, _ in found] == [
            ("to", "zip"),
            ("to", "number"),
            ("parts", 1),
            ("parts", 2, "number"),
            ("labels", "b"),
        ]

    def test_a_template_for_the_whole_may_be_anything(self):
        assert config_faults(Send(), "{{ all }}") == []

    @pytest.mark.parametrize("config", [3, [], "text", True])
    def test_what_is_no_object_is_reported(self, config):
        [fault] = config_faults(Send(), config)
        assert fault.where == ()
        assert fault.code == "config.not_an_object"

    def test_no_config_lacks_what_is_needed(self):
        assert described(config_faults(Send(), None)) == [((), "config.missing_setting")] * 2

    def test_asks_the_node_type_itself(self):
        assert faults(extra="bad") == [
            ((), "config.invalid"),
            (("extra",), "config.invalid"),
            (("extra",), WORST.name),
        ]
        [whole, part, _] = config_faults(Send(), {**FITS, "extra": "bad"})
        assert (render(whole), render(part)) == ("extra is bad", "worse")

    def test_asks_the_node_type_about_single_settings_also_where_types_of_others_are_wrong(self):
        assert faults(extra="bad", copies="x") == [
            (("copies",), "config.type"),
            (("extra",), "config.invalid"),
            (("extra",), WORST.name),
        ]

    def test_asks_the_node_type_nothing_about_what_is_wrong_already(self):
        found = config_faults(Http(), {"url": 5, "timeout": -4, "headers": {"X Y": [[]]}})
        assert [fault.where for fault in found] == [("url",), ("headers", "X Y"), ("timeout",)]

    def test_leaves_it_at_the_types_where_the_node_type_relies_on_them(self):
        class Relies(Send):
            def faults_of(self, config: Mapping[str, Any]) -> list[str | tuple[Path, str] | Fault]:
                return [(("from",), f"{len(config['to'])}")]

        assert described(config_faults(Relies(), {"from": "Ann"})) == [
            ((), "config.missing_setting")
        ]

    def test_says_that_keys_are_no_templates(self):
        assert faults(**{"{{ key }}": 1}) == [(("{{ key }}",), "config.template_in_key")]

    def test_keys_that_yaml_reads_as_numbers_are_texts(self):
        assert faults(labels={404: 1}) == []
        assert faults(labels={404: "x"}) == [(("labels", "404"), "config.type")]

    def test_what_json_cannot_carry_is_reported(self):
        assert faults(extra=object()) == [((), "config.not_serializable")]

    def test_survives_what_is_nested_without_end(self):
        deep: Any = "x"
        for _ in range(100_000):
            deep = [deep]
        assert faults(extra=deep) == [((), "config.not_serializable")]


class TestHasTemplate:
    @pytest.mark.parametrize("value", ["{{ a }}", ["x", {"y": "a {{ b }}"}], {"k": ["{{"]}])
    def test_finds_one_anywhere(self, value):
        assert has_template(value)

    @pytest.mark.parametrize("value", ["a", 3, None, ["x", {"{{ k }}": "y"}], "{ {"])
    def test_finds_none_where_none_is(self, value):
        assert not has_template(value)


# The task that executes a type: which method is called, with what, and what comes of it.


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
    def test_has_the_name_of_the_node_and_the_words_of_the_node_type(self):
        task = node_type_task(Greet(), "orders.hello")
        assert (task.name, task.__doc__, task.retry) == ("orders.hello", "Greets.", None)
        assert task.context_parameter == "ctx"

    def test_runs_in_a_thread_unless_a_method_is_async(self):
        assert not node_type_task(Greet(), "a").is_async
        assert node_type_task(Ask(), "b").is_async


class TestTheConfig:
    @pytest.mark.parametrize("given", [("12", 3, True), ("12", "3", "true")])
    def test_becomes_that_of_the_node_type(self, given):
        config = dict(zip(("whom", "times", "loud"), given, strict=True))
        assert node_type_task(Greet(), "a")(config, context())[:3] == ["12", 3, True]

    def test_may_be_absent_where_nothing_is_required(self):
        assert isinstance(node_type_task(Wait(), "a")(None, context()), Pause)

    @pytest.mark.parametrize(
        "config, setting",
        [
            ({"whom": 3}, "whom"),
            ({"whom": "Ann", "times": "x"}, "times"),
            ({}, ""),
            ({"whom": "Ann", "tmes": 3}, ""),
            ([1], ""),
            ("{{", ""),
        ],
    )
    def test_is_refused_for_good_if_it_does_not_fit(self, config, setting):
        with refused("config.does_not_fit", Permanent, type="greet", setting=setting):
            node_type_task(Greet(), "a")(config, context())


class TestAPause:
    async def test_is_asked_about_as_often_as_the_node_type_says(self):
        pause = await node_type_task(Ask(), "a")({}, async_context())
        assert pause == Pause(checkpoint={"job": 3}, poll=timedelta(minutes=7))

    def test_is_not_asked_about_if_the_node_type_cannot(self):
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

    def test_gives_the_result_of_the_report_unless_the_node_type_says_otherwise(self):
        ctx = context(paused_before({"job": 4}, DONE))
        assert node_type_task(Wait(), "a")({}, ctx) == Complete(output=[1], port="late")

    def test_fails_with_what_was_reported(self):
        report = Report(status=ReportStatus.FAILED, error="out of paper")
        with refused("node.external_failed", ExternalFailed):  # which its retries handle
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
        with refused("node_type.invalid_poll_result", Permanent, found="str"):
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

    def test_that_return_a_coroutine_without_being_async_are_reported_so(self):
        async def later() -> int:
            return 3

        class Sly(Wait):
            def execute(self, config: Any, ctx: Context) -> Any:
                return later()

        with refused("node_type.returned_coroutine", Permanent, method="execute"):
            node_type_task(Sly(), "a")({}, context())

    async def test_that_return_a_coroutine_are_awaited_where_others_are_async(self):
        async def later() -> int:
            return 3

        class Sly(Ask):
            def resume(self, checkpoint: Any, report: Report, ctx: Context) -> Any:
                return later()

        assert await node_type_task(Sly(), "a")({}, async_context(paused_before(None, DONE))) == 3


class TestExcerpt:
    """Parts of texts, cut between words."""

    def test_a_short_text_is_whole(self):
        assert first_words("one two", 7) == last_words("one two", 7) == "one two"

    def test_words_are_kept_whole(self):
        assert first_words("one two three", 9) == "one two "
        assert last_words("one two three", 9) == " three"
        assert first_words('{"key":"sesame"}', 12) == '{"key":"'

    def test_nothing_is_kept_of_one_long_word(self):
        assert first_words("sesame" * 9, 10) == last_words("sesame" * 9, 10) == ""

    @given(st.lists(st.sampled_from(["sesame", "x", "door"])), st.integers(0, 60))
    def test_no_word_is_ever_cut_in_two(self, words, length):
        text = " ".join(words)
        for part in (first_words(text, length), last_words(text, length)):
            assert len(part) <= max(length, 0)
            assert set(part.split()) <= set(words)
