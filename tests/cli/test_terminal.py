"""What people see: colors and live bars in a terminal, plain lines in a pipe, nothing that acts."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perdure import CONTEXT, Client, Context, Flow, Progress, Worker, task
from perdure.cli.app import app
from perdure.cli.renderer import quoted
from perdure.cli.terminal import Terminal, stdout_terminal
from perdure.cli.views.console import (
    Column,
    column_widths,
    fit_columns,
    moment,
    print_table,
    shortened,
)
from perdure.cli.views.jobs import percent
from perdure.cli.views.live import lines_of
from perdure.cli.views.queues import queue_columns
from perdure.cli.views.screen import UNICODE, screen
from perdure.model.job import Status
from perdure.model.run import NodeStatus
from perdure.model.text import visible, visible_json, visible_lines
from perdure.operations.records import QueueStats
from perdure.render.diagram import diagram_of
from perdure.render.mermaid import mermaid
from perdure.render.svg import svg
from perdure.worker.log_setup import JsonLines, PlainLines
from tests.cli import sample_tasks as sample
from tests.cli.harness import WAIT_SECONDS, Keyboard, clean_environment, run_cli
from tests.cli.test_live_view import event, job, snapshot, worker
from tests.support.older_names import older_names

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def in_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """What a command writes to a terminal of that width."""
    with Keyboard(columns, *arguments, **environment) as keyboard:
        return keyboard.rest()


@pytest.fixture
def finished(url: str, client: Client) -> str:
    """The id of a completed job, in a queue and group with long names."""
    long = "a-name-that-needs-a-wide-terminal"
    job = client.enqueue(sample.echo.options(queue=long, group=long), "x" * 200)
    worker = Worker(url, tasks=[sample.echo], queues=[long]).start()
    job.result(timeout=30)
    worker.shutdown()
    worker.join()
    return job.id


class TestTerminal:
    """What people see: colours and live bars in a terminal, whole plain lines in a pipe."""

    @pytest.mark.parametrize("columns", [40, 60, 80, 160])
    def test_a_table_fits_the_terminal(self, url, finished, columns):
        written = in_terminal(columns, "jobs", "list", "--store", url)
        lines = _ESCAPES.sub("", written).splitlines()
        assert [len(line) > columns for line in lines] == [False, False]
        assert lines[1].startswith(finished)

    def test_a_terminal_has_colours_unless_they_are_not_wanted(self, url, finished):
        assert "\x1b[32mcompleted" in in_terminal(80, "jobs", "list", "--store", url)
        assert "\x1b[32m" not in in_terminal(80, "jobs", "list", "--store", url, NO_COLOR="1")

    def test_a_pipe_gets_whole_lines_without_colours(self, url, finished, folder):
        listed = run_cli("jobs", "list", "--store", url, cwd=folder, environment={"COLUMNS": "40"})
        shown = run_cli("jobs", "get", finished, "--store", url, cwd=folder)
        assert "a-name-that-needs-a-wide-terminal" in listed.stdout
        assert "x" * 200 in shown.stdout
        assert "\x1b" not in listed.stdout + shown.stdout

    def test_watching_in_a_terminal_shows_a_bar(self, url, finished):
        written = in_terminal(60, "jobs", "watch", finished, "--store", url)
        last = _ESCAPES.sub("", written).splitlines()[-1]
        assert last.strip().startswith("completed")
        assert "━" in last
        assert "100%" in last

    def test_a_reader_that_leaves_early_is_no_error(self, url, finished, folder):
        program = f"{sys.executable} -m perdure.cli jobs get {finished} --json --store {url}"
        done = subprocess.run(
            ["/bin/sh", "-c", f"{program} | head -n 1"],
            cwd=folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )

        assert done.stdout == "{\n"
        assert "Traceback" not in done.stderr

    def test_writes_what_the_terminal_cannot_show_in_another_way(self, monkeypatch):
        written = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
        stdout_terminal().print("Zoë: ✓")
        sys.stdout.flush()
        assert written.getvalue() == b"Zo?: ?\n"


ERASE = "\x1b[1G\x1b[0K"
CLIPBOARD = "\x1b]52;c;aGFjaw==\x07"
REVERSED = "\u202e"
HOSTILE = f"{ERASE}forged{CLIPBOARD}\x9b2J{REVERSED}\x7f\r\x08"
FORGED = "12:00:01 info    job completed  job=forged"
RUN_ID = f"order{HOSTILE}"
ACTING = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u202e\u2066\u200f"} - {"\n"}


def odd(value: Any) -> Any:
    return value


def fail(value: Any, ctx: Context = CONTEXT) -> Any:
    ctx.progress(40, f"half{HOSTILE}")
    raise ValueError(f"broken{HOSTILE}\nin two lines")


with older_names():
    odd_task = task(name=f"odd{HOSTILE}")(odd)
    fail_task = task(name=f"fail{HOSTILE}", retries=0)(fail)
    asking = (
        Flow(f"asking{HOSTILE}")
        .approve(f"Pay{HOSTILE}?", name="review", message=f"Now{HOSTILE}", deciders=["ann"])
        .then(odd_task, name="odd")
        .build()
    )
    failing = Flow(f"failing{HOSTILE}").then(fail_task, name="broken").build()


@pytest.fixture
def hostile(client: Client, url: str) -> Iterator[str]:
    """A failed run and one that asks, both of hostile texts; the id of a failed job."""
    with older_names():
        worker = Worker(
            url, tasks=[odd_task, fail_task], flows=[asking, failing], id=f"w{HOSTILE}"
        ).start()
        client.submit(asking, {f"key{HOSTILE}": f"value{HOSTILE}"}, id=f"ask{HOSTILE}")
        run = client.submit(failing, f"value{HOSTILE}", id=RUN_ID)
        assert list(run.watch())[-1].status == "failed"
        lone = client.enqueue(fail_task.options(group=f"g{HOSTILE}"), 1)
        assert list(client.jobs.watch(lone.id))[-1].status == "dead"
        client.queues.pause(f"q{HOSTILE}", by="ann")
        client.schedules.save(f"s{HOSTILE}", fail_task, every="1d", args=[1])
    yield lone.id
    worker.shutdown()
    assert worker.join(30)


COMMANDS = [
    ("inbox",),
    ("approvals", "get", f"ask{HOSTILE}:review"),
    ("jobs", "list"),
    ("jobs", "get", "JOB"),
    ("jobs", "attempts", "JOB"),
    ("jobs", "explain", "JOB"),
    ("jobs", "watch", "JOB"),
    ("jobs", "retry", "nosuch" + HOSTILE),
    ("runs", "list"),
    ("runs", "get", RUN_ID),
    ("runs", "events", RUN_ID),
    ("runs", "events", RUN_ID, "--follow"),
    ("runs", "watch", RUN_ID),
    ("runs", "explain", RUN_ID),
    ("runs", "explain", f"ask{HOSTILE}"),
    ("runs", "timeline", RUN_ID),
    ("runs", "lineage", RUN_ID),
    ("runs", "diagram", RUN_ID),
    ("runs", "pause", f"ask{HOSTILE}"),
    ("runs", "signal", f"ask{HOSTILE}", "go"),
    ("explain", RUN_ID),
    ("waits", "list"),
    ("flows", "list"),
    ("queues", "list"),
    ("workers", "list"),
    ("doctor",),
    ("verify",),
    ("runs", "get", "nosuch" + HOSTILE),
]

LAST = ("cancel", "cancel-group", "retry", "delete", "prune", "import")
"""Commands that leave less for others to print."""

ENDLESS = {("init",), ("dev",), ("worker",), ("events", "stream")}
"""They run until they are stopped."""


def leaves(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[Any, list[str]]]:
    """The commands, and the names of their required arguments."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*above, name))
        elif command is not None:
            arguments = [each for each in command.params if isinstance(each, click.Argument)]
            yield (*above, name), [each.name or "" for each in arguments if each.required]


def arguments(words: tuple[str, ...], job: str) -> list[str]:
    return [job if word == "JOB" else word for word in words]


class TestLogs:
    def test_of_a_worker_are_one_line_each(self):
        run = f"a\nb{HOSTILE}"
        line = PlainLines(is_coloured=False).format(record(run=run, task="fetch"))
        assert acting(line) == set()
        assert len(line.splitlines()) == 1
        assert line.endswith(f"run={visible(run)} task=fetch")

    def test_as_json_have_the_text_itself(self):
        line = JsonLines().format(record(run=HOSTILE))
        assert acting(line) == set()
        assert json.loads(line)["run"] == HOSTILE

    @pytest.mark.parametrize("lines", [PlainLines(is_coloured=False), JsonLines()])
    def test_have_visible_tracebacks(self, lines):
        try:
            raise ValueError(f"{HOSTILE}\n{FORGED}")
        except ValueError:
            found = record(**{f"{HOSTILE}\n{FORGED}": 1})
            found.exc_info = sys.exc_info()
        found.levelname, found.msg = HOSTILE, FORGED
        assert acting(written := lines.format(found)) == set()
        assert r"ValueError: \x1b[1G" in written.replace(r"\u001b", r"\x1b")
        assert forged(written) == []

    @pytest.mark.parametrize("options", [(), ("--json",)], ids=["plain", "json"])
    def test_of_bodies_are_visible_in_any_process(self, folder, url, client, options):
        """Finding 1: child processes, threads, warnings and forks wrote to stderr themselves."""
        (folder / "loud.py").write_text(LOUD)
        loud, forking = (task(name=name)(odd) for name in ("loud", "fork"))
        calls = [(loud, "thread"), (task(name="loud_child")(odd), "child")]
        jobs = [client.enqueue(each, f"{where}\n{FORGED}{HOSTILE}") for each, where in calls]
        if not options:  # as the interpreter does, forks write text
            jobs += [client.enqueue(forking, f"{how}\n{FORGED}{HOSTILE}") for how in ("a", "b")]

        done = run_cli("worker", "loud", "--store", url, "--burst", *options, cwd=folder)

        client.jobs.results(jobs, timeout=1)
        lines = done.stderr.splitlines()
        assert acting(done.stderr) == set()
        assert forged(done.stderr) == []
        if options:
            entries = [json.loads(line) for line in lines]
            texts = [f"{each['message']} {each.get('traceback')}" for each in entries]
        else:
            texts = lines
        for where in ("thread", "child"):
            for said in ("info:", "engine:", "UserWarning:", "ValueError: started", "OSError:"):
                assert any(f"{said} {where}" in text for text in texts), (said, where, texts)
        if not options:
            assert {"SystemExit: b", "    RuntimeError: a"} <= set(lines)


LOUD = """
import logging, os, sys, threading, warnings
from perdure import task


class Unraisable:
    def __init__(self, text):
        self.text = text

    def __del__(self):
        raise OSError(self.text)


def fail(text):
    raise ValueError(f"started {text}")


def speak(text):
    logging.getLogger("own").info("info: %s", text)
    logging.getLogger("perdure.worker").warning("engine: %s", text)
    logging.getLogger("own").warning("%d", text)
    warnings.warn(text)
    Unraisable(text)
    thread = threading.Thread(target=fail, args=(text,))
    thread.start()
    thread.join()


@task
def loud(text):
    speak(text)


@task(isolation="process")
def loud_child(text):
    speak(text)


@task
def fork(text):
    if os.fork() == 0:
        raise RuntimeError(text) if text[0] == "a" else SystemExit(text)
    os.wait()
"""


UTF8 = {"LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", "")}


def record(**fields: object) -> logging.LogRecord:
    made = logging.LogRecord("perdure.cli", logging.WARNING, __file__, 1, "said", (), None)
    made.fields = fields
    return made


def acting(text: str) -> set[str]:
    return ACTING & set(text)


def forged(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(FORGED[:8])]


def values_of(text: str) -> Iterator[Any]:
    """One value after the other, as ``--json`` prints them."""
    rest = text.strip()
    while rest:
        value, end = json.JSONDecoder().raw_decode(rest)
        yield value
        rest = rest[end:].strip()


def texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            yield from (text for each in value for text in texts_in(each))
        case dict():
            yield from (text for pair in value.items() for each in pair for text in texts_in(each))


class TestControlCharacters:
    """Stored text cannot act on a terminal, wherever it is printed; JSON has it as it is."""

    @pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
    def test_prints_no_character_that_acts(self, perdure, hostile, words):
        printed = perdure(*arguments(words, hostile))
        assert acting(printed.out) == set()
        assert acting(printed.error) == set()
        assert "1b[1G" in printed.out + printed.error or words[0] in ("doctor", "verify")

    @pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
    def test_json_has_the_text_itself(self, perdure, hostile, words):
        printed = perdure(*arguments(words, hostile), "--json")
        assert acting(printed.out + printed.error) == set()
        texts = [text for each in values_of(printed.out + printed.error) for text in texts_in(each)]
        assert any(HOSTILE in text for text in texts) or words[0] in ("doctor", "verify")

    @pytest.mark.parametrize(
        "words", COMMANDS[:2] + COMMANDS[9:14], ids=lambda words: " ".join(words[:2])
    )
    def test_prints_none_at_a_terminal_either(self, url, hostile, words):
        with Keyboard(80, *words, "--store", url) as keyboard:
            written = keyboard.rest()
        assert [
            each for each in (ERASE, "\x1b]52", "\x07", "\x9b", REVERSED) if each in written
        ] == []
        assert r"\x1b" in written

    def test_no_command_prints_one(self, perdure, hostile, tmp_path, monkeypatch):
        """Finding 1: every command with hostile data, also those that the table above leaves out.

        What the arguments mean does not matter: some commands succeed, and the others quote them.
        """
        monkeypatch.chdir(tmp_path)
        values = {
            "id": [RUN_ID, f"ask{HOSTILE}", f"ask{HOSTILE}:review", hostile],
            "name": [f"s{HOSTILE}", f"q{HOSTILE}"],
            "group": [f"g{HOSTILE}"],
        }
        endless = {f"ask{HOSTILE}", f"ask{HOSTILE}:review"}
        ran = 0
        for words, parameters in sorted(leaves(app), key=lambda leaf: leaf[0][-1] in LAST):
            if words in ENDLESS:
                continue
            first, *more = [*parameters, ""]
            for value in values.get(first, [f"x{HOSTILE}"] if first else [""]):
                if value in endless and "watch" in words:
                    continue
                given = [value, *(f"y{HOSTILE}" for each in more if each)] if first else []
                for options in ([], ["--json"]):
                    printed = perdure(*words, *options, "--", *given)
                    assert acting(printed.out + printed.error) == set(), (words, given)
                    assert "Traceback" not in printed.error, (words, printed)
                    ran += 1
        assert ran > 150

    def test_prompts_are_made_visible(self, url, client):
        form = {
            "type": "object",
            "properties": {"sum": {"type": "string", "title": f"Sum{HOSTILE}"}},
        }
        flow = (
            Flow("forms")
            .approve("Pay?", name="review", form=form)
            .then(odd_task, name="odd")
            .build()
        )
        client.submit(flow, 1, id="order-1")

        with Keyboard(80, "decide", "order-1:review", "--store", url) as keyboard:
            keyboard.answer("Decision", "approve")
            keyboard.answer(r"Sum\x1b[1G\x1b[0Kforged", "1")
            keyboard.rest()

        assert REVERSED not in keyboard.written
        assert keyboard.exit_code == 0

    def test_progress_at_a_terminal(self, url, client):
        lone = client.enqueue(fail_task, 1)
        with Keyboard(120, "jobs", "watch", lone.id, "--store", url) as keyboard:
            keyboard.expect("waiting")
            worker = Worker(url, tasks=[fail_task]).start()
            written = keyboard.rest()
            worker.shutdown()
            assert worker.join(30)

        assert "\x1b]52" not in written
        assert r"broken\x1b[1G" in written

    def test_a_module_that_cannot_be_imported(self, perdure, folder):
        (folder / "hostile.py").write_text(
            "import threading, warnings\n"
            f"def fail():\n    raise ValueError({HOSTILE!r})\n"
            "thread = threading.Thread(target=fail)\nthread.start()\nthread.join()\n"
            f"warnings.warn({HOSTILE!r})\nfail()\n"
        )
        done = run_cli("flows", "list", "hostile", cwd=folder)
        assert done.returncode == 2
        assert acting(done.stderr) == set()
        assert r"UserWarning: \x1b[1G" in done.stderr
        assert "unhandled error in a thread" in done.stderr
        assert r"ValueError: \x1b[1G" in done.stderr

    def test_an_unexpected_error(self, folder):
        program = f"""
import perdure.cli.app as cli
def broken(*args, **settings): raise RuntimeError({HOSTILE!r})
cli.App.main = broken
from perdure.cli import main
main()
"""
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )

        assert done.returncode == 1
        assert acting(done.stderr) == set()
        assert r"RuntimeError: \x1b[1G" in done.stderr

    def test_a_live_picture_is_no_wider_for_it(self):
        seen = snapshot(
            {"fetch": NodeStatus.LIVE},
            jobs=[job("fetch", progress=Progress(percent=50, message=HOSTILE * 9), worker=HOSTILE)],
            workers=[worker(HOSTILE)],
        )
        for width in (20, 80):
            lines = screen(seen, lines_of(seen), [event(1, key=HOSTILE)], (width, 24), UNICODE)
            assert all(acting(line.plain) == set() for line in lines)
            assert max(cell_len(line.plain) for line in lines) <= width

    def test_a_console_escapes_what_views_forget(self):
        written = io.StringIO()
        console = Terminal(file=written, width=200)
        console.print(HOSTILE)
        console.print(Text(HOSTILE))
        console.print(Padding(Text(HOSTILE), 1))
        assert acting(written.getvalue()) == set()
        assert written.getvalue().count(r"\u202e") == 3

    def test_pictures_have_none(self):
        diagram = diagram_of(asking.graph)
        assert acting(mermaid(diagram)) == set()
        assert acting(svg(diagram)) == set()

    def test_a_command_that_is_advised_can_be_copied(self):
        for text in (RUN_ID, "it's\x85 a\\b\n", "plain", "two words"):
            command = f"printf %s {quoted(text)}"
            assert acting(command) == set()
            said = subprocess.run(
                ["bash", "-c", command], capture_output=True, check=True, env=UTF8
            )
            assert said.stdout.decode() == text

    def test_newlines_stay_only_in_texts_of_several_lines(self):
        assert visible("a\tb\nc\x1b\x9b\u2066") == r"a\tb\nc\x1b\u009b\u2066"
        assert visible_lines("a\tb\nc\r\n") == "a\tb\nc\\r\n"
        assert visible("Zoë ✓ 日本 👩‍🚀") == "Zoë ✓ 日本 👩‍🚀"
        assert json.loads(visible_json(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE


# How things look: what fits, what is shortened, what is left out.


NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
ID = Column(title="ID", cells=["0123456789"])
NAME = Column(title="NAME", cells=["a-rather-long-name"], rank=1, room_min=6)
EXTRA = Column(title="EXTRA", cells=["extra"], rank=2)
EMPTY = Column(title="EMPTY", cells=[""])


@pytest.mark.parametrize(
    "columns, width, titles",
    [
        ([ID, NAME, EXTRA], 80, ["ID", "NAME", "EXTRA"]),
        ([ID, NAME, EXTRA], 25, ["ID", "NAME", "EXTRA"]),  # shortened
        ([ID, NAME, EXTRA], 24, ["ID", "NAME"]),  # the least important is left out first
        ([ID, NAME, EXTRA], 17, ["ID"]),
        ([ID, NAME, EXTRA], 1, ["ID"]),  # what identifies never is
        ([ID, EMPTY], 80, ["ID"]),  # what says nothing always
    ],
)
def test_columns_are_shortened_before_they_are_left_out(columns, width, titles):
    assert [column.title for column in fit_columns(columns, width)] == titles


@pytest.mark.parametrize(
    "columns, width, widths",
    [
        ([ID, NAME, EXTRA], 80, [10, 18, 5]),
        ([ID, NAME, Column(title="N", cells=["123"], room_min=1)], 29, [10, 12, 3]),
        ([ID, NAME], 10, [10, 6]),
    ],
)
def test_widths_are_taken_from_the_widest_as_far_as_they_may_be(columns, width, widths):
    assert column_widths(columns, width) == widths


class TestTable:
    def test_leaves_short_columns_whole_next_to_long_ones(self):
        console = Console(file=io.StringIO(), width=40)
        age = Column(title="AGE", cells=["10m"], rank=2)
        why = Column(title="WHY", cells=["because " * 20], rank=3, room_min=12)
        print_table(console, [ID, age, why])
        assert isinstance(console.file, io.StringIO)
        assert "0123456789  10m  because because" in console.file.getvalue()
        assert console.file.getvalue().rstrip().endswith("…")

    @pytest.mark.parametrize("width", [18, 25, 30, 80])
    def test_fits_the_width(self, width):
        console = Console(file=io.StringIO(), width=width)
        print_table(console, [ID, NAME, EXTRA])
        assert isinstance(console.file, io.StringIO)
        lines = console.file.getvalue().splitlines()
        assert len(lines) == 2
        assert all(len(line) <= width for line in lines)
        assert lines[1].startswith("0123456789")


class TestDepthColumns:
    QUEUES = {  # noqa: RUF012
        name: QueueStats(namespace="default", name=name, counts=counts, more=more)
        for name, counts, more in [
            ("default", {Status.WAITING: 12, Status.FAILED: 3}, ()),
            ("mail", {Status.WAITING: 1, Status.COMPLETED: 10_000}, (Status.COMPLETED,)),
        ]
    }

    def test_crosses_queues_and_statuses_with_sums(self):
        columns = queue_columns(self.QUEUES, 80)
        assert [(column.title, list(column.cells)) for column in columns] == [
            ("QUEUE", ["default", "mail", "total"]),
            ("WAITING", ["12", "1", "13"]),
            ("COMPLETED", ["", "10,000+", "10,000+"]),
            ("FAILED", ["3", "", "3"]),
        ]

    def test_lists_them_where_it_is_narrow(self):
        columns = queue_columns(self.QUEUES, 30)
        assert [list(column.cells) for column in columns] == [
            ["default", "default", "mail", "mail"],
            ["failed", "waiting", "completed", "waiting"],
            ["3", "12", "10,000+", "1"],
        ]


class TestWords:
    def test_moment_says_how_far_away_it_is(self):
        assert moment(NOW - timedelta(minutes=5), NOW).endswith("(5m ago)")
        assert moment(NOW + timedelta(minutes=5), NOW).endswith("(in 5m)")
        assert moment(NOW + timedelta(days=3, seconds=-1), NOW).endswith("(in 3d)")
        assert moment(None, NOW) == ""

    def test_percent_is_silent_before_the_first_report(self):
        assert percent(Progress(percent=0)) == ""
        assert percent(Progress(percent=49.6)) == "50%"

    def test_shortened_is_one_line_of_that_length(self):
        assert shortened("two\n  lines", 80) == "two lines"
        assert shortened("0123456789", 10) == "0123456789"
        assert shortened("0123456789", 9) == "01234567…"
