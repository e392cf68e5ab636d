"""What errors say, and what they must not."""

from __future__ import annotations

import copy
import inspect
import pickle
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest

from perdure import errors
from perdure.diagnostics import Action
from perdure.engine.failures import describe
from perdure.errors import (
    InvalidInput,
    InvalidStoreUrl,
    PerdureError,
    Permanent,
    RetryLater,
    RunEnded,
    RunNotFound,
    StoreInUse,
    StoreNotEmpty,
    without_password,
)
from perdure.store.opening import store_at


class TestInvalidStoreUrl:
    @pytest.mark.parametrize(
        "url",
        [
            "postgresql+psycopg://ann:secret@host/db",
            "postgresql+psycopg://ann:sec/ret:@host:5432/db?note=a@b",
            "redis://:secret@host/0",
            "mysql://host/db?user=ann&password=secret&sslpassword=secret",
            "mysql://host/db?PASSWORD=secret",
            "ann:secret@host/db",
            "postgresql:ann:secret@127.0.0.1:1/x",
            "postgresql:/ann:sec/r3t@127.0.0.1:1/x",
            "postgresql://ann:sec/r3t@host/db",
            "postgresql://ann:sec,x/r3t@host/db",
            "postgresql://ann:sec[r3t@host/db",
            "postgresql://ann:sec\N{CARE OF}r3t@host/db",
            "postgresql://host/db?PASSWORD=secret",
        ],
    )
    def test_hides_the_password(self, url):
        with pytest.raises(InvalidStoreUrl) as caught:
            store_at(url)

        error = caught.value
        told = f"{error} {error.fields} {error.args} {error.as_data()} {describe(error)}"
        assert "sec" not in told
        assert "r3t" not in told
        assert url.partition(":")[0] in str(error)

    def test_says_that_the_port_is_not_a_number(self):
        with pytest.raises(InvalidStoreUrl, match="the port is not a number"):
            store_at("postgresql://ann:sec/r3t@host/db")


@pytest.mark.parametrize(
    "error",
    [
        StoreInUse(url="postgresql://ann:secret@host/db", reason="it is"),
        StoreNotEmpty(url="postgresql://ann:secret@host/db", tables=["jobs"]),
    ],
)
def test_errors_of_a_store_hide_the_password(error):
    assert error.url == "postgresql://ann:***@host/db"


class TestWithoutPassword:
    @pytest.mark.parametrize(
        "url",
        ["sqlite:///a@b.db", "postgresql://ann@host:5432/db", "sqlite:///c:/work.db", "@", ""],
    )
    def test_keeps_what_has_none(self, url):
        assert without_password(url) == url

    @pytest.mark.parametrize("part", ["//a:", "a:", ":@", "password=", "/"])
    def test_takes_linear_time(self, part):
        start = time.process_time()
        without_password(part * 200_000)

        assert time.process_time() - start < 1


class TestRunEnded:
    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    def test_suggests_to_retry_what_can_be_retried(self, status):
        error = RunEnded(run_id="order-3", operation="pause", status=status)

        assert error.actions() == (
            Action("runs.retry", {"id": "order-3"}),
            Action("runs.fork", {"id": "order-3"}, ("after",)),
        )
        assert str(error).endswith(
            "client.runs.retry(id='order-3') or client.runs.fork(id='order-3', after=...)"
        )

    def test_suggests_only_to_fork_what_is_completed(self):
        error = RunEnded(run_id="order-3", operation="pause", status="completed")

        assert error.actions() == (Action("runs.fork", {"id": "order-3"}, ("after",)),)


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


class TestEveryError:
    @pytest.mark.parametrize(
        "found_type", error_types(), ids=lambda found_type: found_type.__name__
    )
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

    @pytest.mark.parametrize(
        "found_type", error_types(), ids=lambda found_type: found_type.__name__
    )
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
        "args, text",
        [((), ""), ((404,), "404"), (("a", 5), "('a', 5)"), ((ValueError("x"),), "x")],
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
        with pytest.raises(TypeError, match="needs run_id"):
            RunNotFound()  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="has no job"):
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
        [name, *_] = times

        with pytest.raises(InvalidInput, match=name):
            RetryLater("not now", **times)


def test_what_is_stored_of_an_error_suggests_no_call_of_python():
    failure = describe(RunEnded(run_id="order-3", operation="pause", status="failed"))

    assert failure.message == "cannot pause run 'order-3': it is failed"
