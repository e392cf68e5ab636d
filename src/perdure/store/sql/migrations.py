"""Which migrations a database still needs, read from numbered files; forward only.

A backend applies what ``pending`` answers, in order, in one transaction, under its own lock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources

from perdure.errors import SchemaMismatch
from perdure.model.value import Value
from perdure.store.sql.statements import fill

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_INDEX = re.compile(
    r"^(?P<act>CREATE|DROP)(?: UNIQUE)? INDEX (?:[^\s;]+\.)?(?P<name>\w+)[^;]*;", re.MULTILINE
)


class Migration(Value):
    """One step: ``0001_jobs.sql`` is version 1, named "jobs"."""

    version: int
    name: str
    text: str


def load_migrations(package: str, place: Mapping[str, str]) -> tuple[Migration, ...]:
    """The steps in ``package``'s folder ``migrations``, in order, with ``{schema}`` filled in."""
    steps = []
    for file in resources.files(package).joinpath("migrations").iterdir():
        if match := _FILE.fullmatch(file.name):
            text = fill(file.read_text(encoding="utf-8"), place)
            steps.append(Migration(version=int(match[1]), name=match[2], text=text))
    steps.sort(key=lambda step: step.version)
    if [step.version for step in steps] != list(range(1, len(steps) + 1)):
        raise ValueError(f"the migrations of {package} are not numbered from 1 without a gap")
    return tuple(steps)


def pending(
    known: Sequence[Migration], applied: Sequence[tuple[int, str]], where: str
) -> Sequence[Migration]:
    """What is left to apply, given the (version, name) pairs found in the database.

    Raises ``SchemaMismatch`` when the database is ahead of this code, or not ours at all.
    """
    found = sorted(applied)
    if len(found) > len(known) and _names(known) == dict(found[: len(known)]):
        raise SchemaMismatch(
            f"the tables in {where} are at version {found[-1][0]}, this Perdure knows them up to "
            f"version {len(known)}. Upgrade Perdure here, or use another database"
        )
    if _names(known[: len(found)]) != dict(found):
        raise foreign_tables(where)
    return known[len(found) :]


def require_all(known: Sequence[Migration], left: Sequence[Migration], where: str) -> None:
    """Raise ``SchemaMismatch`` if steps are left, for those who may not apply them."""
    if len(left) == len(known):
        raise SchemaMismatch(f"{where} has no tables of Perdure. The first worker creates them")
    if left:
        raise SchemaMismatch(
            f"the tables in {where} are at version {len(known) - len(left)}, this Perdure needs "
            f"version {len(known)}. A worker of this version upgrades them"
        )


def indexes_made(steps: Sequence[Migration]) -> dict[str, str]:
    """The indexes that are there once all steps are done: by name, the statement that makes it."""
    made: dict[str, str] = {}
    for step in steps:
        for found in _INDEX.finditer(step.text):
            made.pop(found["name"], None)
            if found["act"] == "CREATE":
                made[found["name"]] = " ".join(found[0].split())
    return made


def foreign_tables(where: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"{where} holds tables of the same names that Perdure did not make. Choose another place "
        "for its tables in the store URL (?schema=... on PostgreSQL, ?prefix=... on SQLite)"
    )


def _names(steps: Sequence[Migration]) -> dict[int, str]:
    return {step.version: step.name for step in steps}
