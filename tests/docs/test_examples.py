"""Every example in the documentation runs as it stands, and prints what the page says."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from perdure import task
from tests.docs.execution import shell
from tests.docs.pages import ROOT, Block, Page, all_pages

RUN = frozenset({"python", "sh"})
SHOWN = frozenset({"text", "ini", "mermaid", "sql", "toml", "yaml"})
"""Languages that are only read; a Python example must not hide among them."""

DATABASE = re.compile(r"postgresql(\+\w+)?://localhost/app\b")
"""The database of the examples."""

_PROLOGUE = "from tests.docs.execution import save as _save, shell as _shell; "


def needs_database(page: Page) -> bool:
    return any(DATABASE.search(block.code) for block in page.blocks if block.language in RUN)


def script_of(page: Page, database: str | None) -> str:
    """The script that runs all examples of a page, on this database."""
    lines = [""] * (page.text.count("\n") + 2)
    for block in page.blocks:
        code = _with_database(block.code, database)
        if block.language == "python" and block.file_name is None:
            lines[block.line - 1 : block.line - 1 + code.count("\n") + 1] = code.split("\n")
        elif block.language in RUN or block.file_name is not None:
            # Statements of ours stand in the first line of their block.
            lines[block.line - 1] = "; ".join(_acts(block, code)) or "pass"
    lines[0] = _PROLOGUE + (lines[0] or "pass")
    return "\n".join(lines)


def outputs_of(page: Page) -> list[str]:
    """The lines that a run of the page must print, in this order among others."""
    return [line for block in page.blocks if block.is_output for line in block.code.split("\n")]


def missing_lines(wanted: list[str], printed: str) -> list[str]:
    """What of ``wanted`` was not printed in this order; an ellipsis stands for anything."""
    lines = iter(printed.splitlines())
    return [line for line in wanted if not any(_matches(line, each) for each in lines)]


def saved_files(page: Page) -> list[Block]:
    return [block for block in page.blocks if block.language == "python" and block.file_name]


def _acts(block: Block, code: str) -> list[str]:
    if block.file_name is not None:
        return [f"_save({block.file_name!r}, {code!r})"]
    commands = re.sub(r"\\\n\s*", "", code).split("\n")
    return [f"_shell({line!r})" for line in commands if line.strip() and not line.startswith("#")]


def _with_database(code: str, database: str | None) -> str:
    if database is None:
        return code
    address = database.partition("://")[2]
    return DATABASE.sub(lambda found: f"postgresql{found[1] or ''}://{address}", code)


def _matches(wanted: str, printed: str) -> bool:
    parts = (re.escape(part) for part in wanted.rstrip().split("…"))
    return re.fullmatch(".*".join(parts), printed.rstrip()) is not None


def write_script(page: Page, folder: Path, database: str | None) -> Path:
    script = folder / f"{page.path.stem.replace('-', '_')}_page.py"
    script.write_text(script_of(page, database), encoding="utf-8")
    return script


PAGE_SECONDS_MAX = 50
PAGES = {page.name: page for page in all_pages()}
WITH_EXAMPLES = [
    name for name, page in PAGES.items() if any(block.language in RUN for block in page.blocks)
]


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """A database of the page's own, for pages that speak of one; they choose their schemas."""
    if not needs_database(PAGES[request.node.callspec.params["name"]]):
        yield None
        return
    server: str = request.getfixturevalue("postgres_server_url")
    name = f"docs_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield urlunsplit(urlsplit(server)._replace(path=f"/{name}", query=""))
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_page_run_as_they_stand(name, tmp_path, database):
    page = PAGES[name]
    script = write_script(page, tmp_path, database)
    done = run(script)
    output = f"{name}:\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, output
    assert missing_lines(outputs_of(page), done.stdout) == [], output


def test_the_limiter_of_a_page_grants_no_more_to_two_threads_than_to_one():
    [block] = [
        each for each in PAGES["docs/howto/limits.md"].blocks if "class Licenses" in each.code
    ]
    names: dict[str, Any] = {"task": task}
    exec(block.code, names)
    limiter, both, make_id = names["Licenses"](), threading.Barrier(2), names["uuid4"]

    def make_id_with_the_other() -> Any:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        return make_id()

    names["uuid4"] = make_id_with_the_other  # between the check and the update

    def acquire(_: int) -> Any:
        return asyncio.run(limiter.acquire("key", 2, timedelta(seconds=1)))

    with ThreadPoolExecutor(2) as threads:
        granted = [place for places, _ in threads.map(acquire, range(2)) for place in places]

    assert len(granted) == 2


@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_is_either_run_or_only_shown(name):
    languages = {block.language for block in PAGES[name].blocks}
    assert languages <= RUN | SHOWN


@pytest.mark.parametrize("name", PAGES)
def test_no_python_hides_in_blocks_that_are_only_shown(name):
    page = PAGES[name]
    shown = [block.code for block in page.blocks if block.language in SHOWN]
    indented = [line for line in page.prose if line.startswith("    ")]
    hidden = [text for text in [*shown, *indented] if re.search(r"^\s*(import|from) \w", text)]
    assert hidden == []


@pytest.mark.parametrize("name", PAGES)
def test_every_saved_file_is_used_further_down(name):
    page = PAGES[name]
    unused = [
        block.file_name
        for block in saved_files(page)
        if not uses(page, str(block.file_name).removesuffix(".py"), block.line)
    ]
    assert unused == []


def uses(page: Page, module: str, after_line: int) -> bool:
    later = [block for block in page.blocks if block.line > after_line and block.language in RUN]
    name = "pytest" if module == "conftest" else module  # which reads it by itself
    return any(re.search(rf"\b{name}\b", block.code) for block in later)


def run(script: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PERDURE_STORE"},
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "error",
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }
    return subprocess.run(
        [sys.executable, script.name],
        cwd=script.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PAGE_SECONDS_MAX,
        check=False,
    )


# The check of the examples itself: it notices what is wrong, and skips nothing.


FENCE = "`" * 3


def page_with(folder: Path, *blocks: tuple[str, str]) -> Page:
    path = folder / "sample.md"
    text = "".join(f"Words.\n\n{FENCE}{info}\n{code}\n{FENCE}\n\n" for info, code in blocks)
    path.write_text(f"# Sample\n\n{text}")
    return Page(path)


def run_page(page: Page, folder: Path) -> subprocess.CompletedProcess[str]:
    script = write_script(page, folder, None)
    return subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


class TestRunningAPage:
    def test_runs_blocks_in_order_in_one_namespace(self, tmp_path):
        page = page_with(tmp_path, ("python", "a = 1"), ("python", "print(a + 1)"))
        assert run_page(page, tmp_path).stdout == "2\n"

    def test_reports_an_error_by_its_line_in_the_page(self, tmp_path):
        page = page_with(
            tmp_path, ("text", "Not run_page."), ("python", "\nraise ValueError('here')")
        )
        line = page.text.split("\n").index("raise ValueError('here')") + 1
        done = run_page(page, tmp_path)
        assert done.returncode != 0
        assert f"line {line}, in <module>" in done.stderr

    def test_saves_a_block_that_names_its_file(self, tmp_path):
        page = page_with(tmp_path, ("python", "# five.py\nN = 5"), ("python", "from five import N"))
        assert run_page(page, tmp_path).returncode == 0
        assert (tmp_path / "five.py").read_text() == "# five.py\nN = 5\n"

    def test_runs_the_lines_of_a_shell_block(self, tmp_path):
        page = page_with(
            tmp_path, ("python", "# hi.py\nprint('hi')"), ("sh", "# a remark\npython hi.py")
        )
        assert run_page(page, tmp_path).stdout == "hi\n"

    def test_puts_the_database_of_the_test_in_place_of_the_examples(self, tmp_path):
        code = 'a = "postgresql://localhost/app?pool=2"\nb = "postgresql+psycopg://localhost/app"'
        page = page_with(tmp_path, ("python", code))
        script = script_of(page, "postgresql://ann:pw@db:99/docs_1")
        assert needs_database(page)
        assert 'a = "postgresql://ann:pw@db:99/docs_1?pool=2"' in script
        assert 'b = "postgresql+psycopg://ann:pw@db:99/docs_1"' in script


class TestOutputs:
    def test_lines_must_come_in_order_among_others(self):
        assert missing_lines(["a", "c"], "a\nb\nc\n") == []
        assert missing_lines(["c", "a"], "a\nb\nc\n") == ["a"]

    def test_an_ellipsis_stands_for_anything(self):
        assert missing_lines(["job … is done"], "job 17 is done\n") == []
        assert missing_lines(["job … is done"], "job 17 is dead\n") == ["job … is done"]

    def test_only_blocks_that_say_so_are_outputs(self, tmp_path):
        page = page_with(tmp_path, ("text", "a picture"), ("text output", "printed"))
        assert outputs_of(page) == ["printed"]


class TestShellLines:
    @pytest.mark.parametrize(
        "line",
        [
            "rm -r everything",
            "make coffee",
            "pip install something-else",
            "pip install 'perdure[nothing]'",
            "perdure jobs list &",
            "perdure nothing",
        ],
    )
    def test_what_is_not_known_is_refused(self, line):
        with pytest.raises(AssertionError):
            shell(line)

    @pytest.mark.parametrize(
        "line", ["perdure jobs get ID --colour red", "perdure jobs get ID ID", "perdure jobs ID"]
    )
    def test_a_command_that_is_not_run_is_parsed(self, line):
        with pytest.raises(Exception, match=r"(?i)no such|unexpected|names no"):
            shell(line)

    def test_a_command_about_a_job_that_is_parsed_is_not_run(self):
        shell("perdure jobs get ID --store sqlite:///nowhere.db --json")
