"""``python -m perdure.testing.check``, and checking a store while workers go on."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from perdure import AsyncClient, Flow, task
from perdure.store.opening import store_at
from perdure.testing.check import Witness, check, pages
from perdure.testing.check.__main__ import main
from tests.flows.catalogue import FLOWS
from tests.worker.conftest import Hire, hire

__all__ = ["hire"]

RUNS = 120
asking = Flow("asking").wait_for_signal("go").build()


@task
async def add_one(number: int) -> int:
    return number + 1


chain = Flow("chain").then(add_one, name="a").then(add_one, name="b").then(add_one, name="c")
chain_flow = chain.build()


@pytest.fixture
async def waiting(sqlite_url: str) -> str:
    """A store with one run, which waits."""
    async with AsyncClient(sqlite_url) as client:
        await client.submit(asking, 1, id="r")
    return sqlite_url


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perdure.testing.check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)


def break_it(url: str) -> None:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    with connection:
        connection.execute("DELETE FROM perdure_waits")
    connection.close()


class TestCommand:
    def test_says_that_nothing_is_wrong(self, waiting: str) -> None:
        done = run_command(waiting)

        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("nothing is wrong in 1 runs")

    def test_says_what_is_wrong(self, waiting: str) -> None:
        break_it(waiting)

        done = run_command(waiting)

        assert done.returncode == 1
        assert "I7 waits_match: run 'r', key 'go'" in done.stdout
        assert "1 findings in 1 runs" in done.stdout

    def test_writes_json(
        self, waiting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Witness(tmp_path / "log").accepted(run="lost")

        status = main([waiting, "--log", str(tmp_path / "log"), "--json"])

        told = msgspec.json.decode(capsys.readouterr().out)
        assert status == 1
        assert [(each["invariant"], each["run"]) for each in told["findings"]] == [("I1", "lost")]
        assert told["counts"]["runs"] == 1

    def test_takes_what_may_be_gone(self, waiting: str, tmp_path: Path) -> None:
        Witness(tmp_path / "log").accepted(run="lost")

        assert main([waiting, "--log", str(tmp_path / "log"), "--pruned"]) == 0

    def test_says_why_it_could_not_look(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["nowhere://x"]) == 2
        assert "cannot check nowhere://x" in capsys.readouterr().err


class TestLiveStore:
    async def test_finds_nothing_while_workers_go_on(self, store_url: str, hire: Hire) -> None:
        await asyncio.gather(*(hire(flows=[chain_flow, *FLOWS]) for _ in range(2)))
        store = store_at(store_url)
        await store.open()
        findings = []
        async with AsyncClient(store_url) as client:
            runs = [await client.submit(chain_flow, 1, id=f"r{n}") for n in range(RUNS)]
            ending = asyncio.gather(*(run.result(40) for run in runs))
            while not ending.done():
                findings += await check(store)
            await ending
        findings += await check(store)
        await store.close()

        assert findings == []


class TestPages:
    async def test_sees_every_run_once_however_they_fall_on_pages(
        self, store_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pages, "RUNS", 2)
        monkeypatch.setattr(pages, "WAITS", 2)
        store = store_at(store_url)
        await store.open()
        for namespace in ("one", "two", "three"):
            async with AsyncClient(store, namespace=namespace) as client:
                for name in ("a", "b", "c"):
                    await client.submit(asking, 1, id=name)

        runs = [(r.namespace, r.id) async for page in pages.pages_of_runs(store) for r in page]
        waits = [(w.namespace, w.run) async for page in pages.pages_of_waits(store) for w in page]

        expected = {(n, id) for n in ("one", "two", "three") for id in ("a", "b", "c")}
        assert sorted(runs) == sorted(expected)
        assert sorted(waits) == sorted(expected)
        await store.close()
