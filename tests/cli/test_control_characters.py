"""Stored text cannot act on a terminal, wherever it is printed; JSON has it as it is."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from rich.cells import cell_len
from rich.padding import Padding
from rich.text import Text

from perdure import CONTEXT, Client, Context, Flow, Progress, Worker, task
from perdure.cli.logs import JsonLines, PlainLines
from perdure.cli.renderer import quoted
from perdure.cli.terminal import Terminal
from perdure.cli.views.live import lines_of
from perdure.cli.views.screen import UNICODE, screen
from perdure.model.run import NodeStatus
from perdure.model.text import visible, visible_json, visible_lines
from perdure.render.diagram import diagram_of
from perdure.render.mermaid import mermaid
from perdure.render.svg import svg
from tests.cli.keyboard import Keyboard
from tests.cli.processes import run_cli
from tests.cli.sights import event, job, snapshot, worker

ERASE = "\x1b[1G\x1b[0K"
CLIPBOARD = "\x1b]52;c;aGFjaw==\x07"
REVERSED = "\u202e"
HOSTILE = f"{ERASE}forged{CLIPBOARD}\x9b2J{REVERSED}\x7f\r\x08"
RUN_ID = f"order{HOSTILE}"
ACTING = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u202e\u2066\u200f"} - {"\n"}


@task(name=f"odd{HOSTILE}")
def odd(value: Any) -> Any:
    return value


@task(name=f"fail{HOSTILE}", retries=0)
def fail(value: Any, ctx: Context = CONTEXT) -> Any:
    ctx.progress(40, f"half{HOSTILE}")
    raise ValueError(f"broken{HOSTILE}\nin two lines")


asking = (
    Flow(f"asking{HOSTILE}")
    .approve(
        f"Pay{HOSTILE}?",
        name="review",
        message=f"Now{HOSTILE}",
        deciders=[f"ann{HOSTILE}"],
    )
    .then(odd, name="odd")
    .build()
)
failing = Flow(f"failing{HOSTILE}").then(fail, name="broken").build()


@pytest.fixture
def hostile(client: Client, url: str) -> Iterator[str]:
    """A failed run and one that asks, both of hostile texts; the id of a failed job."""
    worker = Worker(url, tasks=[odd, fail], flows=[asking, failing], id=f"w{HOSTILE}").start()
    client.submit(asking, {f"key{HOSTILE}": f"value{HOSTILE}"}, id=f"ask{HOSTILE}")
    run = client.submit(failing, f"value{HOSTILE}", id=RUN_ID)
    assert list(run.watch())[-1].status == "failed"
    lone = client.enqueue(fail.options(group=f"g{HOSTILE}"), 1)
    assert list(client.jobs.watch(lone.id))[-1].status == "dead"
    client.queues.pause(f"q{HOSTILE}", by=f"ann{HOSTILE}")
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
    ("runs", "signal", f"ask{HOSTILE}", f"go{HOSTILE}"),
    ("explain", RUN_ID),
    ("waits", "list"),
    ("flows", "list"),
    ("queues", "list"),
    ("workers", "list"),
    ("doctor",),
    ("verify",),
    ("runs", "get", "nosuch" + HOSTILE),
]


def arguments(words: tuple[str, ...], job: str) -> list[str]:
    return [job if word == "JOB" else word for word in words]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_prints_no_character_that_acts(perdure, hostile, words):
    told = perdure(*arguments(words, hostile))

    assert acting(told.out) == set()
    assert acting(told.error) == set()
    assert "1b[1G" in told.out + told.error or words[0] in ("doctor", "verify")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_json_has_the_text_itself(perdure, hostile, words):
    told = perdure(*arguments(words, hostile), "--json")

    assert acting(told.out + told.error) == set()
    texts = [text for each in values_of(told.out + told.error) for text in texts_in(each)]
    assert any(HOSTILE in text for text in texts) or words[0] in ("doctor", "verify")


@pytest.mark.parametrize(
    "words", COMMANDS[:2] + COMMANDS[9:14], ids=lambda words: " ".join(words[:2])
)
def test_prints_none_at_a_terminal_either(url, hostile, words):
    with Keyboard(80, *words, "--store", url) as keyboard:
        written = keyboard.rest()

    assert [each for each in (ERASE, "\x1b]52", "\x07", "\x9b", REVERSED) if each in written] == []
    assert r"\x1b" in written


def test_prompts_are_made_visible(url, client):
    form = {"type": "object", "properties": {"sum": {"type": "string", "title": f"Sum{HOSTILE}"}}}
    flow = Flow("forms").approve("Pay?", name="review", form=form).then(odd, name="odd").build()
    client.submit(flow, 1, id="order-1")

    with Keyboard(80, "decide", "order-1:review", "--store", url) as keyboard:
        keyboard.answer("Decision", "approve")
        keyboard.answer(r"Sum\x1b[1G\x1b[0Kforged", "1")
        keyboard.rest()

    assert REVERSED not in keyboard.written
    assert keyboard.exit_code == 0


def test_progress_at_a_terminal(url, client):
    lone = client.enqueue(fail, 1)
    with Keyboard(120, "jobs", "watch", lone.id, "--store", url) as keyboard:
        keyboard.expect("waiting")
        worker = Worker(url, tasks=[fail]).start()
        written = keyboard.rest()
        worker.shutdown()
        assert worker.join(30)

    assert "\x1b]52" not in written
    assert r"broken\x1b[1G" in written


def test_a_module_that_cannot_be_imported(perdure, folder):
    (folder / "hostile.py").write_text(f"raise ValueError({HOSTILE!r})\n")

    done = run_cli("flows", "list", "hostile", cwd=folder)

    assert done.returncode == 2
    assert acting(done.stderr) == set()
    assert r"ValueError: \x1b[1G" in done.stderr


def test_an_unexpected_error(folder):
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
            raise ValueError(HOSTILE)
        except ValueError:
            found = record()
            found.exc_info = sys.exc_info()

        assert acting(lines.format(found)) == set()


def test_a_live_picture_is_no_wider_for_it():
    seen = snapshot(
        {"fetch": NodeStatus.LIVE},
        jobs=[job("fetch", progress=Progress(percent=50, message=HOSTILE * 9), worker=HOSTILE)],
        workers=[worker(HOSTILE)],
    )
    for width in (20, 80):
        lines = screen(seen, lines_of(seen), [event(1, key=HOSTILE)], (width, 24), UNICODE)
        assert all(acting(line.plain) == set() for line in lines)
        assert max(cell_len(line.plain) for line in lines) <= width


def test_a_console_escapes_what_views_forget():
    written = io.StringIO()
    console = Terminal(file=written, width=200)

    console.print(HOSTILE)
    console.print(Text(HOSTILE))
    console.print(Padding(Text(HOSTILE), 1))

    assert acting(written.getvalue()) == set()
    assert written.getvalue().count(r"\u202e") == 3


def test_pictures_have_none():
    diagram = diagram_of(asking.graph)

    assert acting(mermaid(diagram)) == set()
    assert acting(svg(diagram)) == set()


def test_a_command_that_is_advised_can_be_copied():
    for text in (RUN_ID, "it's\x85 a\\b\n", "plain", "two words"):
        command = f"printf %s {quoted(text)}"
        assert acting(command) == set()
        said = subprocess.run(["bash", "-c", command], capture_output=True, check=True, env=UTF8)
        assert said.stdout.decode() == text


def test_newlines_stay_only_in_texts_of_several_lines():
    assert visible("a\tb\nc\x1b\x9b\u2066") == r"a\tb\nc\x1b\u009b\u2066"
    assert visible_lines("a\tb\nc\r\n") == "a\tb\nc\\r\n"
    assert visible("Zoë ✓ 日本 👩‍🚀") == "Zoë ✓ 日本 👩‍🚀"
    assert json.loads(visible_json(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE


UTF8 = {"LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", "")}


def record(**fields: object) -> logging.LogRecord:
    made = logging.LogRecord("perdure.cli", logging.WARNING, __file__, 1, "said", (), None)
    made.fields = fields
    return made


def acting(text: str) -> set[str]:
    return ACTING & set(text)


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
