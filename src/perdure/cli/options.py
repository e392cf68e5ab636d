"""Options that several commands share, and the client they lead to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote, urlsplit

import typer

from perdure.cli.exits import errors_told
from perdure.errors import InvalidInput, StoreUnreachable

if TYPE_CHECKING:
    from perdure.client.blocking import Client

STORE_VARIABLE = "PERDURE_STORE"

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar=STORE_VARIABLE,
        metavar="URL",
        help="Where the jobs are: sqlite:///path.db or postgresql://user@host/database.",
    ),
]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", metavar="NAME", help="Whose jobs; '*' looks at all.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def required(store: str | None) -> str:
    if not store:
        raise InvalidInput(f"which store? Pass --store URL or set {STORE_VARIABLE}")
    return store


@contextmanager
def connected(store: str | None, namespace: str) -> Iterator[Client]:
    """A client of the store; expected errors within are told, and end the command."""
    from perdure.client.blocking import Client

    with errors_told():
        url = required(store)
        _check_exists(url)
        with Client(url, namespace=namespace) as client:
            yield client


def _check_exists(url: str) -> None:
    """Looking at a store must not create it: a mistyped path would look like an empty queue."""
    parts = urlsplit(url)
    if parts.scheme == "memory":
        raise InvalidInput(
            f"store {url!r} lives inside one process; from outside nobody can look into it"
        )
    path = unquote(parts.path.removeprefix("/"))
    if parts.scheme == "sqlite" and path and not os.path.exists(path):
        raise StoreUnreachable(url, f"there is no file {path!r}", "The first worker creates it.")


def as_names(text: str | None) -> list[str] | None:
    """Read ``a,b``; empty names are refused later, by the one that knows what they mean."""
    return None if text is None else [name.strip() for name in text.split(",")]
