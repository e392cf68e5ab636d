"""Help comes at once: nothing is loaded for it but what reads the command."""

from __future__ import annotations

import subprocess
import sys

from perdure import clock

HEAVY = [
    "asyncio",
    "asyncpg",
    "jsonschema",
    "msgspec",
    "perdure.client",
    "perdure.public",
    "perdure.store",
    "perdure.worker",
    "rich",
    "sqlite3",
    "yaml",
]


def run_python(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def seconds_for(program: str, *arguments: str) -> float:
    """The best of a few: whatever else the machine does only adds to it."""

    def once() -> float:
        began = clock.monotonic()
        run_python(program, *arguments)
        return clock.monotonic() - began

    return min(once() for _ in range(4))


HELP = "from perdure.cli import main; main()"


def test_help_loads_nothing_that_only_commands_need() -> None:
    program = (
        "import atexit, sys\n"
        f"heavy = {HEAVY}\n"
        "told = lambda: print('LOADED', [name for name in heavy if name in sys.modules])\n"
        f"atexit.register(told)\n{HELP}\n"
    )

    assert run_python(program, "--help").splitlines()[-1] == "LOADED []"


def test_help_takes_little_longer_than_to_load_typer() -> None:
    assert seconds_for(HELP, "--help") < 2.5 * seconds_for("import typer, typer.main")


def test_completing_a_command_loads_none_of_them() -> None:
    asked = {"_PERDURE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "perdure do"}
    program = (
        "import atexit, os, sys\n"
        f"os.environ |= {asked}\n"
        "told = lambda: print('LOADED', [name for name in sys.modules if 'perdure.cli.' in name])\n"
        f"atexit.register(told)\n{HELP}\n"
    )

    *completed, loaded = run_python(program).splitlines()
    assert any("doctor" in line for line in completed)
    assert "perdure.cli.app" in loaded
    assert "perdure.cli.doctor" not in loaded


def test_parts_of_the_library_can_be_imported_first() -> None:
    program = (
        "import perdure.worker.worker, perdure\n"
        "from perdure import Client, clock\n"
        "print(perdure.model.__name__, hasattr(perdure, 'nonsense'), 'Flow' in dir(perdure))\n"
    )

    assert run_python(program) == "perdure.model False True\n"
