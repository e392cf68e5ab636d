"""Diagnostics, errors and recorded failures: what they say, and what they must not."""

from __future__ import annotations

import copy
import inspect
import pickle
import string
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import errors, public
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
from perdure.engine import failures
from perdure.engine.failures import CAUSES_MAX, TRACEBACK_MAX, describe
from perdure.errors import (
    InvalidInput,
    InvalidStoreUrl,
    NotDecider,
    PerdureError,
    Permanent,
    RetryLater,
    RunEnded,
    RunNotFound,
    StoreInUse,
    StoreNotEmpty,
    without_password,
)
from perdure.model.failure import Cause, Failure
from perdure.store.opening import store_at

# Diagnostics: declared codes, and how they are rendered.


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
        rendered = render(
            PLAIN.fault(thing="{size} [x] `it`", size="{thing}", nearest=("[{size}]",))
        )
        assert rendered == "a '{size} [x] `it`' of {thing}; try '[{size}]'. Pass it=..."

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
        rendered = render(COUNTED.finding("", retry, count=1, queue="a"))
        assert rendered == """1 job waits in 'a': client.runs.retry(id="o'1")"""


class TestDeclare:
    def test_refuses_a_second_code_of_one_name(self):
        with pytest.raises(ValueError, match=PLAIN.name):
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
    def test_are_rendered_for_each_interface(self, action, call, command):
        assert PYTHON.action(action) == call
        assert cli_command(action, " --store x.db") == f"{command} --store x.db"

    def test_do_not_pass_an_id_for_an_option(self):
        fork = Action("runs.fork", {"id": "-r"}, ("after",))
        assert cli_command(fork) == "perdure runs fork --after NODE -- -r"
        assert cli_command(Action("runs.get", {"id": "-a b"})) == "perdure runs get -- '-a b'"
        assert cli_command(fork, " --store x.db") == (
            "perdure runs fork --after NODE --store x.db -- -r"
        )

    def test_of_an_unknown_operation_are_rendered_by_its_name(self):
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


class TestInvalidStoreUrl:
    @pytest.mark.parametrize(
        "url",
        [
            "postgresql+psycopg://ann:s3cret@host/db",
            "postgresql+psycopg://ann:s3c/ret:@host:5432/db?note=a@b",
            "redis://:s3cret@host/0",
            "mysql://host/db?user=ann&password=s3cret&sslpassword=s3cret",
            "mysql://host/db?PASSWORD=s3cret",
            "ann:s3cret@host/db",
            "postgresql:ann:s3cret@127.0.0.1:1/x",
            "postgresql:/ann:s3c/r3t@127.0.0.1:1/x",
            "postgresql://ann:s3c/r3t@host/db",
            "postgresql://ann:s3c,x/r3t@host/db",
            "postgresql://ann:s3c[r3t@host/db",
            "postgresql://ann:s3c\N{CARE OF}r3t@host/db",
            "postgresql://host/db?PASSWORD=s3cret",
            "mysql://host/db?%70assword=s3cret",
            "mysql://host/db?x=1&pass%57ord='s3c&r3t'&y=r3t",
            "postgresql://ann:s3cret/db",
            "postgresql:ann:s3cret",
            "mysql://host/db?options=-c%20password%3Ds3cret",
            "postgresql://ann:s3cret%40host/db?x=1",
            "mysql://ann%3As3cret@host/db",
            "postgresql://ann%3as3cret@host/db#x",
            "postgresql://host/db?passwd=s3cret",
            "postgresql://host/db?pool=5&pass=s3cret",
            "postgresql://host/db?Pw%64=s3cret",
            "postgresql://host/db?client_secret=s3cret&authToken=s3cret&apikey=s3cret",
        ],
    )
    def test_hides_the_password(self, url):
        """Finding 14: of malformed URLs too."""
        with pytest.raises(InvalidStoreUrl) as caught:
            store_at(url)
        error = caught.value
        rendered = f"{error} {error.fields} {error.args} {error.as_data()} {describe(error)}"
        assert "s3c" not in rendered
        assert "r3t" not in rendered
        assert error.url.startswith(url.partition(":")[0])


class TestWithoutPassword:
    @pytest.mark.parametrize(
        "url",
        [
            "sqlite:///a@b.db",
            "postgresql://ann@host:5432/db?pool=5",
            "postgresql://host/db?passfile=~/.pgpass&sslkey=key.pem&application_name=keys",
            "sqlite:///keys/a=b.db",
            "postgresql://one:5432,two:5433/db",
            "postgresql://host:5432",
            "sqlite:///c:/work.db",
            "@",
            "",
        ],
    )
    def test_keeps_what_has_none(self, url):
        assert without_password(url) == url

    @pytest.mark.parametrize("part", ["//a:", "a:", ":@", "password=", "/", "=", "a", "&", "='"])
    def test_takes_linear_time(self, part):
        start = time.process_time()
        without_password(part * 200_000)
        assert time.process_time() - start < 1


class TestRunEnded:
    @pytest.mark.parametrize("status", ["failed", "cancelled", "completed"])
    def test_suggests_to_retry_what_can_be_retried_and_to_fork(self, status):
        error = RunEnded(run_id="order-3", operation="pause", status=status)
        retry = Action("runs.retry", {"id": "order-3"})
        fork = Action("runs.fork", {"id": "order-3"}, ("after",))
        assert error.actions() == ((fork,) if status == "completed" else (retry, fork))

    @pytest.mark.parametrize(
        "operation, asked", [("resume", "resume"), ("set_priority", "set the priority of")]
    )
    def test_has_the_name_of_the_operation_and_renders_it_as_text(self, operation, asked):
        error = RunEnded(run_id="order-3", operation=operation, status="completed")
        assert error.operation == operation
        assert str(error).startswith(f"cannot {asked} run 'order-3'")


def error_types() -> list[type[PerdureError]]:
    """All public errors that say what happened by their fields or by a message."""
    found: list[type[PerdureError]] = [PerdureError]
    for each in found:
        found += each.__subclasses__()
    public = [each for each in dict.fromkeys(found) if each.__module__ == errors.__name__]
    return [each for each in public if not each.__name__.startswith("_")]


def example(found_type: type[PerdureError]) -> PerdureError:
    """One with all its fields, or with the message that it takes."""
    samples = {"int": 7, "float": 2.5, "timedelta": timedelta(seconds=3), "list[str]": ["a", "b"]}
    values = {
        name: samples.get(str(annotation), ("a", "b") if "tuple" in str(annotation) else "text")
        for base in reversed(found_type.__mro__)
        for name, annotation in inspect.get_annotations(base).items()
        if name in found_type._fields and name != "failure"
    }
    if "numbers" in values:
        values["numbers"] = (1, 2)
    return found_type(**values) if values else found_type("a message")


EVERY_ERROR = pytest.mark.parametrize("found_type", error_types(), ids=lambda each: each.__name__)


class TestEveryError:
    @EVERY_ERROR
    def test_survives_pickling_and_copying_with_all_its_fields(self, found_type):
        error = example(found_type)
        error.add_note("On the worker: a traceback")

        for target in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(target) is found_type
            assert target.fields == error.fields
            assert (target.args, target.faults, str(target)) == (
                error.args,
                error.faults,
                str(error),
            )
            assert target.__notes__ == ["On the worker: a traceback"]

    @EVERY_ERROR
    def test_has_a_code_of_its_own_and_says_what_its_fields_say(self, found_type):
        error = example(found_type)
        assert error.code == found_type.CODE.name
        assert found_type.CODE is not getattr(found_type.__mro__[1], "CODE", None)
        assert "None" not in str(error)
        assert "{" not in str(error)

    def test_of_a_user_survives_pickling_whatever_its_constructor_takes(self):
        target = pickle.loads(pickle.dumps(OutOfStock("bolts", 3)))
        assert (str(target), target.item, target.code) == (
            "no bolts: 3 wanted",
            "bolts",
            "task.permanent",
        )

    @pytest.mark.parametrize(
        "args, text", [((), ""), ((404,), "404"), (("a", 5), "('a', 5)"), ((ValueError("x"),), "x")]
    )
    def test_takes_whatever_exceptions_take(self, args, text):
        error = Permanent(*args)
        assert (str(error), error.args) == (text, args)
        assert error.faults[0].args == {"message": text}
        assert copy.deepcopy(error).faults == error.faults

    def test_of_an_application_may_have_attributes_of_any_name(self):
        error = ApiFailed("no answer", 404)
        seen: tuple[Any, ...] = (error.code, error.status, str(error))
        assert seen == (404, 503, "no answer")
        assert error.diagnostic.code == "task.permanent"
        assert describe(error).code == "task.permanent"
        assert describe(ApiFailed("x", "a secret")).code == "task.permanent"  # type: ignore[arg-type]

    def test_of_an_application_may_annotate_what_it_likes(self):
        made: Any = Annotated
        assert str(made("boo")) == "boo"
        assert made("boo").status == 500

    def test_refuses_fields_that_it_has_not(self):
        with pytest.raises(TypeError, match="run_id"):
            RunNotFound()  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="job"):
            RunNotFound(run_id="a", job="b")  # type: ignore[call-arg]


class ApiFailed(Permanent):
    status: int
    fields = ("a",)  # type: ignore[assignment]

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[assignment]
        self.status = 503


class Annotated(Permanent):
    status: int = 500
    limit: ClassVar[int]


class OutOfStock(Permanent):
    def __init__(self, item: str, wanted: int) -> None:
        super().__init__(f"no {item}: {wanted} wanted")
        self.item = item


class TestRetryLater:
    @pytest.mark.parametrize(
        "times",
        [
            {"after": "9999999d"},
            {"after": -1},
            {"after": "soon"},
            {"until": datetime(2031, 1, 1)},  # noqa: DTZ001
            {"until": "noon"},
            {"until": datetime.max.replace(tzinfo=UTC)},
            {"until": datetime.min.replace(tzinfo=UTC)},
            {"until": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))},
            {"until": datetime(2031, 1, 1, tzinfo=UTC), "after": "1s"},
            {"limit": ""},
            {"limit": "a\x00b"},
            {"limit": 7},
        ],
    )
    def test_refuses_what_no_store_could_use(self, times):
        with pytest.raises(InvalidInput) as caught:
            RetryLater("not now", **times)
        assert {fault.where for fault in caught.value.faults} <= {(name,) for name in times}


class TestError:
    """What errors say, and what they must not."""

    @pytest.mark.parametrize(
        "error",
        [
            StoreInUse(url="postgresql://ann:secret@host/db", reason="it is"),
            StoreNotEmpty(url="postgresql://ann:secret@host/db", tables=["jobs"]),
        ],
    )
    def test_errors_of_a_store_hide_the_password(self, error):
        assert error.url == "postgresql://ann:***@host/db"

    def test_what_is_stored_of_an_error_suggests_no_call_of_python(self):
        failure = describe(RunEnded(run_id="order-3", operation="pause", status="failed"))
        assert "client.runs" not in failure.message


# What is kept of an exception: bounded, plain, and with its causes.


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """The error as it looks once somebody caught it."""
    try:
        raise error from cause
    except BaseException as caught:
        return caught


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Evasive(Exception):
    """Has every attribute one asks for, and gives none."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no {name} for you")


class Closed(Exception):
    """Cannot even be asked for what every exception has."""

    def __getattribute__(self, name: str) -> object:
        raise SystemExit(f"no {name} for you")


class TestDescribe:
    def test_keeps_type_message_and_traceback(self):
        failure = describe(raised(ValueError("no such text")))
        assert (failure.type, failure.message) == ("ValueError", "no such text")
        assert Path(__file__).name in failure.traceback
        assert failure.traceback.rstrip().endswith("ValueError: no such text")

    def test_names_a_type_by_its_module_and_survives_an_error_that_cannot_be_read(self):
        failure = describe(Unreadable())
        assert failure.type == f"{__name__}.Unreadable"
        assert "without a readable message" in failure.message

    def test_keeps_the_code_of_an_error_of_ours_alone(self):
        found = describe(RunNotFound(run_id="order-42"))
        assert found.code == "run.not_found"
        assert msgspec.json.decode(msgspec.json.encode(found), type=Failure) == found
        assert "code" not in msgspec.to_builtins(describe(ValueError("broken")))

    def test_keeps_the_chain_of_causes_nearest_first(self):
        lowest = raised(OSError("cut"))
        middle = raised(ConnectionError("no answer"), lowest)
        failure = describe(raised(ValueError("bad"), middle))
        assert failure.causes == (
            Cause(type="ConnectionError", message="no answer"),
            Cause(type="OSError", message="cut"),
        )

    def test_keeps_what_was_being_handled_when_it_was_raised_unless_suppressed(self):
        error = ValueError("bad")
        error.__context__ = KeyError("x")
        assert describe(error).causes == (Cause(type="KeyError", message="'x'"),)
        error.__suppress_context__ = True  # what ``from None`` does
        assert describe(error).causes == ()

    def test_is_bounded_whatever_it_describes(self):
        error: BaseException = OSError("the lowest")
        for number in range(2 * CAUSES_MAX):
            error = raised(
                ValueError(f"{number} " + "x" * 10 * failures.MESSAGE_MAX + " end"), error
            )

        failure = describe(error)

        assert len(failure.causes) == CAUSES_MAX
        assert len(failure.message) <= failures.MESSAGE_MAX
        assert len(failure.traceback) <= TRACEBACK_MAX
        assert all(len(cause.message) <= failures.MESSAGE_MAX for cause in failure.causes)
        assert failure.message.endswith(" end"), "both ends are kept"

    def test_does_not_go_round_in_a_circle_of_causes(self):
        first, second = ValueError("first"), ValueError("second")
        first.__cause__, second.__cause__ = second, first
        assert [cause.message for cause in describe(first).causes] == ["second"]

    def test_keeps_the_message_of_an_error_whose_attributes_fail(self):
        failure = describe(raised(Evasive("the disk is full"), KeyError("page")))
        assert (failure.type, failure.message) == (f"{__name__}.Evasive", "the disk is full")
        assert "the disk is full" in failure.traceback
        assert failure.causes == (Cause(type="KeyError", message="'page'"),)

    def test_survives_an_error_that_refuses_everything(self):
        failure = describe(raised(Closed("the disk is full")))
        assert (failure.type, failure.causes) == (f"{__name__}.Closed", ())
        assert "the disk is full" in failure.message

    @pytest.mark.parametrize("text", ["zero \x00 byte", "half \udc80 of a pair"])
    def test_keeps_only_text_that_every_store_can_keep(self, text):
        message = describe(ValueError(text)).message
        message.encode()
        assert "\x00" not in message
        odd = type("Odd", (Exception,), {"__module__": "zero \x00 byte"})
        assert describe(odd()).type == "zero \\x00 byte.Odd"
