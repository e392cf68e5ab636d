"""Every example in the documentation runs as it stands, and prints what the page says."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from tests.docs.pages import ROOT, Page, all_pages
from tests.docs.scripts import (
    RUN,
    SHOWN,
    missing_lines,
    needs_database,
    outputs_of,
    saved_files,
    write_script,
)

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

    told = f"{name}:\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, told
    assert missing_lines(outputs_of(page), done.stdout) == [], told


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
