"""Commands from operations: parameters, help, ``--json``, the client, errors as exit codes."""

from __future__ import annotations

import getpass
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem

from perdure import clock
from perdure.cli.app import help_option, parameter_name
from perdure.cli.output import ExitCode, echo, echo_lines, exit_code_of, print_error
from perdure.cli.renderer import CliRenderer, quoted
from perdure.cli.views.console import ReadingCodec, json_text
from perdure.diagnostics import declare
from perdure.errors import InvalidInput, PerdureError, without_password
from perdure.model import check
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from rich.console import Console

    from perdure.client.sync import Client
    from perdure.model.payload import Codec
    from perdure.operations.operation import Operation

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
NOT_A_TIME = declare(
    "cli.not_a_time", "{what} {text!r} is not a time", "Write it as 2030-01-31T09:00+01:00"
)
NOT_JSON = declare(
    "cli.not_json",
    "{what} {text!r} is not JSON: {reason}",
    "[A JSON string needs its own quotes: {quoted}]",
)

STORE_VARIABLE = "PERDURE_STORE"
SUPERVISED_STORE_VARIABLE = "PERDURE_SUPERVISED_STORE"
"""The store that a supervisor gives its workers; ranks as ``--store``. Not an argument, whose
password any user of the machine could read."""
LOCAL_FILE = "perdure.db"
LOCAL_STORE = f"sqlite:///{LOCAL_FILE}"
"""The default store: a file in the current directory."""

PATH: click.Path = click.Path(path_type=Path)


class CliCommand(click.Command):
    """A command that may return an exit code. Expected errors are one line on stderr."""

    get_help_option = help_option

    def invoke(self, ctx: click.Context) -> ExitCode:
        try:
            return super().invoke(ctx) or ExitCode.OK
        except PerdureError as error:
            store, namespace = ctx.params.get("store"), ctx.params.get("namespace")
            print_error(error, renderer_for(store, namespace or DEFAULT_NAMESPACE))
            return exit_code_of(error)
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        arguments = [each for each in self.params if isinstance(each, Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(parameter_name(each), each.about) for each in arguments])
        super().format_options(ctx, formatter)

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Newer versions of click list arguments themselves, under their own heading."""


class Argument(click.Argument):
    """An argument that ``--help`` explains."""

    def __init__(self, *args: Any, about: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.about = about


class Choice(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.5
    """One of several words."""

    name = "choice"

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return check.choice(value, parameter_name(param) if param else "value", self.words)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(each) for each in self.words if each.startswith(incomplete)]


class Json(click.ParamType):  # type: ignore[type-arg]
    """A value as JSON."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default
            return value
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            is_meant_as_such = value.lstrip().startswith(("{", "[", '"'))
            fault = NOT_JSON.fault(
                what=parameter_name(param) if param else "value",
                text=value,
                reason=str(error),
                quoted="" if is_meant_as_such else quoted(json.dumps(value, ensure_ascii=False)),
            )
            raise InvalidInput(fault) from None


class Moment(click.ParamType):  # type: ignore[type-arg]
    """A time; without a time zone, a local one."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            fault = NOT_A_TIME.fault(what=parameter_name(param) if param else "value", text=value)
            raise InvalidInput(fault) from None
        return at if at.tzinfo else at.astimezone()


class NumberOrName(click.ParamType):  # type: ignore[type-arg]
    """A number, or else a name."""

    name = "name"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        return int(value) if value.isdecimal() else str(value)


def command(*params: click.Parameter) -> Callable[[Callable[..., ExitCode | None]], CliCommand]:
    """A command without an operation; name and help come from the function."""

    def made(function: Callable[..., ExitCode | None]) -> CliCommand:
        return CliCommand(
            function.__name__, params=list(params), callback=function, help=inspect.getdoc(function)
        )

    return made


STORE = click.Option(
    ["--store"],
    envvar=STORE_VARIABLE,
    metavar="URL",
    help="Store URL: sqlite:///path.db or postgresql://user@host/database",
)
NAMESPACE = click.Option(
    ["--namespace"], metavar="NAME", default=DEFAULT_NAMESPACE, help="Namespace; '*' for all"
)
EVERY_NAMESPACE = click.Option(
    ["--namespace"], metavar="NAME", default=ALL_NAMESPACES, help="Namespace; '*' for all"
)
ONE_NAMESPACE = click.Option(
    ["--namespace"], metavar="NAME", default=DEFAULT_NAMESPACE, help="Namespace"
)
JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON")


def priority(text: str, given: dict[str, Any] | None = None) -> int | str:
    """A number, or the name of a priority."""
    return int(text) if text.isdecimal() else text


PRIORITY = click.Option(
    ["--priority"],
    metavar="N",
    callback=lambda ctx, param, value: None if value is None else priority(value),
    help="From 1 or critical, the most urgent, to 5 or minimal",
)
APP = click.Option(["--app"], metavar="MODULE[:NAME]", help="For a file: the module with its tasks")


# Commands from operations.


@dataclass
class CommandOutput:
    """The context in which a view prints a result."""

    renderer: CliRenderer
    is_across: bool
    """Whether results span several namespaces."""
    as_json: bool

    @cached_property
    def console(self) -> Console:
        from perdure.cli.terminal import stdout_terminal  # JSON output does not load rich

        return stdout_terminal()

    @cached_property
    def now(self) -> datetime:
        return clock.system_clock()


def output_for(store: str | None, namespace: str, *, as_json: bool) -> CommandOutput:
    return CommandOutput(
        renderer=renderer_for(store, namespace),
        is_across=namespace == ALL_NAMESPACES,
        as_json=as_json,
    )


View = Callable[[Any, CommandOutput], object]
Convert = Callable[[Any, dict[str, Any]], Any]


@dataclass(frozen=True, kw_only=True)
class OperationCommand:
    """How an operation becomes a command; parameters and help come from the operation."""

    view: View
    """Prints the result."""
    fields: View | None = None
    """Converts the result, or each item of a page, for JSON; by default it is printed as is."""
    call: Callable[..., Any] | None = None
    """Called with the client, the output and the arguments instead of the operation."""
    empty: str = ""
    """Printed instead of an empty list."""
    each: str = ""
    """The argument that may be repeated; the worst exit code is returned."""
    exit_code: Callable[[Any], ExitCode] = lambda _: ExitCode.OK
    metavars: Mapping[str, str] = field(default_factory=dict)
    """``--option``, ``--option VALUE`` or ``ARGUMENT`` for a parameter, if it differs from the
    name; empty to omit it."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Help for a parameter whose form on the command line differs from the operation's."""
    convert: Mapping[str, Convert] = field(default_factory=dict)
    """Resolves the text of an argument, such as a flow's name; also gets the other arguments."""
    choices: Mapping[str, Iterable[str]] = field(default_factory=dict)
    extra: Sequence[click.Parameter] = ()
    """Additional parameters, for ``local``, ``convert`` or ``call``."""
    local: Callable[[CommandOutput, dict[str, Any]], ExitCode | None] = lambda *_: None
    """Called first; if it returns an exit code, no store is opened."""
    more: str = ""
    """Help below the summary."""
    makes_store: bool = False
    """Whether the command may create the store."""
    shows_values: bool = False
    """Whether it shows stored values; those of a custom codec are omitted."""

    def build(self, name: str) -> CliCommand:
        from perdure.operations.catalog import OPERATIONS  # only for commands with an operation

        operation = OPERATIONS[name]
        params = [
            self._parameter(operation, each)
            for each in operation.parameters
            if self.metavars.get(each) != ""
        ]
        namespace = ONE_NAMESPACE if operation.one_namespace else NAMESPACE
        return CliCommand(
            operation.verb.replace("_", "-"),
            params=[*params, *self.extra, STORE, namespace, JSON],
            help="\n\n".join(filter(None, (operation.summary, self.more))),
            callback=partial(self._run, operation),
        )

    def _parameter(self, operation: Operation, name: str) -> click.Parameter:
        from perdure.operations.operation import parameter_help

        parameter, hint = operation.parameters[name], operation.types[name]
        about = self.about.get(name) or parameter_help(operation, name)
        metavar = self.metavars.get(name, "")
        is_option = metavar.startswith("-") or name not in operation.positional
        settings = self._type_of(name, hint, is_option=is_option)
        if words := getattr(settings.get("type"), "words", ()):
            about = f"{about}: {', '.join(words)}"
        is_required = parameter.default is inspect.Parameter.empty
        if not is_option:
            settings |= {"metavar": metavar or name.upper()}
            if name == self.each or metavar.endswith("..."):
                settings |= {"nargs": -1, "metavar": f"{settings['metavar'].rstrip('.')}..."}
            is_required = is_required and not metavar.startswith("[")
            return Argument([name], about=about, required=is_required, **settings)
        if isinstance(parameter.default, str | int) and parameter.default not in ("", False):
            settings |= {"default": parameter.default, "show_default": True}
        if name == "by":
            about = f"{about}; default: your login name"
            settings["default"] = login_name
        option, _, value = (metavar or f"--{name.replace('_', '-')}").partition(" ")
        if value:
            settings["metavar"] = value
        return click.Option([option, name], help=about, required=is_required, **settings)

    def _type_of(self, name: str, hint: Any, *, is_option: bool) -> dict[str, Any]:
        """How click parses a parameter, by the JSON form of its type."""
        members = {each for each in (get_args(hint) or (hint,)) if each is not NoneType}
        if name in self.convert:
            return {"metavar": _metavar(name)}
        if name in self.choices:
            return {"type": Choice(self.choices[name]), "metavar": _metavar(name)}
        if get_origin(hint) is Literal or any(get_origin(each) is Literal for each in members):
            words = get_args(hint if get_origin(hint) is Literal else next(iter(members)))
            return {"type": Choice(words), "metavar": _metavar(name)}
        if members == {bool}:
            return {"is_flag": True}
        if members == {int}:
            return {"type": int, "metavar": "N"}
        if members == {int, str}:
            return {"type": NumberOrName(), "metavar": _metavar(name)}
        if members == {datetime}:
            return {"type": Moment(), "metavar": "TIME"}
        if Sequence[str] in members or hint == Sequence[str]:
            return {"multiple": True, "metavar": "NAME"} if is_option else {"nargs": -1}
        if str in members:
            return {"metavar": _metavar(name)}
        return {"type": Json(), "metavar": "JSON" if is_option else name.upper()}

    def _run(
        self,
        operation: Operation,
        store: str | None,
        namespace: str,
        as_json: bool,
        **given: Any,
    ) -> ExitCode:
        out = output_for(store, namespace, as_json=as_json)
        if (code := self.local(out, given)) is not None:
            return code
        for name, parameter in operation.parameters.items():
            is_optional = parameter.default is not inspect.Parameter.empty
            if is_optional and name in given and given[name] in ((), None):  # omitted
                given[name] = parameter.default
        for name, convert in self.convert.items():  # before opening the store, which may create it
            if given[name] is not None:
                given[name] = convert(given[name], given)
        codec = ReadingCodec() if self.shows_values else None
        with connected(store, namespace, is_new=self.makes_store, codec=codec) as client:
            if self.call is not None:
                call = partial(self.call, client, out)
            else:
                call = getattr(getattr(client, operation.group), operation.verb)
            if self.each:
                return self._run_each(call, out, given)
            result = call(**given)
            if isinstance(result, ExitCode):
                return result
            self._show(result, out)
            return self.exit_code(result)

    def _run_each(
        self, call: Callable[..., Any], out: CommandOutput, given: dict[str, Any]
    ) -> ExitCode:
        """Call it for each id, even if some are refused."""
        worst = ExitCode.OK
        done = []
        for id in given.pop(self.each):
            try:
                result = call(id, **given)
            except PerdureError as error:
                print_error(error, out.renderer)
                worst = max(worst, exit_code_of(error))
                continue
            done.append(result)
            if not out.as_json:
                self.view(result, out)
        if out.as_json:
            echo_lines(json_text(done))
        return worst

    def _show(self, result: Any, out: CommandOutput) -> None:
        from perdure.operations.page import PAGE_MAX, Page

        is_page = isinstance(result, Page)
        if out.as_json:
            if self.fields is not None:
                if is_page:
                    result = Page(tuple(self.fields(each, out) for each in result), result.next)
                elif isinstance(result, list):
                    result = [self.fields(each, out) for each in result]
                else:
                    result = self.fields(result, out)
            echo_lines(json_text(result))
        elif self.empty and not result:
            echo(self.empty)
        else:
            self.view(result, out)
            if is_page and result.next:
                higher = "" if len(result) == PAGE_MAX else ", or a higher --limit"
                echo(f"more with --cursor {result.next}{higher}", err=True)


_METAVARS = {
    "after": "NODE",
    "on_conflict": "POLICY",
    "catch_up": "POLICY",
    "overlap": "POLICY",
    "id": "ID",
    "run": "ID",
    "new_id": "ID",
    "by": "NAME",
    "reason": "TEXT",
    "note": "TEXT",
    "error": "TEXT",
    "older_than": "30d",
    "every": "5m",
    "flow": "NAME",
    "queue": "NAME",
    "task": "NAME",
    "group": "NAME",
    "to": "MODULE[:FLOW]",
    "cron": "CRON",
    "timezone": "ZONE",
    "cursor": "CURSOR",
}
"""The placeholder of a value in help, if it differs from the parameter's name."""


def _metavar(name: str) -> str:
    return _METAVARS.get(name, name.upper().replace("_", "-"))


def renderer_for(store: str | None, namespace: str) -> CliRenderer:
    """A renderer with the parameter names of this command; suggested commands use the same
    store."""
    params = click.get_current_context().command.params
    names = {each.name: parameter_name(each) for each in params if each.name}
    return CliRenderer(options_of(store, namespace), names)


def options_of(store: str | None, namespace: str) -> str:
    """The options that a suggested command needs to use the same store and namespace.

    Passwords are replaced by a placeholder: suggestions end up in logs and chats.
    """
    words = []
    if store and store != (os.environ.get(STORE_VARIABLE) or LOCAL_STORE):
        words += ["--store", quoted(without_password(store))]
    if namespace != DEFAULT_NAMESPACE:
        words += ["--namespace", quoted(namespace)]
    return "".join(f" {word}" for word in words)


def required(store: str | None) -> str:
    """The store to use; by default, the one that ``perdure dev`` created in this directory."""
    if store:
        return store
    if os.path.exists(LOCAL_FILE):
        return LOCAL_STORE
    raise InvalidInput(WHICH_STORE.fault(file=LOCAL_FILE, variable=STORE_VARIABLE))


def shared_store(store: str | None, *, is_new: bool = False) -> str:
    """Check that a store is usable by several processes and exists, unless it may be created.

    The check creates and upgrades nothing.
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
    """A client of the store; ``is_new`` if the command may create it."""
    from perdure.client.sync import Client

    url = shared_store(store, is_new=is_new)
    with Client(url, namespace=namespace, codec=codec) as client:
        yield client


def login_name() -> str | None:
    """The login name of the current user; None if unknown."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def as_names(text: str | None) -> list[str] | None:
    """Split ``a,b``; empty names are refused later, with a specific error."""
    return None if text is None else [name.strip() for name in text.split(",")]
