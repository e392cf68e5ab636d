"""Options that several commands share, and the client they lead to."""

from __future__ import annotations

import getpass
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.exits import errors_told, note_json
from perdure.diagnostics import declare
from perdure.errors import InvalidInput, without_password
from perdure.model.job import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from perdure.client.blocking import Client
    from perdure.model.payload import Codec

WHICH_STORE = declare(
    "cli.which_store",
    "no store was given, and {file} was not found",
    "Pass --store URL or set {variable}",
)
IN_MEMORY = declare(
    "cli.store_in_memory",
    "store {url!r} is in the memory of one process, where {command} cannot use it",
    "Pass --store with a SQLite or PostgreSQL URL",
)
NOT_JSON = declare(
    "cli.not_json",
    "{what} {text!r} is not JSON: {reason}",
    "[A string needs quotes of its own: {quoted}]",
)


STORE_VARIABLE = "PERDURE_STORE"
LOCAL_FILE = "perdure.db"
LOCAL_STORE = f"sqlite:///{LOCAL_FILE}"
"""Where runs are kept if nobody says where: a file in the current directory."""

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar=STORE_VARIABLE,
        metavar="URL",
        help="Where jobs and runs are: sqlite:///path.db or postgresql://user@host/database.",
    ),
]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", metavar="NAME", help="Whose; '*' looks at all.")
]
AppOption = Annotated[
    str | None,
    typer.Option(metavar="MODULE[:NAME]", help="Of a file: where the tasks, kinds and flows are."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.", callback=note_json)]
ByOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who does it; kept in the run's log.")
]
ReasonOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Why; kept in the run's log.")
]


def required(store: str | None) -> str:
    """The store that is meant: if nobody says so, the one that ``perdure dev`` made here."""
    if store:
        return store
    if os.path.exists(LOCAL_FILE):
        return LOCAL_STORE
    raise InvalidInput(WHICH_STORE.fault(file=LOCAL_FILE, variable=STORE_VARIABLE))


def shared_store(store: str | None, *, is_new: bool = False) -> str:
    """The URL of a store that others can use too, and that is there unless it may be made.

    Looking creates and upgrades nothing.
    """
    import asyncio

    from perdure.store.opening import require_store

    url = required(store)
    _check_outside(url)
    if not is_new:
        asyncio.run(require_store(url))
    return url


@contextmanager
def connected(
    store: str | None, namespace: str, *, is_new: bool = False, codec: Codec | None = None
) -> Iterator[Client]:
    """A client of the store; expected errors within are told, and end the command.

    ``is_new`` where the command may be the first to use the store.
    """
    from perdure.client.blocking import Client

    with errors_told(options=options_of(store, namespace)):
        url = shared_store(store, is_new=is_new)
        with Client(url, namespace=namespace, codec=codec) as client:
            yield client


def options_of(store: str | None, namespace: str) -> str:
    """What a command needs to find the same runs, besides what it finds by itself.

    A password is left for the reader to fill in: advice ends up in logs and in chats.
    """
    words = []
    if store and store != (os.environ.get(STORE_VARIABLE) or LOCAL_STORE):
        words += ["--store", shlex.quote(without_password(store))]
    if namespace != DEFAULT_NAMESPACE:
        words += ["--namespace", shlex.quote(namespace)]
    return "".join(f" {word}" for word in words)


def _check_outside(url: str) -> None:
    if url.lower().startswith("memory:"):
        raise in_memory(url, "another process")


def in_memory(url: str, command: str) -> InvalidInput:
    return InvalidInput(IN_MEMORY.fault(url=without_password(url), command=command))


def login_name() -> str | None:
    """Who sits at this terminal; None where the system does not know."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def as_names(text: str | None) -> list[str] | None:
    """Read ``a,b``; empty names are refused later, by the one that knows what they mean."""
    return None if text is None else [name.strip() for name in text.split(",")]


def parsed_json(text: str | None, what: str) -> Any:
    """The value that JSON on the command line means; nothing means null."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        is_meant_as_such = text.lstrip().startswith(("{", "[", '"'))
        quoted = shlex.quote(json.dumps(text, ensure_ascii=False))
        fault = NOT_JSON.fault(
            what=what,
            text=text,
            reason=str(error),
            quoted="" if is_meant_as_such else quoted,
        )
        raise InvalidInput(fault) from None
