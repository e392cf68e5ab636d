"""``perdure runs``: start, inspect and control runs; ``perdure run``, ``explain`` and ``waits``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from perdure.cli.command import (
    APP,
    JSON,
    LOCAL_STORE,
    NAMESPACE,
    ONE_NAMESPACE,
    PATH,
    STORE,
    Argument,
    Choice,
    CommandOutput,
    Json,
    OperationCommand,
    command,
    connected,
    output_for,
)
from perdure.cli.commands.jobs import print_count
from perdure.cli.commands.worker import ALLOW_SCRIPTS, GRANT
from perdure.cli.output import ExitCode, echo, echo_lines, write_text
from perdure.cli.views.console import json_line, json_text
from perdure.cli.views.diagnostics import explanation_fields, print_explanation
from perdure.cli.views.jobs import print_change
from perdure.cli.views.runs import (
    EventLines,
    detail_fields,
    print_lineage,
    print_run,
    run_fields,
    run_table,
    wait_table,
)
from perdure.diagnostics import Action, declare
from perdure.errors import InvalidInput, JobNotFound, RunNotFound
from perdure.model.run import OnExisting, RunStatus, WaitType
from perdure.model.wait import ReportStatus

if TYPE_CHECKING:
    from perdure.client.sync import Client
    from perdure.flows.built import BuiltFlow
    from perdure.operations.records import BroadcastResult, ReportReceipt, RunChange, RunStarted
    from perdure.render.diagram import Diagram
    from perdure.worker.worker import Worker

TWO_FORMATS = declare("cli.two_formats", "--json and --format {format} exclude each other")
UNKNOWN_ENDING = declare(
    "cli.unknown_ending", "the ending of {path!r} names no format", "Pass --format {formats}"
)
GRACE = "5s"
"""How long running tasks have to finish when the worker of ``perdure run`` stops."""
RUNS_SHOWN_MAX = 100
"""How many runs are listed in text output."""


# Starting runs.


def _flow(target: str, given: dict[str, Any]) -> BuiltFlow:
    from perdure.cli.target import flow_at

    return flow_at(target, given.pop("app"))


def _submit(
    client: Client, out: CommandOutput, *, flow: BuiltFlow, **given: Any
) -> tuple[RunStarted, BuiltFlow]:
    return client.runs.submit(flow, **given), flow


def _print_submitted(found: tuple[RunStarted, BuiltFlow], out: CommandOutput) -> None:
    run, flow = found
    if run.is_new:
        echo(f"{run.id} started, a run of {flow.name}@{flow.version}")
    else:
        echo(f"{run.id} exists already")


FLOW_HELP = "MODULE[:FLOW], or a file such as ship.yaml"
INPUT_HELP = "Input of the flow, as JSON"


@command(
    Argument(["flow"], metavar="FLOW", about=FLOW_HELP),
    Argument(["input"], metavar="[INPUT]", about=INPUT_HELP, type=Json(), required=False),
    click.Option(["--id"], metavar="ID", help="Id of the run; else one is made up"),
    click.Option(
        ["--on-conflict"],
        metavar="POLICY",
        type=Choice(get_args(OnExisting)),
        help=f"If the id is taken: {', '.join(get_args(OnExisting))}",
    ),
    APP,
    click.Option(
        ["--worker/--no-worker"],
        default=True,
        help="Execute it here, or leave it to other workers",
    ),
    GRANT,
    ALLOW_SCRIPTS,
    STORE,
    ONE_NAMESPACE,
    JSON,
)
def run(
    flow: str,
    input: Any,
    id: str | None,
    on_conflict: OnExisting | None,
    app: str | None,
    worker: bool,
    grants: tuple[str, ...],
    allow_scripts: bool,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> ExitCode:
    """Start a run and follow it until it finishes.

    Exits with 0 if it completed, 1 if it failed, 4 if it was cancelled, 5 if it was skipped.
    Ctrl-C leaves the run, which continues where there is a worker, and can be watched again.
    """
    from perdure.cli.target import flow_at

    url = store or LOCAL_STORE
    built = flow_at(flow, app)  # before the store, which it would create needlessly
    with connected(url, namespace, is_new=True) as client:
        # Regardless of other workers: their records do not show whether they claim all jobs.
        own = _worker(built, url, namespace, grants, allow_scripts) if worker else None
        started = client.runs.submit(built, input, id=id, on_conflict=on_conflict)
        with _working(own):
            return _follow(client, output_for(url, namespace, as_json=as_json), id=started.id)


def _worker(
    flow: BuiltFlow, url: str, namespace: str, grants: Sequence[str], allow_scripts: bool
) -> Worker:
    """A worker for this flow only; built first, so that no run is submitted that it cannot run."""
    from perdure.cli.logs import format_warnings
    from perdure.worker.grants import Grant
    from perdure.worker.worker import Worker

    format_warnings()
    return Worker(
        url,
        flows=[flow],
        namespace=namespace,
        grace=GRACE,
        grants=[Grant.parse(each) for each in grants],
        allow_scripts=allow_scripts,
    )


@contextmanager
def _working(worker: Worker | None) -> Iterator[None]:
    """Run a worker meanwhile. It requeues what it does not finish in its grace period."""
    if worker is None:
        yield
        return
    handle = worker.start()
    try:
        yield
    finally:
        try:
            handle.shutdown()
            if handle.stats().running:
                echo(
                    f"running tasks have {GRACE} to finish; Ctrl-C requeues them at once", err=True
                )
            handle.join()
        except KeyboardInterrupt:  # at any time from here on
            handle.shutdown(grace=0)
            handle.join()


# Following runs.


def _follow(client: Client, out: CommandOutput, *, id: str) -> ExitCode:
    """Follow a run to its end and print its result on stdout, or why it has none."""
    from perdure.cli.views.screen import NoScreen, exit_code_after, follow, open_screen, tell_end

    snapshots = client.runs.observe(id)
    try:
        if out.as_json:
            last = follow(snapshots, NoScreen())
            echo_lines(json_text(detail_fields(client.runs.get(id), out)))
            return exit_code_after(last.run.status)
        with open_screen(out.console, out.renderer.options) as shown:
            last = follow(snapshots, shown)
        return tell_end(out.console, last, out.renderer)
    except KeyboardInterrupt:
        watch = out.renderer.action(Action("runs.watch", {"id": id}))
        cancel = out.renderer.action(Action("runs.cancel", {"id": id}))
        echo(err=True)
        echo(f"left {id}; it continues wherever a worker has its flow", err=True)
        echo(f"  watch it again   {watch}", err=True)
        echo(f"  cancel it        {cancel}", err=True)
        return ExitCode.INTERRUPTED


def _events(
    client: Client, out: CommandOutput, *, id: str, follow: bool, limit: int, cursor: str | None
) -> Any:
    if not follow:
        return client.runs.events(id, limit=limit, cursor=cursor)
    from perdure.cli.views.screen import exit_code_after
    from perdure.operations.page import page_size
    from perdure.operations.runs import decode_events_cursor

    after = 0 if cursor is None else decode_events_cursor(cursor).number
    source = click.get_current_context().get_parameter_source("limit")
    if source is not ParameterSource.DEFAULT:
        after = max(after, client.runs.get(id).number - page_size(limit))
    lines = None if out.as_json else EventLines(out.console)
    for event in client.runs.watch(id):
        if event.number <= after:
            continue
        if lines is None:
            echo(json_line(event))
        else:
            lines.print(event)
    return exit_code_after(event.status)


def _print_events(events: Any, out: CommandOutput) -> None:
    lines = EventLines(out.console, events)
    for event in events:
        lines.print(event)


# Diagrams and timelines.

DIAGRAM_FORMATS = ("mermaid", "svg", "json")
_TIMELINE_FORMATS = ("text", "svg", "json")
_ENDINGS = {".svg": "svg", ".json": "json", ".mmd": "mermaid", ".mermaid": "mermaid"}
_ENDINGS |= {".txt": "text"}


def format_options(words: tuple[str, ...]) -> tuple[click.Option, ...]:
    output = "Write to this file; its ending names the format too"
    return (
        click.Option(["--format"], type=Choice(words), metavar="FORMAT", help=", ".join(words)),
        click.Option(["--output", "-o"], type=PATH, metavar="FILE", help=output),
    )


def chosen_format(
    words: tuple[str, ...], format: str | None, output: Path | None, *, as_json: bool
) -> str:
    """The requested format, or that of the file's suffix, or the first one."""
    if as_json:
        if format not in (None, "json"):
            raise InvalidInput(TWO_FORMATS.fault(format=format))
        return "json"
    if format is not None or output is None:
        return format or words[0]
    meant = _ENDINGS.get(output.suffix.lower())
    if meant not in words:
        fault = UNKNOWN_ENDING.fault(path=str(output), formats=" or ".join(words))
        raise InvalidInput(fault)
    return meant


def write_diagram(
    diagram: Diagram, format: str | None, output: Path | None, *, as_json: bool
) -> ExitCode:
    from perdure.render.mermaid import mermaid
    from perdure.render.svg import svg

    drawers = {"mermaid": mermaid, "svg": svg, "json": json_text}
    chosen = chosen_format(DIAGRAM_FORMATS, format, output, as_json=as_json)
    write_text(drawers[chosen](diagram), output)
    return ExitCode.OK


def _diagram(
    client: Client, out: CommandOutput, *, id: str, format: str | None, output: Path | None
) -> ExitCode:
    return write_diagram(client.runs.diagram(id), format, output, as_json=out.as_json)


def _timeline(
    client: Client, out: CommandOutput, *, id: str, format: str | None, output: Path | None
) -> ExitCode:
    from perdure.cli.terminal import Terminal
    from perdure.cli.views.timeline import WIDTH_ELSEWHERE, print_timeline
    from perdure.render.timeline_svg import timeline_svg

    chosen = chosen_format(_TIMELINE_FORMATS, format, output, as_json=out.as_json)
    timeline = client.runs.timeline(id)
    match chosen:
        case "json":
            write_text(json_text(timeline), output)
        case "svg":
            write_text(timeline_svg(timeline), output)
        case _ if output is None:
            print_timeline(out.console, timeline)
        case _:
            written = StringIO()
            print_timeline(Terminal(file=written, width=WIDTH_ELSEWHERE), timeline)
            write_text(written.getvalue(), output)
    return ExitCode.OK


# Signals and reports.


def _signal(
    client: Client, out: CommandOutput, *, name: str, **given: Any
) -> tuple[RunChange, str]:
    return client.runs.signal(name=name, **given), name


def _print_signaled(found: tuple[RunChange, str], out: CommandOutput) -> None:
    change, name = found
    echo(f"{change.id} has the signal {name}, and is {change.after}")


def _print_broadcast(done: BroadcastResult, out: CommandOutput) -> None:
    for id in done.runs[:RUNS_SHOWN_MAX]:
        echo(id)
    if done.count > RUNS_SHOWN_MAX:
        echo(f"and {done.count - RUNS_SHOWN_MAX} more: --json has them all")
    wait = "waits" if done.unmatched == 1 else "wait"
    others = f"; {done.unmatched} {wait} for another one of this name" if done.unmatched else ""
    if not done.count:
        echo(f"no run waits for the signal {done.name}{others}")
    else:
        runs = "1 run has" if done.count == 1 else f"{done.count} runs have"
        echo(f"{runs} the signal {done.name}{others}")


def _print_receipt(receipt: ReportReceipt, out: CommandOutput) -> None:
    place = f"{receipt.run}, node {receipt.node}"
    first = f": {receipt.first.status} came first" if receipt.first else ""
    echo(f"{receipt.outcome}: {place}{first}; the run is {receipt.status}")


# Changing runs.


def _fork(client: Client, out: CommandOutput, *, id: str, **given: Any) -> tuple[RunStarted, str]:
    return client.runs.fork(id, **given), id


def _print_forked(found: tuple[RunStarted, str], out: CommandOutput) -> None:
    run, origin = found
    echo(f"{run.id} started, a fork of {origin}")


def _to(target: str, given: dict[str, Any]) -> BuiltFlow:
    from perdure.cli.target import load_flow

    return load_flow(target)


def _migrate(
    client: Client, out: CommandOutput, *, to: BuiltFlow, **given: Any
) -> tuple[RunChange, BuiltFlow]:
    return client.runs.migrate(to=to, **given), to


def _print_migrated(found: tuple[RunChange, BuiltFlow], out: CommandOutput) -> None:
    change, flow = found
    echo(f"{change.id} continues in {flow.name}@{flow.version}, and is {change.after}")


def _first(found: tuple[Any, Any], out: CommandOutput) -> Any:
    """The result of the operation, without the arguments printed along with it."""
    return found[0]


# Explaining.


@command(Argument(["id"], metavar="ID", about="Id of a run or a job"), STORE, NAMESPACE, JSON)
def explain(id: str, store: str | None, namespace: str, as_json: bool) -> None:
    """Explain the state of a run or a job."""
    out = output_for(store, namespace, as_json=as_json)
    with connected(store, namespace) as client:
        try:
            explanation = client.runs.explain(id)
        except RunNotFound:
            try:
                explanation = client.jobs.explain(id)
            except JobNotFound:
                raise RunNotFound(run_id=id, what="run or job") from None
        if as_json:
            echo_lines(json_text(explanation_fields(explanation, out)))
        else:
            print_explanation(explanation, out)


_AFTER_A_RUN = (
    "Exits with 0 if the run completed, 1 if it failed, 4 if it was cancelled, 5 if it was skipped."
)

COMMANDS: Mapping[str, OperationCommand | click.Command] = {
    "run": run,
    "explain": explain,
    "runs.submit": OperationCommand(
        call=_submit,
        view=_print_submitted,
        fields=_first,
        spell={"input": "[INPUT]"},
        convert={"flow": _flow},
        about={"flow": FLOW_HELP, "input": INPUT_HELP},
        extra=(APP,),
        makes_store=True,
    ),
    "runs.list": OperationCommand(
        view=run_table, fields=run_fields, empty="no runs", choices={"status": RunStatus}
    ),
    "runs.count": OperationCommand(view=print_count, choices={"status": RunStatus}),
    "runs.get": OperationCommand(view=print_run, fields=detail_fields, shows_values=True),
    "runs.events": OperationCommand(
        call=_events,
        view=_print_events,
        empty="no events",
        extra=(
            click.Option(["--follow", "-f"], is_flag=True, help="Continue until the run finishes"),
        ),
        more="With --follow, --limit N starts with the latest N events, --cursor with the first "
        "after it, and --json prints a line for each event. The exit code is then that of the run: "
        "0 if it completed, 1 if it failed, 4 if it was cancelled, 5 if it was skipped.",
        shows_values=True,
    ),
    "runs.timeline": OperationCommand(
        call=_timeline, view=lambda *_: None, extra=format_options(_TIMELINE_FORMATS)
    ),
    "runs.lineage": OperationCommand(view=print_lineage, shows_values=True),
    "runs.diagram": OperationCommand(
        call=_diagram, view=lambda *_: None, extra=format_options(DIAGRAM_FORMATS)
    ),
    "runs.explain": OperationCommand(view=print_explanation, fields=explanation_fields),
    "runs.watch": OperationCommand(
        call=_follow,
        view=lambda *_: None,
        more="In a terminal it is drawn in place; elsewhere each event is a line. With --json the "
        f"run is printed once it has finished. {_AFTER_A_RUN}",
        shows_values=True,
    ),
    "runs.signal": OperationCommand(
        call=_signal, view=_print_signaled, fields=_first, spell={"payload": "[PAYLOAD]"}
    ),
    "runs.broadcast": OperationCommand(view=_print_broadcast, spell={"payload": "[PAYLOAD]"}),
    "runs.report": OperationCommand(view=_print_receipt, choices={"status": ReportStatus}),
    "runs.pause": OperationCommand(each="id", view=print_change),
    "runs.resume": OperationCommand(each="id", view=print_change),
    "runs.cancel": OperationCommand(each="id", view=print_change),
    "runs.retry": OperationCommand(each="id", view=print_change),
    "runs.fork": OperationCommand(
        call=_fork, view=_print_forked, fields=_first, spell={"new_id": "--id"}
    ),
    "runs.migrate": OperationCommand(
        call=_migrate,
        view=_print_migrated,
        fields=_first,
        spell={"to": "--to"},
        convert={"to": _to},
    ),
    "waits.list": OperationCommand(
        view=wait_table,
        empty="no waits",
        choices={"type": WaitType},
        shows_values=True,
    ),
}
