"""``perdure init`` and ``perdure dev``: a project that runs as it stands, and follows its code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from perdure import Client, Flow, task
from perdure.cli.commands.dev import SourceFiles
from perdure.cli.commands.init import FILES
from tests.cli.harness import Commands, FollowedProcess, clean_environment, run_cli


def contents(folder: Path) -> dict[str, str]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_text() for file in files}


class TestInit:
    """``perdure init``: a project that runs as it stands."""

    def test_lays_out_all_files_and_says_what_is_next(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        shown = Commands(None)("init", "My Shop")

        assert shown.exit_code == 0
        assert contents(tmp_path / "My Shop").keys() == FILES.keys()
        assert [line.strip() for line in shown.out.splitlines()[-4:]] == [
            "cd 'My Shop'",
            "perdure dev orders",
            "perdure submit orders 7 --id order-7  # in another terminal",
            "perdure decide order-7:review approve  # in another terminal",
        ]
        project = tomllib.loads((tmp_path / "My Shop" / "pyproject.toml").read_text())
        assert project["project"]["name"] == "my-shop"

    def test_lays_out_in_the_current_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        shown = Commands(None)("init", "--json").json
        assert shown["files"] == list(FILES)
        assert shown["next"][0] == "perdure dev orders"

    def test_overwrites_nothing(self, tmp_path):
        (tmp_path / "README.md").write_text("mine")
        Commands(None).refused("cli.would_overwrite", "init", str(tmp_path), exit_code=1)
        assert contents(tmp_path) == {"README.md": "mine"}

    def test_a_file_is_no_folder(self, tmp_path):
        (tmp_path / "shop").write_text("mine")
        Commands(None).refused("cli.is_file", "init", str(tmp_path / "shop"), exit_code=1)

    def test_the_tests_of_the_project_pass(self, tmp_path):
        Commands(None)("init", str(tmp_path))
        plugins = ["asyncio", "cacheprovider", "randomly", "xdist"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *(f"-pno:{name}" for name in plugins)],
            cwd=tmp_path,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )

        assert "4 passed" in done.stdout, done.stdout + done.stderr

    def test_its_flow_runs_and_waits_for_a_person(self, tmp_path):
        Commands(None)("init", str(tmp_path))
        program = (
            "from perdure import Client, Worker\n"
            "from orders import orders\n"
            "client = Client('sqlite:///perdure.db')\n"
            "worker = Worker('sqlite:///perdure.db', flows=[orders]).start()\n"
            "run = client.submit(orders, 7, id='order-7')\n"
            "assert any(event.status == 'waiting' for event in run.watch())\n"
            "client.approvals.decide('order-7:review', 'approve')\n"
            "print(run.result(timeout=30))\n"
            "worker.shutdown()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "shipped: chair packed, lamp packed, rug packed\n", done.stderr


CODE = """
from perdure import Flow, task

@task
def greet(name: str) -> str:
    return f"{GREETING}, {name}"

greeting = Flow("greeting").then(greet).build()
"""


@task
def greet(name: str) -> str:
    raise NotImplementedError("the workers have another one")


greeting = Flow("greeting").then(greet).build()
"""The same as in the code: what its tasks do is no part of a version."""


def write_code(folder: Path, greeting: str) -> None:
    (folder / "hello.py").write_text(f"GREETING = {greeting}\n{CODE}")


def developing(
    folder: Path, target: str = "hello", *arguments: str, **environment: str
) -> FollowedProcess:
    """``perdure dev --json``; what it prints is read as it comes."""
    return FollowedProcess(
        *("dev", target, "--processes", "1", *arguments),
        stream="stdout",
        key="what",
        cwd=folder,
        environment=environment,
    )


def stopped(process: FollowedProcess) -> int:
    process.signal(signal.SIGTERM)
    process.next("stopped")
    return process.wait()


class TestDev:
    """``perdure dev``: workers for local work, restarted when the code changes."""

    def test_runs_what_it_finds_and_takes_up_changes(self, tmp_path):
        write_code(tmp_path, "'hello'")
        with developing(tmp_path) as lines, Client(f"sqlite:///{tmp_path}/perdure.db") as client:
            assert lines.next("store")["text"] == "store: sqlite:///perdure.db"
            [version] = lines.next("flows")["names"]
            assert lines.next("tasks")["names"] == ["greet"]
            lines.next("workers")

            assert version == f"greeting@{greeting.version}"
            first = client.submit(greeting, "ann", id="first")
            lines.next("run", run="first", status="started", flow="greeting")
            lines.next("run", run="first", status="completed")
            assert first.result(timeout=30) == "hello, ann"

            write_code(tmp_path, "oops")
            assert lines.next("changed")["files"] == ["hello.py"]
            lines.next("kept")

            write_code(tmp_path, "'good morning'")
            lines.next("workers")
            second = client.submit(greeting, "bob", id="second")
            assert second.result(timeout=30) == "good morning, bob"

            assert stopped(lines) == 0

    def test_a_module_that_is_not_there_is_bad_usage(self, tmp_path):
        done = run_cli("dev", "nope", cwd=tmp_path)
        assert done.returncode == 2
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "target, arguments, used, ignored",
        [
            (
                "hello:worker",
                ["--store", "sqlite:///flag.db"],
                "flag",
                ["the code", "PERDURE_STORE"],
            ),
            ("hello:worker", [], "own", ["PERDURE_STORE"]),
            ("hello", [], "env", []),
        ],
    )
    def test_uses_the_store_of_the_flag_the_code_or_the_environment_in_this_order(
        self, tmp_path, target, arguments, used, ignored
    ):
        """Finding 27: the environment never outranks the code; what is ignored is printed."""
        write_code(tmp_path, "'hello'")
        with (tmp_path / "hello.py").open("a") as file:
            file.write("from perdure import Worker\n")
            file.write("worker = Worker('sqlite:///own.db', flows=[greeting])\n")
        environment = {"PERDURE_STORE": "sqlite:///env.db"}
        with (
            developing(tmp_path, target, *arguments, **environment) as lines,
            Client(f"sqlite:///{tmp_path}/{used}.db") as client,
        ):
            assert lines.next("store")["text"] == f"store: sqlite:///{used}.db"
            for name in ignored:
                assert lines.next("ignored")["name"] == name
            lines.next("workers")
            assert client.submit(greeting, "ann").result(timeout=30) == "hello, ann"

            assert stopped(lines) == 0
        assert [each.name for each in tmp_path.glob("*.db")] == [f"{used}.db"]

    def test_memory_cannot_be_shared(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write_code(tmp_path, "'hello'")
        assert Commands("memory://x")("dev", "hello").exit_code == 2


def write(folder: Path, name: str, text: str = "") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


class TestSourceFiles:
    """Which files of a project have changed."""

    def test_reports_each_addition_change_and_removal_once(self, tmp_path):
        changed, gone = write(tmp_path, "a.py"), write(tmp_path, "flows/b.yaml")
        write(tmp_path, "same.py")
        files = SourceFiles(tmp_path)
        assert files.changed() == []

        write(tmp_path, "new/c.yml")
        changed.write_text("longer")
        gone.unlink()

        assert files.changed() == ["a.py", "flows/b.yaml", "new/c.yml"]
        assert files.changed() == []
        assert len(files) == 3

    def test_a_later_time_is_a_change_though_the_size_is_the_same(self, tmp_path):
        file = write(tmp_path, "a.py", "x = 1")
        files = SourceFiles(tmp_path)
        state = file.stat()
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000))
        assert files.changed() == ["a.py"]

    def test_leaves_out_what_is_no_source(self, tmp_path):
        files = SourceFiles(tmp_path)
        write(tmp_path, "perdure.db")
        write(tmp_path, "notes.txt")
        write(tmp_path, ".git/hook.py")
        write(tmp_path, "__pycache__/a.py")
        write(tmp_path, "env/pyvenv.cfg")
        write(tmp_path, "env/lib/a.py")

        assert files.changed() == []
