"""Commands: shared options, the client they lead to, and errors as exit codes."""

from __future__ import annotations

import getpass
import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from perdure.cli.app import spelled
from perdure.cli.output import ExitCode, exit_code_of, tell_error
from perdure.cli.renderer import CliRenderer
from perdure.diagnostics import declare
from perdure.errors import InvalidInput, PerdureError, without_password
from perdure.model.job import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from perdure.client.sync import Client
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
"""The store if none is given: a file in the current directory."""

PATH: click.Path = click.Path(path_type=Path)


class Command(click.Command):
    """A command that may return an exit code. Expected errors are one line on stderr."""

    def invoke(self, ctx: click.Context) -> ExitCode:
        try:
            return super().invoke(ctx) or ExitCode.OK
        except PerdureError as error:
            tell_error(error, renderer_for(ctx))
            return exit_code_of(error)
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        arguments = [each for each in self.params if isinstance(each, Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(spelled(each), each.about) for each in arguments])
        super().format_options(ctx, formatter)

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Newer versions of click list arguments themselves, under a heading of theirs."""


class Argument(click.Argument):
    """An argument that ``--help`` explains."""

    def __init__(self, *args: Any, about: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.about = about


class Choice(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.5
    """The members of an enumeration, by their values."""

    name = "choice"

    def __init__(self, members: type[StrEnum]) -> None:
        self._members = members

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> StrEnum:
        from perdure.model import check

        chosen = check.choice(value, spelled(param) if param else "value", list(self._members))
        return self._members(chosen)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        values = [each.value for each in self._members if each.startswith(incomplete)]
        return [CompletionItem(each) for each in values]


Function = Callable[..., ExitCode | None]


def command(function: Function) -> Command:
    made: Command = click.command(cls=Command)(function)
    return made


def argument(name: str, *, help: str, **settings: Any) -> Callable[[Function], Function]:
    return click.argument(name, cls=Argument, about=help, **settings)


store_option = click.option(
    "--store",
    envvar=STORE_VARIABLE,
    metavar="URL",
    help="Store URL: sqlite:///path.db or postgresql://user@host/database.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
app_option = click.option(
    "--app", metavar="MODULE[:NAME]", help="For a file: the module with its tasks."
)
by_option = click.option("--by", metavar="NAME", help="Who does it, for the run's log.")
reason_option = click.option("--reason", metavar="TEXT", help="Why, for the run's log.")


def namespace_option_for(default: str) -> Callable[[Function], Function]:
    return click.option(
        "--namespace", metavar="NAME", default=default, help="Namespace; '*' for all."
    )


namespace_option = namespace_option_for(DEFAULT_NAMESPACE)


def renderer_for(ctx: click.Context) -> CliRenderer:
    """Spells parameters as the command does; the commands it suggests use the same store."""
    names = {each.name: spelled(each) for each in ctx.command.params if each.name}
    store, namespace = ctx.params.get("store"), ctx.params.get("namespace")
    return CliRenderer(options_of(store, namespace or DEFAULT_NAMESPACE), names)


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


def required(store: str | None) -> str:
    """The store to use: if none is given, the one that ``perdure dev`` made here."""
    if store:
        return store
    if os.path.exists(LOCAL_FILE):
        return LOCAL_STORE
    raise InvalidInput(WHICH_STORE.fault(file=LOCAL_FILE, variable=STORE_VARIABLE))


def shared_store(store: str | None, *, is_new: bool = False) -> str:
    """The URL of a store that other processes can use, and that exists unless it may be made.

    Looking creates and upgrades nothing.
    """
    import asyncio

    from perdure.store.opening import require_store

    url = required(store)
    if url.lower().startswith("memory:"):
        raise in_memory(url, "another process")
    if not is_new:
        asyncio.run(require_store(url))
    return url


def in_memory(url: str, command: str) -> InvalidInput:
    return InvalidInput(IN_MEMORY.fault(url=without_password(url), command=command))


@contextmanager
def connected(
    store: str | None, namespace: str, *, is_new: bool = False, codec: Codec | None = None
) -> Iterator[Client]:
    """A client of the store; ``is_new`` where the command may be the first to use it."""
    from perdure.client.sync import Client

    url = shared_store(store, is_new=is_new)
    with Client(url, namespace=namespace, codec=codec) as client:
        yield client


def login_name() -> str | None:
    """The user at this terminal; None where the system does not know."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def as_names(text: str | None) -> list[str] | None:
    """Read ``a,b``; empty names are refused later, by what knows their meaning."""
    return None if text is None else [name.strip() for name in text.split(",")]


def parsed_json(text: str | None, what: str) -> Any:
    """The value of JSON on the command line; nothing means null."""
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
