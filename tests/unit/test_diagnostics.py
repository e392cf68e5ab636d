"""Diagnostics: declared codes, and how they are rendered."""

from __future__ import annotations

import pickle
import string
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import public  # declares every code of the library
from perdure.cli.renderer import cli_command
from perdure.diagnostics import (
    MESSAGE_MAX,
    PYTHON,
    Action,
    Diagnostic,
    Renderer,
    as_data,
    declare,
    declared,
    near,
    render,
    safe_repr,
    span_text,
)
from perdure.errors import InvalidInput, NotDecider, RunNotFound, StoreNotEmpty

assert public.__doc__

PLAIN = declare(
    "test.plain", "a {thing!r} of {size}[, until {until}][; try {nearest:or}]", "Pass `it`"
)
COUNTED = declare("test.counted", "{count:job waits|jobs wait} in {queue!r}")


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("no")

    __str__ = __repr__


NESTED: list[Any] = []
for _ in range(5_000):
    NESTED = [NESTED]
CYCLIC: list[Any] = []
CYCLIC.append(CYCLIC)
SHARED: list[Any] = []
for _ in range(20):
    SHARED = [SHARED] * 10
LONG = [f"{number:0500}" for number in range(100_000)]


class TestRender:
    def test_fills_in_arguments_and_drops_groups_without_theirs(self):
        assert (
            render(PLAIN.fault(thing="box", size=3, until=None, nearest=()))
            == "a 'box' of 3. Pass it=..."
        )
        until = datetime(2031, 5, 17, 14, 30, tzinfo=UTC)
        assert (
            render(PLAIN.fault(thing="box", size=3, until=until, nearest=("a", "b")))
            == "a 'box' of 3, until 2031-05-17 14:30:00+00:00; try 'a' or 'b'. Pass it=..."
        )

    @pytest.mark.parametrize(
        "count, text",
        [(1, "1 job waits in 'a'"), (0, "0 jobs wait in 'a'"), (7, "7 jobs wait in 'a'")],
    )
    def test_counts(self, count, text):
        assert render(COUNTED.finding(count=count, queue="a")) == text

    def test_never_reads_a_value_as_a_template(self):
        told = render(PLAIN.fault(thing="{size} [x] `it`", size="{thing}", nearest=("[{size}]",)))

        assert told == "a '{size} [x] `it`' of {thing}; try '[{size}]'. Pass it=..."

    def test_is_bounded_and_never_fails(self):
        assert len(render(PLAIN.fault(thing="x" * 100_000, size="y" * 100_000))) <= MESSAGE_MAX
        assert "<Unshowable>" in render(PLAIN.fault(thing=Unshowable(), size=Unshowable()))
        assert (
            render(Diagnostic(code="of.a.newer.server", args={"a": 1}))
            == "of.a.newer.server {'a': 1}"
        )

    @given(
        code=st.sampled_from(sorted(declared())),
        values=st.dictionaries(
            st.text(string.ascii_lowercase, min_size=1, max_size=6),
            st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.tuples(st.text()))
            | st.just(Unshowable()),
        ),
    )
    def test_renders_every_declared_code_whatever_the_arguments(self, code, values):
        assert isinstance(render(Diagnostic(code=code, args=values)), str)

    def test_ends_with_the_suggested_actions(self):
        retry = Action("runs.retry", {"id": "o'1"})
        told = render(COUNTED.finding("", retry, count=1, queue="a"))

        assert told == """1 job waits in 'a': client.runs.retry(id="o'1")"""


class TestDeclare:
    def test_refuses_a_second_code_of_one_name(self):
        with pytest.raises(ValueError, match="declared twice"):
            declare("test.plain", "again")


class TestFault:
    def test_knows_the_path_to_it(self):
        fault = PLAIN.fault(("task",), thing="x").under("nodes", 3)

        assert (fault.code, fault.where) == ("test.plain", ("nodes", 3, "task"))

    def test_keeps_objects_of_callers_as_text_so_that_it_can_be_pickled(self):
        fault = PLAIN.fault(thing=lambda: 1, size=[Unshowable(), 2], until={"a": object})
        copied = pickle.loads(pickle.dumps(fault))

        assert copied == fault
        assert fault.args["thing"].startswith("<function")
        assert fault.args["size"] == ("<Unshowable>", 2)
        assert fault.args["until"] == {"a": "<class 'object'>"}


class TestAsData:
    def test_of_an_error_with_several_faults_has_them_all(self):
        error = InvalidInput(COUNTED.fault(count=1, queue="a"), COUNTED.fault(count=2, queue="b"))

        data = error.as_data()
        assert (data["code"], data["message"]) == (
            "input.invalid",
            "1 job waits in 'a'; 2 jobs wait in 'b'",
        )
        assert render(error.diagnostic) == data["message"]
        assert [each["args"]["queue"] for each in data["faults"]] == ["a", "b"]

    def test_has_code_arguments_actions_and_the_message(self):
        fault = PLAIN.fault(("a", 1), Action("runs.get", {"id": "r"}), thing=Unshowable(), size=1)

        assert as_data(fault) == {
            "code": "test.plain",
            "args": {"thing": "<Unshowable>", "size": 1},
            "actions": (
                {
                    "operation": "runs.get",
                    "args": {"id": "r"},
                    "asks": (),
                    "rendered": "client.runs.get(id='r')",
                },
            ),
            "severity": "error",
            "where": ("a", 1),
            "message": "a <Unshowable> of 1. Pass it=...: client.runs.get(id='r')",
        }

    @pytest.mark.parametrize(
        "value",
        [
            NESTED,
            CYCLIC,
            [SHARED] * 1_000,
            {(1, 2): 3, "\ud800": "\udfff"},
            "a \ud800",
            ["\udc80" * 5],
            2**100_000,
            Unshowable(),
            {"a": list(range(100_000))},
        ],
        ids=["nested", "cyclic", "shared", "keys", "text", "texts", "huge", "object", "long"],
    )
    def test_carries_any_value_of_a_field_in_bounds(self, value):
        error = RunNotFound(run_id=value)
        retry = COUNTED.fault((), Action("runs.retry", {"id": value}), count=1, queue=value)

        for data in (error.as_data(), as_data(retry)):
            encoded = msgspec.json.encode(data)
            assert len(encoded) < 10 * MESSAGE_MAX
            assert msgspec.json.decode(encoded)["args"]
        assert isinstance(str(error), str)

    def test_says_what_was_left_out(self):
        args = as_data(COUNTED.fault(count=1, queue=[1] * 2_000))["args"]

        assert args["queue"] == (*[1] * 1_000, "...")

    @pytest.mark.parametrize("values", [LONG, dict.fromkeys(LONG)], ids=["list", "mapping"])
    def test_takes_no_longer_for_more_than_it_shows(self, values):
        error = (
            StoreNotEmpty(url="x", tables=values),
            NotDecider(approval_id="a", by=None, deciders=values),
        )
        start = time.process_time()
        for each in error:
            assert "..." in str(each)

        assert time.process_time() - start < 0.2


class TestActions:
    @pytest.mark.parametrize(
        "action, call, command",
        [
            (
                Action("runs.retry", {"id": "a b"}),
                "client.runs.retry(id='a b')",
                "perdure runs retry 'a b'",
            ),
            (
                Action("runs.fork", {"id": "r"}, ("after",)),
                "client.runs.fork(id='r', after=...)",
                "perdure runs fork r --after NODE",
            ),
            (
                Action("runs.signal", {"name": "paid", "id": "r"}, ("payload",)),
                "client.runs.signal(name='paid', id='r', payload=...)",
                "perdure signal r paid",
            ),
            (
                Action(
                    "approvals.decide",
                    {"id": "r/ask", "decision": "approve", "roles": ["a", "b"]},
                    ("by",),
                ),
                "client.approvals.decide(id='r/ask', decision='approve', roles=['a', 'b'], by=...)",
                "perdure decide r/ask approve --role a --role b",
            ),
            (
                Action("approvals.decide", {"id": "r:ask", "roles": ("x y",)}, ("decision", "by")),
                "client.approvals.decide(id='r:ask', roles=('x y',), decision=..., by=...)",
                "perdure decide r:ask --role 'x y'",
            ),
            (
                Action("runs.migrate", {"id": "it's"}, ("to",)),
                """client.runs.migrate(id="it's", to=...)""",
                """perdure runs migrate 'it'"'"'s' --to MODULE:FLOW""",
            ),
            (
                Action("worker.run", {"queues": ("a", "b"), "namespace": "n"}, ("module",)),
                "Worker(queues=('a', 'b'), namespace='n')",
                "perdure worker MODULE --queues a,b --namespace n",
            ),
            (
                Action("queues.resume", {"name": "mail", "namespace": "n"}),
                "client.queues.resume(name='mail')",
                "perdure queues resume mail --namespace n",
            ),
            (
                Action("worker.run", {"queues": ["a", "b"]}, ("module",)),
                "Worker(queues=['a', 'b'])",
                "perdure worker MODULE --queues a,b",
            ),
        ],
    )
    def test_are_spelled_for_each_interface(self, action, call, command):
        assert PYTHON.action(action) == call
        assert cli_command(action, " --store x.db") == f"{command} --store x.db"

    def test_do_not_pass_an_id_for_an_option(self):
        fork = Action("runs.fork", {"id": "-r"}, ("after",))

        assert cli_command(fork) == "perdure runs fork --after NODE -- -r"
        assert cli_command(Action("runs.get", {"id": "-a b"})) == "perdure runs get -- '-a b'"
        assert cli_command(fork, " --store x.db") == (
            "perdure runs fork --after NODE --store x.db -- -r"
        )

    def test_of_an_operation_that_is_not_known_are_spelled_by_its_name(self):
        action = Action("agents.stop", {"id": "a"})

        assert PYTHON.action(action) == "client.agents.stop(id='a')"
        assert cli_command(action) == "perdure agents stop a"


class TestTexts:
    @pytest.mark.parametrize(
        "span, text",
        [
            (timedelta(0), "0s"),
            (timedelta(milliseconds=250), "250ms"),
            (timedelta(hours=1, minutes=30), "1h30m"),
            (timedelta(days=2, seconds=5), "2d5s"),
            (timedelta(seconds=-5), "-5s"),
        ],
    )
    def test_of_durations(self, span, text):
        assert span_text(span) == text
        assert Renderer().value(span) == text

    def test_of_values_are_bounded(self):
        assert len(safe_repr("x" * 10_000)) <= 300
        assert safe_repr(Unshowable()) == "<Unshowable>"

    def test_of_names_that_are_near(self):
        assert near("emial", ["email", "fetch"]) == ("email",)
        assert near("nothing", ["email"]) == ()
