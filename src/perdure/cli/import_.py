"""``perdure import``: what was exported, in another store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.exits import errors_told
from perdure.cli.options import JsonOption, StoreOption, shared_store


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What perdure export wrote.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fill an empty store with what was exported from another one, all or nothing.

    Workers on the new store go on with it: waiting runs wait there, queued jobs are executed.
    """
    from perdure import clock
    from perdure.cli import present, transferring
    from perdure.transfer import import_store

    with errors_told():
        url = shared_store(store, is_new=True)
        with transferring.bar("importing") as tell:
            done = asyncio.run(import_store(url, file, tell=tell))
        if as_json:
            fields = {"file": str(file), "exported_at": done.exported_at}
            typer.echo(present.as_json({**fields, "counts": done.counts}))
        else:
            as_of = present.moment(done.exported_at, clock.system_clock())
            typer.echo(f"imported {transferring.in_words(done.counts)}, as of {as_of}")
            typer.echo("workers on this store go on with it: perdure worker MODULE --store ...")
