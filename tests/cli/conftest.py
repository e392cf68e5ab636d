"""A folder like a user's own, with a module of tasks in it and a store beside."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Client
from tests.cli import sample_tasks
from tests.cli.commands import Commands


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working directory, with the sample tasks as ``sample.py``."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(Path(sample_tasks.__file__), folder / "sample.py")
    return folder


@pytest.fixture
def url(folder: Path) -> str:
    return f"sqlite:///{folder}/work.db"


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def perdure(url: str) -> Commands:
    """The commands of the shell, run in this process on the test's store."""
    return Commands(url)
