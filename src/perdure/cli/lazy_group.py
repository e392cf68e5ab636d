"""A group of commands that are imported when they are called.

Help and completion need names and short texts only, so these are written down where the group
is made; what a command imports is not paid for by those who do not call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from perdure.cli.exits import ExitCode, tell

_UsageError: Any = typer.BadParameter.__base__
_OF_COMMANDS = frozenset({"--store", "--namespace", "--json"})
"""Options that nearly every command has, and no group of them."""


class Entry(NamedTuple):
    """One command, or one group of them."""

    home: str
    """``module:name`` of a function, or of a ``typer.Typer`` with the commands of a group."""
    help: str
    """The first sentence of its own help."""


class LazyGroup(TyperGroup):
    entries: ClassVar[Mapping[str, Entry]]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Loaded(self.entries)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Enough of a command to tell about it."""
        entry = self.entries.get(cmd_name)
        return None if entry is None else TyperCommand(cmd_name, help=entry.help)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that is called, in full."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else self.commands[name], rest

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with _usage_told():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _usage_told():
            return super().invoke(ctx)


@contextmanager
def _usage_told() -> Iterator[None]:
    """Tell in one line what cannot be understood, like every other error."""
    try:
        yield
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # it shows the help of a group
            raise
        message = error.format_message().rstrip(".?").replace(": Value error, ", ": ")
        path = error.ctx.command_path if error.ctx else "perdure"
        end = "?" if "Did you mean" in message else "."
        if getattr(error, "option_name", None) in _OF_COMMANDS and _is_group(error.ctx):
            end = f": it goes after the command, as in {path} COMMAND {error.option_name}."
        tell(f"{message[:1].lower()}{message[1:]}{end} See {path} --help")
        raise typer.Exit(ExitCode.USAGE) from error


def _is_group(ctx: Any) -> bool:
    return ctx is not None and isinstance(ctx.command, TyperGroup)


class _Loaded(Mapping[str, Any]):
    """The commands in full, each imported when it is looked up."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> Any:
        home, _, attribute = self._entries[name].home.partition(":")
        found = getattr(import_module(home), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(name)(found)
            found = alone
        found.rich_markup_mode, found._add_completion = None, False
        command = get_command(found)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
