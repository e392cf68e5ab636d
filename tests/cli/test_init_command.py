"""``perdure init``: a project that runs as it stands."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from perdure.cli.commands.init import FILES
from tests.cli.commands import Commands
from tests.cli.processes import clean_environment
from tests.cli.test_errors import assert_told


def contents(folder: Path) -> dict[str, str]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_text() for file in files}


def test_lays_out_all_files_and_says_what_is_next(tmp_path, monkeypatch):
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


def test_lays_out_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = Commands(None)("init", "--json").json

    assert shown["files"] == list(FILES)
    assert shown["next"][0] == "perdure dev orders"


def test_overwrites_nothing(tmp_path):
    (tmp_path / "README.md").write_text("mine")

    assert_told(
        Commands(None)("init", str(tmp_path)), 1, "README.md", "overwritten", "another folder"
    )
    assert contents(tmp_path) == {"README.md": "mine"}


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "shop").write_text("mine")

    assert_told(Commands(None)("init", str(tmp_path / "shop")), 1, "is a file")


def test_the_tests_of_the_project_pass(tmp_path):
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


def test_its_flow_runs_and_waits_for_a_person(tmp_path):
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
