"""``python -m perdure.verify``, and checking a store while workers go on."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from perdure import AsyncClient, Concurrency, Context, Flow, Retry, task
from perdure.store.opening import store_at
from perdure.verify import Witness, check, pages
from perdure.verify.__main__ import main
from tests.flows.catalogue import FLOWS
from tests.upgrade.conftest import restore
from tests.worker.conftest import Hire, hire

__all__ = ["hire"]

RUNS, JOBS = 60, 30
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
    command = [sys.executable, "-m", "perdure.verify", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)


def break_it(url: str) -> None:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    with connection:
        connection.execute("DELETE FROM perdure_waits")
    connection.close()


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    [line] = capsys.readouterr().err.splitlines()
    return line


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
        assert "'nowhere' is not a store" in capsys.readouterr().err

    def test_takes_no_fault_of_its_own_for_one_of_the_store(
        self, waiting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([waiting, "--log", str(tmp_path)]) == 2
        assert main([waiting, "--log", str(tmp_path / "missing")]) == 2
        assert main([waiting, "--grace", "1e300"]) == 2

        told = capsys.readouterr().err.splitlines()
        assert [line.partition(":")[0] for line in told] == ["cannot check it"] * 3


class TestOnlyReads:
    def test_refuses_a_file_that_is_not_there(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([f"sqlite:///{tmp_path}/mistyped.db"]) == 2

        assert "there is no file" in one_line(capsys)
        assert list(tmp_path.iterdir()) == []

    def test_refuses_a_file_without_its_tables(
        self, waiting: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([f"{waiting}?prefix=mistyped_"]) == 2

        assert "has no tables of Perdure" in one_line(capsys)
        connection = sqlite3.connect(waiting.removeprefix("sqlite:///"))
        found = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'mistyped%'")
        assert found.fetchall() == []
        connection.close()

    def test_refuses_what_is_no_database(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "letter.db"
        path.write_text("Dear Ann, " * 100)

        assert main([f"sqlite:///{path}"]) == 2

        assert "not a database" in one_line(capsys)
        assert path.read_text() == "Dear Ann, " * 100

    def test_refuses_a_store_in_memory(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["memory://mine"]) == 2
        assert "by its own process" in one_line(capsys)

    def test_refuses_a_schema_without_tables(
        self, bare_postgres_url: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([bare_postgres_url]) == 2
        assert "has no tables of Perdure" in one_line(capsys)

    def test_refuses_a_server_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["postgresql://ann:secret@localhost:1/work"]) == 2
        assert "secret" not in one_line(capsys)

    @pytest.mark.parametrize("kind", ["sqlite", "postgres"])
    def test_leaves_an_older_store_as_it_is(
        self,
        kind: str,
        bare_sqlite_url: str,
        bare_postgres_url: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        url = bare_sqlite_url if kind == "sqlite" else bare_postgres_url
        asyncio.run(restore(url, 2))

        assert main([url]) == 2
        assert "are at version 2" in one_line(capsys)
        assert main([url]) == 2  # still


@task(retries=Retry(2, first="5ms"), limits=[Concurrency(3, key="printer")])
async def print_it(number: int, ctx: Context) -> int:
    if ctx.attempt == 1:
        raise ValueError("out of paper")
    return number


class TestLiveStore:
    async def test_finds_nothing_while_workers_go_on(self, store_url: str, hire: Hire) -> None:
        await asyncio.gather(*(hire(print_it, flows=[chain_flow, *FLOWS]) for _ in range(2)))
        store = store_at(store_url)
        await store.open()
        findings = []
        async with AsyncClient(store_url) as client:
            runs = [await client.submit(chain_flow, 1, id=f"r{n}") for n in range(RUNS)]
            jobs = [await client.enqueue(print_it, n) for n in range(JOBS)]
            await client.schedule("often", print_it, every="1s", args=[1])
            results = [*(run.result(40) for run in runs), *(job.result(40) for job in jobs)]
            ending = asyncio.gather(*results)
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
