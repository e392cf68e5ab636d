"""The address of a store: the file, and the prefix of its tables."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from perdure.errors import InvalidStoreUrl, StoreUnreachable
from perdure.model.value import Value
from perdure.store.sql.statements import is_identifier

_OPTIONS = {"prefix": "perdure_", "synchronous": "normal"}

_SYNCHRONOUS = ("normal", "full")

_SHARED = "an in-memory SQLite cannot be shared by threads and processes; use memory://name"


class SqliteAddress(Value):
    """One set of tables in one file. Handles with the same address share one database."""

    url: str
    path: str
    """Absolute and without symbolic links, so that one file has one name."""
    prefix: str
    synchronous: str

    @property
    def name(self) -> str:
        """Identifies the tables, regardless of ``synchronous``."""
        return f"sqlite:{self.path}?prefix={self.prefix}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.path, self.prefix, self.synchronous

    def check_reachable(self) -> None:
        """Raise ``StoreUnreachable`` if the file system will refuse the path."""
        try:
            self._check_path(Path(self.path), Path(self.path).parent)
        except PermissionError as error:
            raise self.unreachable(str(error), "Let this user in, or choose another") from error

    def _check_path(self, path: Path, folder: Path) -> None:
        if not folder.is_dir():
            raise self.unreachable(f"there is no directory {folder}", "Create it first")
        if path.is_dir():
            raise self.unreachable("it is a directory", "Name a file in it")
        for part in (folder, path):
            if part.exists() and not os.access(part, os.R_OK | os.W_OK):
                raise self.unreachable(
                    f"{part} cannot be written by this user", "SQLite writes to both"
                )

    def unreachable(self, reason: str, advice: str) -> StoreUnreachable:
        return StoreUnreachable(url=self.url, reason=reason, advice=f"{advice}.")


def place_at(url: str) -> SqliteAddress:
    """Parse ``sqlite:///relative.db`` or ``sqlite:////absolute.db``, with its options."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc or parts.path[:1] not in ("", "/"):
        raise InvalidStoreUrl(url=url, reason="the path follows three slashes: sqlite:///work.db")
    if parts.fragment:
        raise InvalidStoreUrl(url=url, reason="a # in the path is written %23")
    path = unquote(parts.path.removeprefix("/"))
    if path in ("", ":memory:"):
        raise InvalidStoreUrl(
            url=url, reason=_SHARED if path else f"it names no file, and {_SHARED}"
        )
    options = _options_in(url, parts.query)
    return SqliteAddress(url=url, path=os.path.realpath(path), **options)


def _options_in(url: str, query: str) -> dict[str, str]:
    options = dict(_OPTIONS)
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise InvalidStoreUrl(
                url=url, reason=f"there is no option {name!r}, only {', '.join(_OPTIONS)}"
            )
        options[name] = value
    if not is_identifier(options["prefix"]):
        raise InvalidStoreUrl(
            url=url, reason="prefix takes letters, digits and _, not starting with a digit"
        )
    if options["prefix"].lower().startswith("sqlite_"):
        raise InvalidStoreUrl(url=url, reason="a prefix of sqlite_ is reserved by SQLite")
    if options["synchronous"] not in _SYNCHRONOUS:
        raise InvalidStoreUrl(url=url, reason=f"synchronous takes {' or '.join(_SYNCHRONOUS)}")
    return options
