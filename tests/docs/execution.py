"""Saves the files and runs the commands of a documentation page.

A worker started with ``&`` runs in the background. At the end of the page it is asked to stop,
and must end without an error unless the page killed it.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT

WAIT_SECONDS = 20
_PLACEHOLDER = "ID"
"""A job's id, which a page cannot know: such a command is parsed, and not run."""

_children: list[subprocess.Popen[str]] = []
_killed: set[int] = set()


def save(name: str, code: str) -> None:
    Path(name).write_text(f"{code}\n", encoding="utf-8")


def shell(line: str) -> None:
    """Carry out one line of a shell block. An unknown command is an error, not skipped."""
    words = shlex.split(line)
    is_beside = words[-1] == "&"
    act = _ACTS.get(words[0])
    assert act is not None, f"the documentation runs {line!r}, which its tests do not know"
    assert not is_beside or words[:2] == ["perdure", "worker"], f"only a worker runs beside: {line}"
    act(words[1:-1] if is_beside else words[1:])


def _perdure(arguments: list[str]) -> None:
    _check_parsed(arguments)
    if _PLACEHOLDER in arguments:
        return
    if arguments[0] == "worker":
        _start([sys.executable, "-m", "perdure.cli", *arguments])
        return
    from perdure.cli.app import app

    exit_code: Any = 0
    try:
        app(args=arguments, prog_name="perdure")
    except SystemExit as end:
        exit_code = end.code
    assert not exit_code, f"perdure {arguments} ended with {exit_code}"


def _check_parsed(arguments: list[str]) -> None:
    """Raise what the command line would answer to arguments that it does not know."""
    command, rest = command_named(arguments)
    if "--help" not in rest and "--version" not in rest:
        assert not hasattr(command, "members"), f"perdure {arguments} names no command"
        command.make_context(arguments[0], rest)


def command_named(arguments: list[str]) -> tuple[Any, list[str]]:
    """The command that is meant, and what is left of the arguments."""
    from perdure.cli.app import LazyGroup, app

    command: Any = app
    rest = list(arguments)
    while rest and isinstance(command, LazyGroup) and rest[0] in command.members:
        command = command.get_command(None, rest.pop(0))
    return command, rest


def _start(command: list[str]) -> None:
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    _children.append(child)
    assert child.stderr is not None
    for line in child.stderr:
        sys.stderr.write(line)
        if "worker started" in line or "process started" in line:
            return
    raise AssertionError(f"the worker ended with {child.wait()} before it worked")


def _kill(arguments: list[str]) -> None:
    sent, place = arguments
    assert sent == "-9", f"kill {sent}: only -9 is known here"
    number = int(place.removeprefix("%")) - 1
    _children[number].kill()
    _killed.add(number)


def _python(arguments: list[str]) -> None:
    subprocess.run([sys.executable, *arguments], check=True, timeout=WAIT_SECONDS)


def _pytest(arguments: list[str]) -> None:
    plugins = ["asyncio", "cacheprovider", "randomly", "xdist"]
    _python(["-m", "pytest", "-q", *(f"-pno:{name}" for name in plugins), *arguments])


def _export(arguments: list[str]) -> None:
    for each in arguments:
        name, _, value = each.partition("=")
        os.environ[name] = value


def _make(arguments: list[str]) -> None:
    """Not run, which would be the tests within the tests; the target must exist."""
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = {each for each in arguments if "=" not in each}  # the others set variables
    assert named <= set(targets), f"make {arguments} is not among {targets}"


def _pip(arguments: list[str]) -> None:
    """Not run; what is installed must be ours, with extras that we have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {
        project["name"],
        *(f"{project['name']}[{x}]" for x in project["optional-dependencies"]),
    }
    verb, *packages = arguments
    assert verb == "install", f"pip {verb}: only install is known here"
    assert set(packages) <= known, f"pip install {packages} is not among {known}"


_ACTS: dict[str, Callable[[list[str]], None]] = {
    "export": _export,
    "kill": _kill,
    "make": _make,
    "perdure": _perdure,
    "pip": _pip,
    "pytest": _pytest,
    "python": _python,
}


@atexit.register
def _stop_children() -> None:
    ended_badly = False
    for number, child in enumerate(_children):
        child.send_signal(signal.SIGTERM)
        try:
            _, rest = child.communicate(timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            _, rest = child.communicate()
        sys.stderr.write(rest or "")
        ended_badly |= child.returncode != 0 and number not in _killed
    if ended_badly:
        sys.stderr.write("a worker of the page did not end well\n")
        sys.stderr.flush()
        os._exit(1)
