"""Whether there is a store in a file, asked without making or upgrading one."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from perdure.store.sql.migrations import load_migrations, require_all
from perdure.store.sqlite.migrations import pending_at
from perdure.store.sqlite.place import place_at
from perdure.store.sqlite.statements import PACKAGE


def require_sqlite(url: str) -> None:
    """Raise unless the file is there and has the tables of this version."""
    place = place_at(url)
    place.check_reachable()
    if not os.path.exists(place.path):
        raise place.unreachable(f"there is no file {place.path!r}", "The first worker creates it")
    steps = load_migrations(PACKAGE, {"prefix": place.prefix})
    address = f"{Path(place.path).as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            left = pending_at(connection, place, steps)
    except sqlite3.DatabaseError as error:
        raise place.unreachable(str(error), "Look at the file") from error
    require_all(steps, left, place.path)
