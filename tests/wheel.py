"""``python -m tests.wheel``: what users install works, in an environment that has nothing else.

Builds the wheel, installs it into an empty environment, creates the starter project, and runs the
examples of README and tutorial there. Not a test of pytest: it takes an environment of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from tests.docs.pages import ROOT, page
from tests.docs.test_examples import missing_lines, needs_database, outputs_of, write_script
from tests.postgres_server import PostgresServer

PAGES = ("README.md", "docs/tutorial.md")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, PostgresServer({"fsync": "off"}) as server:
        place = Path(folder)
        wheel = build(place / "dist")
        python = install(wheel, place / "environment")
        start_project(python, place / "project")
        for name in PAGES:
            run_page(python, name, place, server.url())


def build(place: Path) -> Path:
    say("building the wheel")
    call([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(place), str(ROOT)])
    [wheel] = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    unexpected = {top for top in tops if top != "perdure" and not top.endswith(".dist-info")}
    if unexpected:
        sys.exit(f"{wheel.name} also has {', '.join(sorted(unexpected))}")
    return wheel


def install(wheel: Path, place: Path) -> Path:
    say(f"installing {wheel.name} into an empty environment")
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    call([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)])
    return python


def start_project(python: Path, place: Path) -> None:
    say("perdure init")
    place.mkdir()
    command = str(python.with_name("perdure"))
    call([command, "init"], cwd=place)
    call([command, "flows", "list", "orders"], cwd=place)


def run_page(python: Path, name: str, place: Path, database: str) -> None:
    say(f"examples of {name}")
    shown = page(name)
    folder = place / name.replace("/", "-")
    folder.mkdir()
    script = write_script(shown, folder, database if needs_database(shown) else None)
    # For the script itself, which has helpers of the tests; the package comes from the wheel.
    output = call([str(python), script.name], cwd=folder, PYTHONPATH=str(ROOT), COLUMNS="100")
    if missing := missing_lines(outputs_of(shown), output):
        sys.exit(f"{name} shows lines that were not printed: {missing}\n{output}")


def call(command: list[str], cwd: Path | None = None, **environment: str) -> str:
    inherited = {key: value for key, value in os.environ.items() if key != "PERDURE_STORE"}
    inherited.pop("PYTHONPATH", None)
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


if __name__ == "__main__":
    main()
