"""The command tree: names and summaries only, so that help and completion load nothing else."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from perdure.cli.output import EXIT_CODES, ExitCode, note_json, tell_error
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


class Entry(NamedTuple):
    """A command: ``module:name`` of it below ``perdure.cli.commands``, and its summary."""

    home: str
    summary: str


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def __init__(self, name: str, help: str, entries: Mapping[str, Entry | LazyGroup]) -> None:
        super().__init__(name, help=f"{help}\n\n{EXIT_CODES}", subcommand_metavar="COMMAND ...")
        self.summary = help
        self.entries = entries

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if not isinstance(entry, Entry):
            return entry
        module, _, attribute = entry.home.partition(":")
        command: click.Command = getattr(import_module(f"perdure.cli.commands.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.entries and not name.startswith("-"):
            nearest = near(name, self.entries)
            fault = UNKNOWN_COMMAND.fault(name=name, nearest=nearest, path=ctx.command_path)
            raise InvalidInput(fault)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.summary) for name, each in self.entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=each.summary)
            for name, each in self.entries.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


class App(LazyGroup):
    """The root. Tells usage errors like every other error, with ``--json`` as JSON."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        note_json(given)
        try:
            code = super().main(given, *more, **{**extra, "standalone_mode": False})
        except click.UsageError as error:
            tell_error(InvalidInput(usage_fault(error)), CliRenderer())
            code = ExitCode.USAGE
        except InvalidInput as error:
            tell_error(error, CliRenderer())
            code = ExitCode.USAGE
        except click.Abort:
            code = ExitCode.INTERRUPTED
        sys.exit(code)


def usage_fault(error: click.UsageError) -> Fault:
    """What click found wrong with a command line, with the name of the option or argument."""
    path = error.ctx.command_path if error.ctx else "perdure"
    match error:
        case click.NoSuchOption():
            name = error.option_name
            if name in OF_COMMANDS and error.ctx and isinstance(error.ctx.command, click.Group):
                return MISPLACED_OPTION.fault(name=name, path=path)
            return UNKNOWN_OPTION.fault(name=name, nearest=error.possibilities or (), path=path)
        case click.MissingParameter(param=click.Parameter() as parameter):
            return MISSING.fault(name=spelled(parameter), path=path)
        case click.BadParameter(param=click.Parameter() as parameter):
            reason = error.message.rstrip(".")
            return INVALID_VALUE.fault(name=spelled(parameter), reason=reason, path=path)
        case _:
            reason = error.format_message().rstrip(".")
            return USAGE.fault(reason=f"{reason[:1].lower()}{reason[1:]}", path=path)


def spelled(parameter: click.Parameter) -> str:
    """``--older-than``, or ``ID`` of an argument."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name.removesuffix("...").strip("[]")


JOBS = {
    "list": Entry("jobs:list_jobs", "List jobs, newest first."),
    "show": Entry("jobs:show_job", "Show a job with its input, result and failures."),
    "explain": Entry("jobs:explain_job", "Explain why a job is where it is."),
    "retry": Entry("jobs:retry_jobs", "Retry failed, dead or cancelled jobs."),
    "abort": Entry("jobs:abort_jobs", "Cancel waiting jobs, and abort running ones."),
    "disable": Entry("jobs:disable_jobs", "Keep jobs from running until they are enabled."),
    "enable": Entry("jobs:enable_jobs", "Let disabled jobs run again."),
    "resume": Entry("jobs:resume_jobs", "Put paused jobs back into the queue."),
    "watch": Entry("jobs:watch_job", "Follow a job until it finishes."),
}
RUNS = {
    "list": Entry("runs:list_runs", "List runs, newest first."),
    "show": Entry("runs:show_run", "Show a run with its nodes and their outputs."),
    "events": Entry("runs:show_events", "Show the event log of a run."),
    "watch": Entry("runs:watch_run", "Follow a run until it finishes."),
    "explain": Entry("runs:explain_run", "Explain why a run is where it is."),
    "timeline": Entry("runs:show_timeline", "Show when each node ran and waited."),
    "lineage": Entry("runs:show_lineage", "Show which values each node used."),
    "submit": Entry("runs:submit_run", "Start a run and leave it to the workers."),
    "signal": Entry("runs:signal_run", "Send a signal to a run."),
    "pause": Entry("runs:pause_runs", "Pause runs until they are resumed."),
    "unpause": Entry("runs:unpause_runs", "Resume paused runs."),
    "cancel": Entry("runs:cancel_runs", "Cancel runs and their child runs."),
    "retry": Entry("runs:retry_runs", "Retry failed or cancelled runs from where they ended."),
    "fork": Entry("runs:fork_run", "Start a new run from the history of another."),
    "migrate": Entry("runs:migrate_run", "Move a run to another version of its flow."),
}
QUEUES = {
    "pause": Entry("queues:pause_queue", "Start no job of a queue until it is resumed."),
    "resume": Entry("queues:resume_queue", "Start jobs of a paused queue again."),
}
SCHEDULES = {
    "list": Entry("schedules:list_schedules", "List schedules with their last and next times."),
    "show": Entry("schedules:show_schedule", "Show a schedule with its recent ticks."),
    "pause": Entry("schedules:pause_schedule", "Pause a schedule until it is resumed."),
    "resume": Entry("schedules:resume_schedule", "Resume a schedule with its next tick."),
    "trigger": Entry("schedules:trigger_schedule", "Start what a schedule starts, now."),
    "delete": Entry("schedules:delete_schedule", "Delete a schedule."),
}
FLOWS = {
    "list": Entry("flows:list_flows", "List flows and versions of a module, file or store."),
    "show": Entry("flows:show_flow", "Show a flow with its nodes and its diagram."),
    "graph": Entry("flows:draw_flow", "Draw a flow as Mermaid, SVG or JSON."),
}

app = App(
    "perdure",
    "Durable jobs and flows: run workers, inspect work, control it.",
    {
        "init": Entry("init:init", "Create a starter project."),
        "dev": Entry("dev:dev", "Run workers that restart when the code changes."),
        "run": Entry("runs:run", "Start a run and follow it until it finishes."),
        "submit": RUNS["submit"],
        "worker": Entry("worker:worker", "Run jobs until SIGTERM or Ctrl-C."),
        "jobs": LazyGroup("jobs", "List, inspect and control jobs.", JOBS),
        "runs": LazyGroup("runs", "List, inspect and control runs.", RUNS),
        "queues": LazyGroup("queues", "Pause and resume queues.", QUEUES),
        "schedules": LazyGroup("schedules", "List, inspect and control schedules.", SCHEDULES),
        "flows": LazyGroup("flows", "Inspect flows in modules, files and stores.", FLOWS),
        "inbox": Entry("approvals:inbox", "List open approvals, oldest first, or show one."),
        "decide": Entry("approvals:decide", "Answer an approval."),
        "signal": RUNS["signal"],
        "report": Entry("runs:report", "Report on external work that a node waits for."),
        "broadcast": Entry("runs:broadcast", "Send a signal to all runs waiting for it."),
        "waits": Entry("runs:waits", "List what runs wait for, longest first."),
        "explain": Entry("runs:explain", "Explain why a run or a job is where it is."),
        "check": Entry("flows:check", "List live runs that your code cannot continue."),
        "validate": Entry("flows:validate", "Validate flow files and list every fault."),
        "doctor": Entry("store:doctor", "Check the health of a store and its work."),
        "verify": Entry("store:verify", "Verify that a store keeps what Perdure promises."),
        "prune": Entry("store:prune", "Delete jobs and runs that ended long ago."),
        "export": Entry("store:export", "Export a whole store to a file."),
        "import": Entry("store:import_", "Import an exported file into an empty store."),
        "depth": Entry("queues:depth", "Count jobs by queue and status."),
        "workers": Entry("queues:workers", "List workers and what they run."),
    },
)


def _show_version(ctx: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        click.echo(f"perdure {version('perdure')}")
        ctx.exit()


app.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version and exit.",
    )
)
