"""The command tree: names and summaries only, so that help and completion load nothing else."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from perdure.cli.output import EXIT_CODES, ExitCode, echo, echo_lines, note_json, print_error
from perdure.cli.renderer import CliRenderer
from perdure.diagnostics import Fault, declare, near
from perdure.errors import InvalidInput

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

UNKNOWN_COMMAND = declare(
    "cli.unknown_command",
    "unknown command {name!r}[; did you mean {nearest:or}?]",
    "See {path} --help",
)
UNKNOWN_OPTION = declare(
    "cli.unknown_option",
    "unknown option {name}[; did you mean {nearest:or}?]",
    "See {path} --help",
)
MISPLACED_OPTION = declare(
    "cli.misplaced_option",
    "{name} goes after the command",
    "Write {path} COMMAND {name}",
)
MISSING = declare("cli.missing", "{name} is required", "See {path} --help")
INVALID_VALUE = declare("cli.invalid_value", "{name}: {reason}", "See {path} --help")
USAGE = declare("cli.usage", "{reason}", "See {path} --help")

OF_COMMANDS = ("--store", "--namespace", "--json")
"""Options of nearly every command, and of no group."""


def help_option(command: click.Command, ctx: click.Context) -> click.Option | None:
    """``--help``, worded like our own options."""
    option = click.Command.get_help_option(command, ctx)
    if option is not None:
        option.help = "Show this message and exit"
    return option


class LazyGroup(click.Group):
    """A group that imports a command when it is called. ``members`` maps its words to names."""

    def __init__(self, name: str, help: str, members: Mapping[str, str]) -> None:
        super().__init__(name, help=f"{help}\n\n{EXIT_CODES}", subcommand_metavar="COMMAND ...")
        self.members = members

    get_help_option = help_option

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            echo_lines(ctx.get_help(), err=True)
            ctx.exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.members)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        name = self.members.get(cmd_name)
        return None if name is None else command_named(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.members and not name.startswith("-"):
            nearest = near(name, self.members)
            fault = UNKNOWN_COMMAND.fault(name=name, nearest=nearest, path=ctx.command_path)
            raise InvalidInput(fault)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(word, SUMMARIES[name]) for word, name in self.members.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(word, help=SUMMARIES.get(name) or GROUPS[name])
            for word, name in self.members.items()
            if word.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


class App(LazyGroup):
    """The root group. Reports usage errors like all other errors, as JSON with ``--json``."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        short = {word: name for word, name in self.members.items() if word not in GROUPS}
        with formatter.section("Commands"):
            formatter.write_dl([(word, SUMMARIES[name]) for word, name in short.items()])
        with formatter.section("Groups"):
            formatter.write_dl(list(GROUPS.items()))

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        note_json(given)
        try:
            code = super().main(given, *more, **{**extra, "standalone_mode": False})
        except click.UsageError as error:
            print_error(InvalidInput(usage_fault(error)), CliRenderer())
            code = ExitCode.USAGE
        except InvalidInput as error:
            print_error(error, CliRenderer())
            code = ExitCode.USAGE
        except click.Abort:
            code = ExitCode.INTERRUPTED
        sys.exit(code)


def usage_fault(error: click.UsageError) -> Fault:
    """Describe a usage error found by click, with the name of the option or argument."""
    path = error.ctx.command_path if error.ctx else "perdure"
    match error:
        case click.NoSuchOption():
            name = error.option_name
            if name in OF_COMMANDS and error.ctx and isinstance(error.ctx.command, click.Group):
                return MISPLACED_OPTION.fault(name=name, path=path)
            return UNKNOWN_OPTION.fault(name=name, nearest=error.possibilities or (), path=path)
        case click.MissingParameter(param=click.Parameter() as parameter):
            return MISSING.fault(name=parameter_name(parameter), path=path)
        case click.BadParameter(param=click.Parameter() as parameter):
            reason = error.message.rstrip(".")
            return INVALID_VALUE.fault(name=parameter_name(parameter), reason=reason, path=path)
        case _:
            reason = error.format_message().rstrip(".")
            return USAGE.fault(reason=f"{reason[:1].lower()}{reason[1:]}", path=path)


def parameter_name(parameter: click.Parameter) -> str:
    """``--older-than``, or ``ID`` of an argument."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    name = parameter.human_readable_name.removesuffix("...")
    return name[1:-1] if name.startswith("[") else name


GROUPS = {
    "jobs": "Enqueue, inspect and control jobs.",
    "runs": "Start, inspect and control runs of flows.",
    "approvals": "List and answer approvals.",
    "events": "Follow events of jobs and runs.",
    "waits": "List what runs wait for.",
    "schedules": "Save, inspect and control schedules.",
    "queues": "List, pause and resume queues.",
    "workers": "List workers.",
    "flows": "Inspect flows in modules, files and stores.",
    "store": "Check, prune, export and import a store.",
}

# By operation, with the summary of each: help and completion load no operations. A test compares
# them. Names without a dot, and commands on local files and code, have no operation.
SUMMARIES = {
    "init": "Create a starter project.",
    "dev": "Run workers that restart when the code changes.",
    "run": "Start a run and follow it until it finishes.",
    "worker": "Run jobs until SIGTERM or Ctrl-C.",
    "explain": "Explain the state of a run or a job.",
    "jobs.enqueue": "Enqueue a call of a task.",
    "jobs.list": "List jobs, newest first.",
    "jobs.count": "Count jobs.",
    "jobs.get": "Get a job with its arguments and result.",
    "jobs.attempts": "List the failed attempts of a job, oldest first.",
    "jobs.explain": "Explain the state of a job.",
    "jobs.watch": "Follow a job until it finishes.",
    "jobs.cancel": "Cancel a waiting job, or stop a running one.",
    "jobs.cancel_group": "Cancel every unfinished job of a group.",
    "jobs.retry": "Retry a failed, dead or cancelled job.",
    "jobs.resume": "Requeue a parked job.",
    "jobs.disable": "Keep a job from running until it is enabled.",
    "jobs.enable": "Let a disabled job run again.",
    "runs.submit": "Start a run of a flow.",
    "runs.list": "List runs, newest first.",
    "runs.count": "Count runs.",
    "runs.get": "Get a run with its nodes, outputs and result.",
    "runs.events": "List the events of a run, oldest first.",
    "runs.timeline": "Show when each node ran and waited.",
    "runs.lineage": "Show which upstream values each node used.",
    "runs.diagram": "Draw a run with the state of each node.",
    "runs.explain": "Explain the state of a run.",
    "runs.watch": "Follow a run until it finishes.",
    "runs.signal": "Send a signal to a run.",
    "runs.broadcast": "Send a signal to every run waiting for it.",
    "runs.report": "Report on external work that a node waits for.",
    "runs.pause": "Pause a run until it is resumed.",
    "runs.resume": "Resume a paused run.",
    "runs.cancel": "Cancel a run and its child runs.",
    "runs.retry": "Retry a failed or cancelled run.",
    "runs.set_priority": "Change the priority of a run.",
    "runs.fork": "Start a new run from the history of another.",
    "runs.migrate": "Continue a run in another version of its flow.",
    "approvals.list": "List open approvals, oldest first.",
    "approvals.get": "Get an approval with all its answers.",
    "approvals.decide": "Answer an approval.",
    "events.stream": "Stream events of jobs and runs as they happen.",
    "waits.list": "List the waits of runs, oldest first.",
    "schedules.save": "Start a flow or a task on a schedule.",
    "schedules.list": "List schedules by name.",
    "schedules.get": "Get a schedule with its recent ticks.",
    "schedules.pause": "Pause a schedule until it is resumed.",
    "schedules.resume": "Resume a paused schedule at its next tick.",
    "schedules.trigger": "Start the run or job of a schedule now.",
    "schedules.delete": "Delete a schedule.",
    "queues.list": "List queues, and count jobs and runs by status.",
    "queues.peek": "List the next jobs of a queue.",
    "queues.pause": "Pause a queue; running jobs continue.",
    "queues.resume": "Resume a paused queue.",
    "workers.list": "List workers and what they run.",
    "flows.list": "List flow versions and count their runs.",
    "flows.unserved": "List unfinished runs that your flows cannot continue.",
    "flows.show": "Show a flow with its nodes and its diagram.",
    "flows.graph": "Draw a flow as Mermaid, SVG or JSON.",
    "flows.validate": "Validate flow files and list every fault.",
    "store.health": "Check the health of a store and its work.",
    "store.stats": "Count the work of all workers, past and present.",
    "store.count_finished": "Count jobs and runs that prune would delete.",
    "store.prune": "Delete old finished jobs and runs.",
    "store.verify": "Check that a store satisfies Perdure's guarantees.",
    "store.export": "Export a whole store to a file.",
    "store.import": "Import an exported file into an empty store.",
}
ALIASES = {
    "submit": "runs.submit",
    "enqueue": "jobs.enqueue",
    "inbox": "approvals.list",
    "decide": "approvals.decide",
    "signal": "runs.signal",
    "doctor": "store.health",
    "verify": "store.verify",
}
_HOMES = {"explain": "runs", "run": "runs", "waits": "runs", "workers": "queues"}
"""Modules of commands whose name differs from that of the group."""


def command_named(name: str) -> click.Command:
    """The command of an operation, or the group of this name."""
    group, _, verb = name.partition(".")
    if group in GROUPS and not verb:
        members = {
            each.partition(".")[2].replace("_", "-"): each
            for each in SUMMARIES
            if each.startswith(f"{group}.")
        }
        return LazyGroup(group, GROUPS[group], members)
    found = import_module(f"perdure.cli.commands.{_HOMES.get(group, group)}").COMMANDS[name]
    command: click.Command = found if isinstance(found, click.Command) else found.build(name)
    return command


_TOP = ("init", "dev", "run", "submit", "enqueue", "worker", "explain", "inbox", "decide", "signal")
app = App(
    "perdure",
    "Durable jobs and flows: run workers, inspect work, control it.",
    {
        **{word: ALIASES.get(word, word) for word in (*_TOP, "doctor", "verify")},
        **{group: group for group in GROUPS},
    },
)


def _show_version(ctx: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        echo(f"perdure {version('perdure')}")
        ctx.exit()


app.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version and exit",
    )
)
