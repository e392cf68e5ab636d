"""``perdure runs``: start, list, inspect and change runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console

from perdure.cli.command import (
    LOCAL_STORE,
    PATH,
    Choice,
    app_option,
    argument,
    by_option,
    command,
    connected,
    json_option,
    login_name,
    namespace_option,
    options_of,
    parsed_json,
    reason_option,
    store_option,
)
from perdure.cli.commands.flows import (
    GraphFormat,
    TimelineFormat,
    chosen_format,
    write_graph,
)
from perdure.cli.commands.jobs import act_on_each, change_fields, given
from perdure.cli.output import ExitCode, write_text
from perdure.cli.views.console import (
    json_line,
    json_text,
    make_console,
)
from perdure.cli.views.jobs import NOT_READABLE
from perdure.cli.views.runs import (
    EventLines,
    RunInFull,
    full_fields,
    wait_columns,
)
from perdure.cli.views.screen import (
    NoScreen,
    exit_code_after,
    follow,
    open_screen,
    tell_end,
)
from perdure.cli.views.timeline import WIDTH_ELSEWHERE, print_timeline
from perdure.client.sync import RunHandle
from perdure.errors import JobNotFound, RunNotFound
from perdure.model.job import ALL_NAMESPACES
from perdure.model.run import RunStatus, WaitKind
from perdure.model.wait import ReportStatus
from perdure.render.timeline import Timeline
from perdure.render.timeline_svg import timeline_svg

if TYPE_CHECKING:
    from perdure.flows.built import BuiltFlow
    from perdure.operations.insight.explain import Explanation
    from perdure.operations.records import BroadcastResult, ReportReceipt
    from perdure.worker.worker import Worker


def see_through(run: RunHandle, options: str, *, as_json: bool) -> ExitCode:
    """Follow a run to its end, and say how it ended: its result on stdout, else why not.

    Whoever interrupts it is told how to come back; ``options`` are those of such commands.
    """
    try:
        if as_json:
            last = follow(run, NoScreen())
            full = RunInFull(run.record(), run.events(), run.nodes(), run.children())
            click.echo(json_text(full_fields(full)))
            return exit_code_after(last.run.status)
        console = make_console()
        with open_screen(console, options) as shown:
            last = follow(run, shown)
        return tell_end(console, last, options)
    except KeyboardInterrupt:
        _tell_how_to_come_back(run.id, options)
        return ExitCode.INTERRUPTED


def _tell_how_to_come_back(id: str, options: str) -> None:
    run = f"{shlex.quote(id)}{options}"
    sys.stderr.write(
        f"\nLeft {id}: it goes on wherever a worker has its flow.\n"
        f"  watch it again   perdure runs watch {run}\n"
        f"  end it           perdure runs cancel {run}\n"
    )


def write_timeline(timeline: Timeline, format: TimelineFormat, output: Path | None) -> None:
    """A timeline to the file, or to stdout."""
    match format:
        case TimelineFormat.JSON:
            write_text(json_text(timeline), output)
        case TimelineFormat.SVG:
            write_text(timeline_svg(timeline), output)
        case TimelineFormat.TEXT if output is None:
            print_timeline(make_console(), timeline)
        case TimelineFormat.TEXT:
            written = StringIO()
            print_timeline(Console(file=written, width=WIDTH_ELSEWHERE), timeline)
            write_text(written.getvalue(), output)


_SAID = msgspec.json.encode(NOT_READABLE)


class ReadingCodec:
    """Plain JSON; in place of what is none, a text that says so. Not for writing."""

    def encode(self, data: bytes) -> bytes:
        raise AssertionError("what only reads does not write")

    def decode(self, data: bytes) -> bytes:
        try:
            msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _SAID
        return data


FLOW_HELP = "A flow that was built; a module alone means the only one in it."


class OnConflict(StrEnum):
    """What it means that the id is taken."""

    FAIL = "fail"
    USE_EXISTING = "use_existing"
    REPLACE = "replace"


@command
@argument(
    "target", metavar="FLOW", help="MODULE[:FLOW] of a flow that was built, or a file: ship.yaml."
)
@argument("input", metavar="INPUT", help="As JSON.", required=False)
@click.option("--id", metavar="ID", help="The run's id; else one is made up.")
@click.option(
    "--on-conflict",
    metavar="POLICY",
    help=f"If the id is taken: {', '.join(OnConflict)}.",
    type=Choice(OnConflict),
    default=OnConflict.FAIL,
)
@app_option
@store_option
@namespace_option
@json_option
def submit_run(
    target: str,
    input: str | None,
    id: str | None,
    on_conflict: OnConflict,
    app: str | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Start a run and leave it to the workers."""
    from perdure.cli.target import flow_at

    flow = flow_at(target, app)
    value = parsed_json(input, "INPUT")
    with connected(store, namespace, is_new=True) as client:
        run = client.submit(flow, value, id=id, on_conflict=on_conflict.value)
        record = run.record()
        if as_json:
            fields = {"id": run.id, "flow": record.flow, "version": record.version}
            more = {"status": record.status, "is_new": run.is_new}
            click.echo(json_text({**fields, **more}))
        elif run.is_new:
            click.echo(f"{run.id} is {record.status}, a run of {record.flow}@{record.version}")
        else:
            click.echo(f"{run.id} was there already and is {record.status}")


@command
@argument("id", metavar="ID", help="The run's id.")
@argument("name", metavar="NAME", help="The signal's name.")
@argument("payload", metavar="PAYLOAD", help="As JSON.", required=False)
@by_option
@store_option
@namespace_option
@json_option
def signal_run(
    id: str,
    name: str,
    payload: str | None,
    by: str | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Send a signal to a run."""

    with connected(store, namespace) as client:
        moved = client.runs.signal(id, name, parsed_json(payload, "PAYLOAD"), by=by)
        click.echo(
            json_text(change_fields(moved))
            if as_json
            else f"{id} has the signal {name}, and is {moved.after}"
        )


@command
@argument("ids", metavar="ID...", help="Ids of runs.", nargs=-1)
@reason_option
@by_option
@store_option
@namespace_option
@json_option
def pause_runs(
    ids: tuple[str, ...],
    reason: str | None,
    by: str | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> ExitCode | None:
    """Pause runs until they are resumed."""
    with connected(store, namespace) as client:
        return act_on_each(
            lambda id: client.runs.pause(id, reason=reason, by=by),
            given(ids, "runs pause"),
            as_json=as_json,
        )


@command
@argument("ids", metavar="ID...", help="Ids of runs.", nargs=-1)
@by_option
@store_option
@namespace_option
@json_option
def unpause_runs(
    ids: tuple[str, ...], by: str | None, store: str | None, namespace: str, as_json: bool
) -> ExitCode | None:
    """Resume paused runs."""
    with connected(store, namespace) as client:
        return act_on_each(
            lambda id: client.runs.resume(id, by=by),
            given(ids, "runs unpause"),
            as_json=as_json,
        )


@command
@argument("ids", metavar="ID...", help="Ids of runs.", nargs=-1)
@reason_option
@by_option
@click.option("--compensate", help="Undo what was completed, first.", is_flag=True)
@store_option
@namespace_option
@json_option
def cancel_runs(
    ids: tuple[str, ...],
    reason: str | None,
    by: str | None,
    compensate: bool,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> ExitCode | None:
    """Cancel runs and their child runs."""
    with connected(store, namespace) as client:
        return act_on_each(
            lambda id: client.runs.cancel(id, reason=reason, by=by, compensate=compensate),
            given(ids, "runs cancel"),
            as_json=as_json,
        )


@command
@argument("ids", metavar="ID...", help="Ids of runs.", nargs=-1)
@by_option
@store_option
@namespace_option
@json_option
def retry_runs(
    ids: tuple[str, ...], by: str | None, store: str | None, namespace: str, as_json: bool
) -> ExitCode | None:
    """Retry failed or cancelled runs from where they ended."""
    with connected(store, namespace) as client:
        return act_on_each(
            lambda id: client.runs.handle(id).retry(by=by),  # never a job that has this id too
            given(ids, "runs retry"),
            as_json=as_json,
        )


@command
@argument("id", metavar="ID", help="The run's id.")
@click.option(
    "--after",
    metavar="NODE",
    help="Part after this node, or after the event of this number.",
)
@click.option("--patch", metavar="JSON", help="New outputs of completed nodes, by their ids.")
@click.option("--id", "new_id", metavar="ID", help="The new run's id; else one is made up.")
@by_option
@store_option
@namespace_option
@json_option
def fork_run(
    id: str,
    after: str | None,
    patch: str | None,
    new_id: str | None,
    by: str | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Start a new run from the history of another."""

    with connected(store, namespace) as client:
        point = int(after) if after is not None and after.isdecimal() else after
        outputs = parsed_json(patch, "--patch")
        run = client.runs.handle(id).fork(after=point, patch=outputs, new_id=new_id, by=by)
        record = run.record()
        if as_json:
            click.echo(json_text({"id": run.id, "status": record.status, "origin": id}))
        else:
            click.echo(f"{run.id} is {record.status}, a fork of {id}")


@command
@argument("id", metavar="ID", help="The run's id.")
@click.option("--to", metavar="MODULE[:FLOW]", help=FLOW_HELP, required=True)
@by_option
@store_option
@namespace_option
@json_option
def migrate_run(
    id: str, to: str, by: str | None, store: str | None, namespace: str, as_json: bool
) -> None:
    """Move a run to another version of its flow."""
    from perdure.cli.target import load_flow

    with connected(store, namespace) as client:
        flow = load_flow(to)
        before = client.runs.get(id).version
        moved = client.runs.migrate(id, to=flow, by=by)
        if as_json:
            fields = {"id": moved.id, "status": moved.after, "flow": flow.name}
            click.echo(json_text({**fields, "before": before, "after": flow.version}))
        elif before == flow.version:
            click.echo(f"{id} was of {flow.name}@{flow.version} already")
        else:
            click.echo(f"{id} is of {flow.name}@{flow.version}, was of {flow.name}@{before}")


@command
@click.option(
    "--status",
    metavar="STATUS",
    help=f"Only {', '.join(RunStatus)}.",
    type=Choice(RunStatus),
)
@click.option("--flow", metavar="NAME", help="Only of this flow.")
@click.option(
    "--limit", metavar="N", help="At most so many.", type=click.IntRange(min=1), default=50
)
@click.option("--cursor", metavar="CURSOR", help="Continue a list: the next page.")
@store_option
@namespace_option
@json_option
def list_runs(
    status: RunStatus | None,
    flow: str | None,
    limit: int,
    cursor: str | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """List runs, newest first."""
    from perdure import clock
    from perdure.cli.views import runs as view
    from perdure.cli.views.console import make_console, print_table, tell_more

    with connected(store, namespace) as client:
        found = client.runs.list(status=status, flow=flow, limit=limit, cursor=cursor)
        if as_json:
            click.echo(json_text([view.run_fields(run) for run in found]))
        elif not found:
            click.echo("no runs")
        else:
            is_across = namespace == ALL_NAMESPACES
            columns = view.run_columns(found, clock.system_clock(), is_across=is_across)
            print_table(make_console(), columns)
            tell_more(found.next)


@command
@argument("id", metavar="ID", help="The run's id.")
@click.option("--graph", help="A picture of it instead, with the states of nodes.", is_flag=True)
@click.option(
    "--format",
    metavar="FORMAT",
    help=f"{', '.join(GraphFormat)}.",
    type=Choice(GraphFormat),
)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="Write there; its ending tells the format too.",
    type=PATH,
)
@store_option
@namespace_option
@json_option
def show_run(
    id: str,
    graph: bool,
    format: GraphFormat | None,
    output: Path | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Show a run with its nodes and their outputs."""
    from perdure import clock
    from perdure.cli.views import runs as view
    from perdure.cli.views.console import make_console

    with connected(store, namespace, codec=ReadingCodec()) as client:
        handle = client.runs.handle(id)
        if graph or format is not None or output is not None:
            chosen = chosen_format(format, output, GraphFormat.MERMAID, as_json=as_json)
            write_graph(handle.diagram(), chosen, output)
            return
        record, events = handle.record(), handle.events()
        run = view.RunInFull(record, events, handle.nodes(), handle.children())
        if as_json:
            click.echo(json_text(view.full_fields(run)))
        else:
            view.print_run(make_console(), run, clock.system_clock())


@command
@argument("id", metavar="ID", help="The run's id.")
@click.option("--follow", "-f", help="Go on with what happens, until the run ends.", is_flag=True)
@store_option
@namespace_option
@click.option("--json", "as_json", help="Print a JSON line for each event.", is_flag=True)
def show_events(
    id: str, follow: bool, store: str | None, namespace: str, as_json: bool
) -> ExitCode | None:
    """Show the event log of a run.

    With --follow it exits with 0 if the run completed, 1 if it failed, 4 if it was cancelled, 5 if
    it was skipped.
    """
    from perdure.cli.views.console import make_console
    from perdure.cli.views.screen import exit_code_after

    with connected(store, namespace, codec=ReadingCodec()) as client:
        handle = client.runs.handle(id)
        known = [] if follow else handle.events()
        lines = EventLines(make_console(), known)
        status = None
        for event in handle.watch() if follow else known:
            if as_json:
                click.echo(json_line(event))
            else:
                lines.print(event)
            status = event.status
    return exit_code_after(status) if follow and status is not None else None


@command
@argument("id", metavar="ID", help="The run's id.")
@store_option
@namespace_option
@click.option("--json", "as_json", help="Print the run as JSON, once it has ended.", is_flag=True)
def watch_run(id: str, store: str | None, namespace: str, as_json: bool) -> ExitCode | None:
    """Follow a run until it finishes.

    Exits with 0 if it completed, 1 if it failed, 4 if it was cancelled, 5 if it was skipped.
    """

    with connected(store, namespace, codec=ReadingCodec()) as client:
        return see_through(client.runs.handle(id), options_of(store, namespace), as_json=as_json)


@command
@argument("id", metavar="ID", help="The run's id.")
@store_option
@namespace_option
@json_option
def explain_run(id: str, store: str | None, namespace: str, as_json: bool) -> None:
    """Explain why a run is where it is."""

    with connected(store, namespace) as client:
        show_explanation(client.runs.explain(id), store, namespace, as_json=as_json)


@command
@argument("id", metavar="ID", help="The run's id.")
@click.option(
    "--format",
    metavar="FORMAT",
    help=f"{', '.join(TimelineFormat)}.",
    type=Choice(TimelineFormat),
)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="Write there; its ending tells the format too.",
    type=PATH,
)
@store_option
@namespace_option
@json_option
def show_timeline(
    id: str,
    format: TimelineFormat | None,
    output: Path | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Show when each node ran and waited.

    Time in the queue and the pause before another attempt are not told apart from work.
    """

    with connected(store, namespace) as client:
        chosen = chosen_format(format, output, TimelineFormat.TEXT, as_json=as_json)
        write_timeline(client.runs.handle(id).timeline(), chosen, output)


@command
@argument("id", metavar="ID", help="The run's id.")
@store_option
@namespace_option
@json_option
def show_lineage(id: str, store: str | None, namespace: str, as_json: bool) -> None:
    """Show which values each node used."""
    from perdure.cli.views import runs as view
    from perdure.cli.views.console import make_console

    with connected(store, namespace, codec=ReadingCodec()) as client:
        lineage = client.runs.lineage(id)
        if as_json:
            click.echo(json_text(lineage))
        else:
            view.print_lineage(make_console(), lineage)


GRACE = "5s"
"""How long bodies may go on when the worker of this command stops; then they are given back."""


@command
@argument(
    "target", metavar="FLOW", help="MODULE[:FLOW] of a flow that was built, or a file: ship.yaml."
)
@argument("input", metavar="INPUT", help="As JSON.", required=False)
@click.option("--id", metavar="ID", help="The run's id; else one is made up.")
@click.option(
    "--on-conflict",
    metavar="POLICY",
    help=f"If the id is taken: {', '.join(OnConflict)}.",
    type=Choice(OnConflict),
    default=OnConflict.FAIL,
)
@click.option(
    "--app", metavar="MODULE[:NAME]", help="Of a file: where the tasks, kinds and flows are."
)
@click.option(
    "--worker/--no-worker",
    "worker",
    help="Work on it here, beside other workers, or leave it to them.",
    default=True,
)
@click.option("--allow-scripts", help="Execute commands of script nodes.", is_flag=True)
@store_option
@namespace_option
@json_option
def run(
    target: str,
    input: str | None,
    id: str | None,
    on_conflict: OnConflict,
    app: str | None,
    worker: bool,
    allow_scripts: bool,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> ExitCode | None:
    """Start a run and follow it until it finishes.

    Exits with 0 if it completed, 1 if it failed, 4 if it was cancelled, 5 if it was skipped.
    Ctrl-C leaves it: the run goes on where there is a worker, and can be watched again.
    """
    from perdure.cli.target import flow_at

    url = store or LOCAL_STORE
    flow = flow_at(target, app)
    value = parsed_json(input, "INPUT")
    with connected(url, namespace, is_new=True) as client:
        # Whoever else is there: the record cannot tell whether another takes all of its jobs.
        hand = _hand(flow, url, namespace, allow_scripts) if worker else None
        begun = client.submit(flow, value, id=id, on_conflict=on_conflict.value)
        with _at_work(hand):
            return see_through(begun, options_of(url, namespace), as_json=as_json)


def _hand(flow: BuiltFlow, url: str, namespace: str, allow_scripts: bool) -> Worker:
    """A worker for this flow alone; made first, so that a run that none can work on is not."""
    from perdure.worker.worker import Worker

    return Worker(url, flows=[flow], namespace=namespace, grace=GRACE, allow_scripts=allow_scripts)


@contextmanager
def _at_work(worker: Worker | None) -> Iterator[None]:
    """Let a worker work meanwhile. What it does not finish in its grace period it gives back."""
    if worker is None:
        yield
        return
    hand = worker.start()
    try:
        yield
    finally:
        try:
            hand.shutdown()
            if hand.stats().running:
                click.echo(
                    f"What runs here has {GRACE} to finish; Ctrl-C gives it back at once.", err=True
                )
            hand.join()
        except KeyboardInterrupt:  # at any time from here on
            hand.shutdown(grace=0)
            hand.join()


@command
@argument("id", metavar="ID", help="Of a run or of a job.")
@store_option
@namespace_option
@json_option
def explain(id: str, store: str | None, namespace: str, as_json: bool) -> None:
    """Explain why a run or a job is where it is."""
    with connected(store, namespace) as client:
        try:
            explanation = client.runs.explain(id)
        except RunNotFound:
            try:
                explanation = client.jobs.explain(id)
            except JobNotFound:
                raise RunNotFound(run_id=id, what="run or job") from None
        show_explanation(explanation, store, namespace, as_json=as_json)


def show_explanation(
    explanation: Explanation, store: str | None, namespace: str, *, as_json: bool
) -> None:
    from perdure import clock
    from perdure.cli.views import diagnostics as view
    from perdure.cli.views.console import make_console

    options = options_of(store, namespace)
    if as_json:
        fields = view.explanation_fields(explanation, options)
        click.echo(json_text(fields))
    else:
        now = clock.system_clock()
        view.print_explanation(make_console(), explanation, options, now)


RUNS_TOLD_MAX = 100
"""How many runs are named to people."""


@command
@argument("run", metavar="RUN", help="The run's id.")
@argument("node", metavar="NODE", help="The node; a part of it as poll#2 or pack[7].")
@click.option(
    "--status",
    metavar="STATUS",
    help=f"One of {', '.join(ReportStatus)}.",
    type=Choice(ReportStatus),
    default=ReportStatus.PROGRESS,
)
@click.option("--result", metavar="JSON", help="What came out, if completed.")
@click.option("--error", metavar="TEXT", help="What went wrong, if failed.")
@click.option("--progress", metavar="JSON", help="How far it is; kept for another try.")
@click.option("--port", metavar="PORT", help="From which the run goes on.")
@click.option("--key", metavar="KEY", help="Yours: repeated with it, it counts once.")
@click.option("--by", metavar="NAME", help="Who says so; else your login name.")
@store_option
@namespace_option
@json_option
def report(
    run: str,
    node: str,
    status: ReportStatus,
    result: str | None,
    error: str | None,
    progress: str | None,
    port: str | None,
    key: str | None,
    by: str | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Report on external work that a node waits for."""

    with connected(store, namespace) as client:
        answer = client.runs.report(
            run,
            node,
            status=status.value,
            result=parsed_json(result, "--result"),
            error=error,
            progress=parsed_json(progress, "--progress"),
            port=port or "",
            key=key,
            by=by or login_name(),
        )
        click.echo(json_text(answer) if as_json else _received(answer))


@command
@argument("name", metavar="NAME", help="The signal's name.")
@argument("payload", metavar="PAYLOAD", help="As JSON.", required=False)
@click.option("--flow", metavar="NAME", help="Only to runs of this flow.")
@click.option("--by", metavar="NAME", help="Who says so; else your login name.")
@store_option
@namespace_option
@json_option
def broadcast(
    name: str,
    payload: str | None,
    flow: str | None,
    by: str | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Send a signal to all runs waiting for it."""

    with connected(store, namespace) as client:
        value = parsed_json(payload, "PAYLOAD")
        done = client.runs.broadcast(name, value, flow=flow, by=by or login_name())
        click.echo(json_text(done) if as_json else _reached(done))


def _received(answer: ReportReceipt) -> str:
    place = f"{answer.run}, node {answer.node}"
    match answer.outcome:
        case "accepted":
            return f"accepted: {place}; the run is {answer.status}"
        case "repeated":
            return f"was there already: {place}; the run is {answer.status}"
    first = f": {answer.first.status} came first" if answer.first else ""
    return f"ignored: {place}{first}; the run is {answer.status}"


def _reached(done: BroadcastResult) -> str:
    lines: list[str] = list(done.runs[:RUNS_TOLD_MAX])
    if done.count > RUNS_TOLD_MAX:
        lines.append(f"and {done.count - RUNS_TOLD_MAX} more: --json has them all")
    wait = "waits" if done.unmatched == 1 else "wait"
    others = f"; {done.unmatched} {wait} for another one of this name" if done.unmatched else ""
    if not done.count:
        return f"no run waits for this signal {done.name}{others}"
    runs = "1 run has" if done.count == 1 else f"{done.count} runs have"
    return "\n".join([*lines, f"{runs} the signal {done.name}{others}"])


@command
@click.option("--kind", metavar="KIND", help=f"Only {', '.join(WaitKind)}.", type=Choice(WaitKind))
@click.option("--run", metavar="ID", help="Only of this run.")
@click.option("--name", metavar="NAME", help="Only of this name, such as a signal's.")
@click.option(
    "--limit", metavar="N", help="At most so many.", type=click.IntRange(min=1), default=50
)
@store_option
@namespace_option
@json_option
def waits(
    kind: WaitKind | None,
    run: str | None,
    name: str | None,
    limit: int,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """List what runs wait for, longest first."""
    from perdure import clock
    from perdure.cli.views.console import json_text, make_console, print_table

    with connected(store, namespace, codec=ReadingCodec()) as client:
        found = client.waits.list(type=kind, run=run, name=name, limit=limit)
        if as_json:
            click.echo(json_text(found.items))
        elif not found:
            click.echo("nothing is waited for")
        else:
            is_across = namespace == ALL_NAMESPACES
            now = clock.system_clock()
            print_table(make_console(), wait_columns(found, now, is_across=is_across))
            if len(found) == limit:
                click.echo("there may be more: a higher --limit shows them", err=True)
