"""``perdure export``: a whole store in one file."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.exits import errors_told
from perdure.cli.options import JsonOption, StoreOption, shared_store
from perdure.diagnostics import declare
from perdure.errors import InvalidInput

NOT_A_FILE = declare(
    "cli.export_to_stdout", "export needs a file, not stdout", "Name one, such as work.jsonl.gz"
)


def export(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A new file; gzipped if it ends in .gz.")
    ],
    store: StoreOption = None,
    live: Annotated[
        bool, typer.Option("--live", help="Even while workers are at work: a copy as of now.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write all that a store keeps into one file, for perdure import to move it elsewhere.

    Runs, jobs, waits, schedules and all else, of every namespace, as of one moment. Stop the
    workers first.
    """
    from perdure.cli import present, transferring
    from perdure.transfer import export_store

    with errors_told():
        if str(file) == "-":
            raise InvalidInput(NOT_A_FILE.fault())
        url = shared_store(store)
        with transferring.bar("exporting") as tell:
            done = asyncio.run(export_store(url, file, is_live=live, tell=tell))
        size = file.stat().st_size
        if as_json:
            fields = {"file": str(file), "bytes": size, "exported_at": done.exported_at}
            typer.echo(present.as_json({**fields, "counts": done.counts}))
        else:
            typer.echo(f"exported {transferring.in_words(done.counts)} to {file} ({size:,} bytes)")
            named = shlex.quote(str(file))
            typer.echo(f"to move it: perdure import {named} --store postgresql://...")
