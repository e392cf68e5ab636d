"""All commands of the command line, in one tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from perdure.cli.exits import EXIT_CODES, note_json
from perdure.cli.lazy_group import Entry, LazyGroup


class Commands(LazyGroup):
    """Each is imported when it is called, so that help comes at once."""

    entries: ClassVar[Mapping[str, Entry]] = {
        "init": Entry(
            "perdure.cli.init:init",
            "Lay out a small project to start from: a flow, its tests, a README.",
        ),
        "dev": Entry(
            "perdure.cli.dev:dev",
            "Run workers for local work, and start them anew when a file changes.",
        ),
        "run": Entry("perdure.cli.run:run", "Begin a run of a flow and follow it to its end."),
        "submit": Entry(
            "perdure.cli.run_acts:submit_run", "Begin a run of a flow, and leave it to the workers."
        ),
        "worker": Entry("perdure.cli.worker:worker", "Run jobs until SIGTERM or Ctrl-C."),
        "jobs": Entry("perdure.cli.jobs:app", "Look at jobs and act on them."),
        "runs": Entry("perdure.cli.runs:app", "Look at runs of flows and act on them."),
        "queues": Entry("perdure.cli.queues:app", "Hold queues back, and let them go on."),
        "schedules": Entry("perdure.cli.schedules:app", "Look at schedules and act on them."),
        "flows": Entry(
            "perdure.cli.flows:app", "Look at flows, in a module or file of yours or in a store."
        ),
        "inbox": Entry(
            "perdure.cli.inbox:inbox", "List open approvals, the longest open first, or show one."
        ),
        "decide": Entry("perdure.cli.decide:decide", "Answer an approval."),
        "signal": Entry(
            "perdure.cli.run_acts:signal_run",
            "Bring a run a signal, which it keeps until a node takes it.",
        ),
        "report": Entry(
            "perdure.cli.report:report",
            "Tell a run about the outside work that one of its nodes waits for.",
        ),
        "broadcast": Entry(
            "perdure.cli.report:broadcast",
            "Bring a signal to every run that waits for one of its name just now.",
        ),
        "waits": Entry("perdure.cli.waits:waits", "List what runs wait for, the longest first."),
        "explain": Entry(
            "perdure.cli.explain:explain",
            "Say why a run or a job stands where it stands, and what would let it go on.",
        ),
        "check": Entry(
            "perdure.cli.check:check",
            "List the runs under way that the code at hand could not go on with.",
        ),
        "validate": Entry(
            "perdure.cli.validate:validate",
            "Check flows in files, and list all that is wrong, each fault with its line.",
        ),
        "doctor": Entry(
            "perdure.cli.doctor:doctor",
            "Look for what is wrong with a store and the work in it, and say what would help.",
        ),
        "verify": Entry(
            "perdure.cli.verify:verify", "Check that a store keeps what Perdure promises."
        ),
        "prune": Entry(
            "perdure.cli.prune:prune", "Remove jobs and runs that ended long ago, or count them."
        ),
        "export": Entry("perdure.cli.export:export", "Write all that a store keeps into one file."),
        "import": Entry(
            "perdure.cli.import_:import_", "Fill an empty store with what was exported."
        ),
        "depth": Entry("perdure.cli.queues:depth", "Count the jobs in each status, by queue."),
        "workers": Entry(
            "perdure.cli.queues:workers", "List the workers: live or silent, how much they run."
        ),
    }


app = typer.Typer(
    name="perdure",
    cls=Commands,
    help=f"Durable jobs and flows: run workers, look at work, act on it.\n\n{EXIT_CODES}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Help without boxes: it comes sooner, and fits a narrow terminal.
    rich_markup_mode=None,
)


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"perdure {version('perdure')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which it is.")
    ] = False,
) -> None:
    note_json(False)  # a command that has --json says otherwise
