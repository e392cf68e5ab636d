"""One store full of work, made once, and its export; tests take copies."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from perdure.transfer import export_store
from tests.transfer.scene import fill


@pytest.fixture(scope="package")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store ``work.db``, and its export ``work.jsonl``."""
    folder = tmp_path_factory.mktemp("made")
    url = f"sqlite:///{folder}/work.db"
    fill(url)
    asyncio.run(export_store(url, folder / "work.jsonl"))
    return folder


@pytest.fixture
def source_url(made: Path, tmp_path: Path) -> str:
    """A store of the test's own with all that work."""
    shutil.copy(made / "work.db", tmp_path / "source.db")
    return f"sqlite:///{tmp_path}/source.db"


@pytest.fixture
def export(made: Path) -> Path:
    return made / "work.jsonl"


@pytest.fixture(params=["sqlite", "postgres"])
def target_url(request: pytest.FixtureRequest) -> str:
    """An empty store, once for each backend that can be moved to."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


def rows_of(path: Path) -> list[Any]:
    """The lines between the first and the last."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        return [json.loads(line) for line in file.read().splitlines()[1:-1]]


def kinds_in(rows: Iterable[Any]) -> set[str]:
    return {row["row"] for row in rows}
