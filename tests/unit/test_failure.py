"""What is kept of an exception: bounded, plain, and with its causes."""

from __future__ import annotations

import msgspec
import pytest

from perdure.engine.failures import CAUSES_MAX, MESSAGE_MAX, TRACEBACK_MAX, describe
from perdure.errors import RunNotFound
from perdure.model.failure import Cause, Failure


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
        assert "test_failure.py" in failure.traceback
        assert failure.traceback.rstrip().endswith("ValueError: no such text")

    def test_names_a_type_by_its_module(self):
        assert describe(Unreadable()).type == f"{__name__}.Unreadable"

    def test_keeps_the_code_of_an_error_of_ours(self):
        found = describe(RunNotFound(run_id="order-42"))

        assert found.code == "run.not_found"
        assert msgspec.json.decode(msgspec.json.encode(found), type=Failure) == found

    def test_stores_no_code_where_there_is_none(self):
        assert "code" not in msgspec.to_builtins(describe(ValueError("broken")))

    def test_keeps_the_chain_of_causes_nearest_first(self):
        lowest = raised(OSError("cut"))
        middle = raised(ConnectionError("no answer"), lowest)

        failure = describe(raised(ValueError("bad"), middle))

        assert failure.causes == (
            Cause(type="ConnectionError", message="no answer"),
            Cause(type="OSError", message="cut"),
        )

    def test_keeps_what_was_being_handled_when_it_was_raised(self):
        error = ValueError("bad")
        error.__context__ = KeyError("x")

        assert describe(error).causes == (Cause(type="KeyError", message="'x'"),)

    def test_leaves_out_a_context_that_was_set_aside(self):
        error = ValueError("bad")
        error.__context__ = KeyError("x")
        error.__suppress_context__ = True  # what ``from None`` does

        assert describe(error).causes == ()

    def test_is_bounded_whatever_it_describes(self):
        error: BaseException = OSError("the lowest")
        for number in range(2 * CAUSES_MAX):
            error = raised(ValueError(f"{number} " + "x" * 10 * MESSAGE_MAX + " end"), error)

        failure = describe(error)

        assert len(failure.causes) == CAUSES_MAX
        assert len(failure.message) <= MESSAGE_MAX
        assert len(failure.traceback) <= TRACEBACK_MAX
        assert all(len(cause.message) <= MESSAGE_MAX for cause in failure.causes)
        assert failure.message.endswith(" end"), "both ends are kept"

    def test_does_not_go_round_in_a_circle_of_causes(self):
        first, second = ValueError("first"), ValueError("second")
        first.__cause__, second.__cause__ = second, first

        assert [cause.message for cause in describe(first).causes] == ["second"]

    def test_survives_an_error_that_cannot_be_read(self):
        assert "without a readable message" in describe(Unreadable()).message

    def test_keeps_the_message_of_an_error_whose_attributes_fail(self):
        failure = describe(raised(Evasive("the disk is full"), KeyError("page")))

        assert (failure.type, failure.message) == (f"{__name__}.Evasive", "the disk is full")
        assert "the disk is full" in failure.traceback
        assert failure.causes == (Cause(type="KeyError", message="'page'"),)

    def test_survives_an_error_that_refuses_everything(self):
        failure = describe(raised(Closed("the disk is full")))

        assert (failure.type, failure.causes) == (f"{__name__}.Closed", ())
        assert "the disk is full" in failure.message

    def test_keeps_only_type_names_that_every_store_can_keep(self):
        odd = type("Odd", (Exception,), {"__module__": "zero \x00 byte"})

        assert describe(odd()).type == "zero \\x00 byte.Odd"

    @pytest.mark.parametrize("text", ["zero \x00 byte", "half \udc80 of a pair"])
    def test_keeps_only_text_that_every_store_can_keep(self, text):
        message = describe(ValueError(text)).message

        message.encode()
        assert "\x00" not in message
