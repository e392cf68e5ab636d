"""``perdure dev``: one command for local work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.exits import errors_told
from perdure.cli.options import LOCAL_STORE, STORE_VARIABLE, StoreOption, in_memory
from perdure.cli.worker import AllowScripts, child_command
from perdure.model import check

if TYPE_CHECKING:
    from perdure.cli.development import Found


def dev(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:NAME]",
            help="A Worker, a task, a flow or a list of those; a module alone means all in it.",
        ),
    ],
    store: StoreOption = None,
    processes: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="Worker processes to keep running.")
    ] = 2,
    grace: Annotated[
        str, typer.Option(metavar="2s", help="How long a restart lets running jobs finish.")
    ] = "2s",
    allow_scripts: AllowScripts = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON line for each thing that happens.")
    ] = False,
    look: Annotated[bool, typer.Option("--look", hidden=True)] = False,
) -> None:
    """Run workers for local work, and start them anew when a file changes.

    Without --store, all is kept in perdure.db in the current directory, whatever store a Worker
    in the module names. Code that cannot be imported is told of, and the workers of before go on
    until it can.
    """
    from perdure.cli.development import Code, Development

    with errors_told():
        if look:
            typer.echo(json.dumps(_found(target)))
            return
        url = store or LOCAL_STORE
        if url.startswith("memory:"):
            raise in_memory(url, "perdure dev")
        # Not among the arguments, where every user of the machine could read its password.
        os.environ[STORE_VARIABLE] = url
        flags = ["--json"] if as_json else []
        flags += ["--allow-scripts"] if allow_scripts else []
        code = Code(
            look=lambda: _looked(target),
            command=child_command(["--quiet", f"--grace={grace}", *flags, "--", target]),
            grace=check.span(grace, "--grace"),
        )
        ended = Development(url, code, processes, as_json=as_json).run()
    raise typer.Exit(ended)


def _looked(target: str) -> Found | None:
    """What is in the code, as a new process finds it; None, once told, if it cannot be used."""
    command = [sys.executable, "-m", "perdure.cli", "dev", "--look", "--", target]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return None
    found: Found = json.loads(done.stdout)
    return found


def _found(target: str) -> Found:
    from perdure.cli.loading import load

    found = load(target)
    flows = {text for each in found.flows for text in each.with_children()}
    return {"flows": sorted(flows), "tasks": sorted(each.name for each in found.tasks)}
