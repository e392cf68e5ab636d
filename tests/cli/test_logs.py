"""What the worker command logs, and in which shape."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from perdure import Failure
from perdure.cli import logs
from perdure.cli.logs import JsonLines, PlainLines, fields_of, log_supervisor, set_up_logs
from perdure.worker import events, supervisor

JOB: dict[str, Any] = {
    "worker": "w",
    "job_id": "j",
    "task": "embed",
    "queue": "q",
    "attempt": 2,
    "run_id": None,
    "node": None,
}


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Logs of this process, put back as they were afterwards."""
    root, own = logging.getLogger(), logging.getLogger("perdure")
    before = root.level, list(root.handlers), own.level
    yield io.StringIO()
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    own.setLevel(before[2])


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("perdure.cli", logging.WARNING, __file__, 1, message, (), None)
    made.fields = fields
    return made


class TestFields:
    def test_a_completed_job_says_how_long_it_took(self):
        event = events.AttemptCompleted(**JOB, duration=timedelta(milliseconds=12.3456))

        assert fields_of(event) == {"job": "j", "task": "embed", "attempt": 2, "seconds": 0.0123}

    def test_a_nodes_job_says_first_of_which_run_it_is(self):
        event = events.AttemptStarted(**{**JOB, "run_id": "order-42", "node": "pack[7]"})

        assert list(fields_of(event).items())[:3] == [
            ("run", "order-42"),
            ("node", "pack[7]"),
            ("job", "j"),
        ]

    @pytest.mark.parametrize(
        "found_type", [events.AttemptFailed, events.AttemptRetried, events.AttemptDeadLettered]
    )
    def test_a_failure_is_told_in_one_line(self, found_type):
        event = found_type(**JOB, failure=Failure(type="ValueError", message="two\nlines"))

        assert fields_of(event)["error"] == "ValueError: two lines"

    def test_a_take_over_says_from_whom(self):
        failure = Failure(type="perdure.errors.WorkerCrashed", message="gone")
        event = events.JobTakenOver(**JOB, holder="worker-1", failure=failure)

        assert fields_of(event)["holder"] == "worker-1"

    def test_an_ended_process_says_when_it_is_started_again(self):
        event = supervisor.ProcessEnded(
            number=1, pid=9, exit_code=-9, restart_in=timedelta(seconds=2)
        )

        assert fields_of(event) == {"process": 1, "pid": 9, "exit": -9, "restart_in": 2.0}

    def test_every_outcome_and_process_event_has_a_level(self):
        outcomes = set(events.JobEvent.__subclasses__()) - {events.AttemptProgressed}
        processes = set(supervisor.ProcessEvent.__subclasses__())

        assert outcomes | processes <= logs._LEVELS.keys()


class TestPlainLines:
    def test_has_message_and_fields(self):
        line = PlainLines(is_coloured=False).format(
            record("job failed", job="j", error="it broke", queues=("a", "b"))
        )

        assert line[8:] == ' warning job failed  job=j error="it broke" queues=a,b'

    def test_colours_the_level_only_where_asked(self):
        assert "\x1b[33mwarning\x1b[0m" in PlainLines(is_coloured=True).format(record("x"))
        assert "\x1b" not in PlainLines(is_coloured=False).format(record("x"))

    def test_shows_a_traceback(self):
        made = record("it broke")
        try:
            raise ValueError("inner")
        except ValueError:
            made.exc_info = sys.exc_info()

        assert PlainLines(is_coloured=False).format(made).endswith("ValueError: inner")


class TestJsonLines:
    def test_is_one_object_a_line(self):
        line = json.loads(JsonLines().format(record("job failed", job="j", error="a\nb")))

        assert line["message"] == "job failed"
        assert (line["level"], line["job"], line["error"]) == ("warning", "j", "a\nb")
        assert line["at"].endswith("+00:00")


class TestSetUp:
    def test_quiet_leaves_only_what_is_wrong(self, logged):
        set_up_logs(as_json=False, level=logging.WARNING, stream=logged)

        log_supervisor(supervisor.ProcessStarted(number=1, pid=9))
        log_supervisor(supervisor.ProcessKilled(number=1, pid=9))

        assert logged.getvalue().count("\n") == 1
        assert "process killed" in logged.getvalue()

    def test_debugging_is_about_jobs_not_libraries(self, logged):
        set_up_logs(as_json=False, level=logging.DEBUG, stream=logged)

        logging.getLogger("asyncio").debug("selector")
        logging.getLogger("perdure.cli").debug("job started")
        logging.getLogger("mine").info("from a task")

        assert "selector" not in logged.getvalue()
        assert "job started" in logged.getvalue()
        assert "from a task" in logged.getvalue()
