"""What must never enter the project: machine paths, executable payloads, extras at import."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, Module, dotted_references, imported_names, modules

# Folders that exist on one machine only; split so that this file passes its own test.
MACHINE_PATH = re.compile(r"(?<![\w./~-])/(?:work|root|home/\w+|Users/\w+)" + "/")

RUNS_WHAT_IT_READS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
RUNS_TEXT = {"eval", "exec"}

# "path: name": why code that comes from data is safe here
EXECUTES_ON_PURPOSE: dict[str, str] = {}

NOT_LOADED_AT_IMPORT = ["click", "rich", "psycopg", "sqlalchemy", "pydantic"]


def test_no_tracked_file_names_a_path_of_one_machine():
    files = tracked_files()
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]

    assert ROOT / "pyproject.toml" in files
    assert found == []


@pytest.mark.parametrize("folder", ["work", "root", "home/ann", "Users/ann"])
def test_a_machine_path_is_recognised(folder):
    assert MACHINE_PATH.search(f'open("/{folder}/notes.txt")')
    assert not MACHINE_PATH.search(f"https://example.org/{folder}/notes.txt")


def test_nothing_is_unpickled_or_evaluated():
    assert set(executions(modules())) == set(EXECUTES_ON_PURPOSE)  # stale excuses fail too


def test_an_execution_is_recognised(tmp_path):
    (tmp_path / "bad.py").write_text(
        "import pickle\nfrom marshal import loads\nimport shelve as s\neval('1')\nexec('')\n"
    )
    (tmp_path / "good.py").write_text("import json\nself.eval()\nexecute('')\n")

    assert executions(modules(tmp_path)) == [
        "bad.py: pickle",
        "bad.py: marshal",
        "bad.py: shelve",
        "bad.py: eval",
        "bad.py: exec",
    ]


def test_importing_the_library_loads_no_extras():
    program = f"""
import json, sys
import perdure
print(json.dumps([name for name in {NOT_LOADED_AT_IMPORT} if name in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:  # an unpacked source archive: all that it holds counts as tracked
        folders = ("src", "tests", "proof", "docs", "bench")
        files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
        return [path for path in [*ROOT.glob("*"), *files] if path.is_file()]
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def executions(tree: list[Module]) -> list[str]:
    return [f"{module.path}: {name}" for module in tree for name in executed_in(module)]


def executed_in(module: Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in RUNS_WHAT_IT_READS]
        elif isinstance(node, ast.ImportFrom) and node.module in RUNS_WHAT_IT_READS:
            found.append(node.module)
        elif isinstance(node, ast.Name) and node.id in RUNS_TEXT:
            found.append(node.id)
    return found


# All that is printed goes through one place, where control characters become visible.


PRINTS = ("cli", "demo")

# Module -> why it writes by itself.
WRITERS = {
    "cli.output": "one line or several: its texts are made visible here",
    "cli.terminal": "the console of rich: its texts are made visible here",
}

OF_CLICK = {"echo", "secho", "echo_via_pager", "prompt", "confirm"}
OF_RICH = {"rich.console.Console", "rich.get_console", "rich.print", "rich.prompt"}
OF_PYTHON = {"print", "input"}
OF_STREAMS = {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}


def test_who_writes_to_the_terminal():
    found = [each for each in modules() if each.name.split(".")[0] in PRINTS]
    assert {module.name for module in found if any(writes(module))} == WRITERS.keys()


def writes(module: Module) -> Iterator[str]:
    names = imported_names(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            yield from OF_RICH & {_dotted(base, names) for base in node.bases}
        if isinstance(node, ast.Call):
            called = _dotted(node.func, names)
            package, _, function = called.rpartition(".")
            if (
                called in OF_PYTHON
                or called in OF_RICH
                or (package == "click" and function in OF_CLICK)
                or (package == "traceback" and function.startswith("print"))
                or (package in OF_STREAMS and function.startswith("write"))
            ):
                yield called


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    match node:
        case ast.Name(id=name):
            return names.get(name, name)
        case ast.Attribute(value=value, attr=attr):
            return f"{_dotted(value, names)}.{attr}"
    return ""


def test_writing_is_recognised(tmp_path):
    (tmp_path / "good.py").write_text("console.print('a')\nself.print('a')\necho('a')\n")
    (tmp_path / "bad.py").write_text(
        "import click, sys, traceback\n"
        "from click import echo as say\n"
        "from rich.console import Console\n"
        "print('a')\n"
        "say('a')\n"
        "click.secho('a')\n"
        "sys.stderr.write('a')\n"
        "traceback.print_exc()\n"
        "Console()\n"
        "class Own(Console): ...\n"
    )

    assert {each.name: sorted(writes(each)) for each in _sorted(modules(tmp_path))} == {
        "bad": [
            "click.echo",
            "click.secho",
            "print",
            "rich.console.Console",
            "rich.console.Console",
            "sys.stderr.write",
            "traceback.print_exc",
        ],
        "good": [],
    }


def _sorted(found: Iterable[Module]) -> list[Module]:
    return sorted(found, key=lambda each: each.name)


# Only the clock reads the time, so tests can turn it everywhere.


CLOCK = "clock.py"

# All of `time` but waiting: it reads a clock, or turns the reading into local time.
READS_THE_TIME = re.compile(
    r"time\.(?!sleep$).+"
    r"|datetime\.(datetime|date)\.(now|utcnow|today)"
)

# "path": why this file may read the time by itself
READERS_ON_PURPOSE: dict[str, str] = {}


def test_only_the_clock_reads_the_time():
    readers = {reading.partition(":")[0]: reading for reading in readings(modules())}
    assert readers.pop(CLOCK, None), "the clock itself was not found reading the time"
    assert readers.keys() == READERS_ON_PURPOSE.keys(), readers  # stale excuses fail too


def test_a_simulated_history_never_reads_the_time():
    assert readings(modules(ROOT / "proof" / "simulate")) == []


class TestTheCheckItself:
    def test_finds_every_way_to_read_the_time(self, tmp_path):
        for number, text in enumerate(
            [
                "import time\nx = time.time()",
                "import time as t\nx = t.monotonic_ns",
                "from time import perf_counter\nx = perf_counter()",
                "import datetime\nx = datetime.datetime.now()",
                "import datetime as d\nx = d.date.today()",
                "from datetime import datetime as dt\nx = dt.utcnow()",
            ]
        ):
            (tmp_path / f"reader_{number}.py").write_text(text)

        assert readings(modules(tmp_path)) == [
            "reader_0.py:2 time.time",
            "reader_1.py:2 time.monotonic_ns",
            "reader_2.py:2 time.perf_counter",
            "reader_3.py:2 datetime.datetime.now",
            "reader_4.py:2 datetime.date.today",
            "reader_5.py:2 datetime.datetime.utcnow",
        ]

    def test_lets_others_wait_and_calculate(self, tmp_path):
        (tmp_path / "waiter.py").write_text(
            "import time\nfrom datetime import UTC, datetime\n"
            "time.sleep(1)\nx = datetime.fromtimestamp(0, UTC)\nself.clock.now()"
        )
        assert readings(modules(tmp_path)) == []


def readings(tree: list[Module]) -> list[str]:
    return [
        f"{module.path}:{line} {name}"
        for module in tree
        for line, name in dotted_references(module)
        if READS_THE_TIME.fullmatch(name)
    ]


# The tests pass in the background, where a shell has its children ignore SIGINT.


SENDS_SIGINT = (
    "tests/client/test_sync.py::TestRun::test_cancels_the_coroutine_of_a_caller_that_is_interrupted"
)


def test_a_test_that_interrupts_passes_where_sigint_is_ignored():
    pytest = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", SENDS_SIGINT]
    done = subprocess.run(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *pytest],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
