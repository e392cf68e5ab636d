"""``perdure flows``: flows in modules, in files and in a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from perdure.cli.command import (
    PATH,
    Choice,
    app_option,
    argument,
    command,
    connected,
    json_option,
    namespace_option,
    store_option,
)
from perdure.cli.output import ExitCode, write_text
from perdure.cli.views.console import json_text
from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model.job import ALL_NAMESPACES
from perdure.model.run import ENDED, RunStatus

if TYPE_CHECKING:
    from perdure.flows.yaml.sources import Library
    from perdure.flows.yaml.validate import Expectations
    from perdure.model.worker import WorkerState
    from perdure.render.diagram import Diagram


TWO_FORMATS = declare("cli.two_formats", "--json and --format {format} exclude each other")
UNKNOWN_ENDING = declare(
    "cli.unknown_ending", "the ending of {path!r} names no format", "Pass --format {formats}"
)


class GraphFormat(StrEnum):
    MERMAID = "mermaid"
    SVG = "svg"
    JSON = "json"


class TimelineFormat(StrEnum):
    TEXT = "text"
    SVG = "svg"
    JSON = "json"


AnyFormat = TypeVar("AnyFormat", GraphFormat, TimelineFormat)


_ENDINGS = {".svg": "svg", ".json": "json", ".mmd": "mermaid", ".mermaid": "mermaid"}
_ENDINGS |= {".txt": "text"}


def chosen_format(
    format: AnyFormat | None, output: Path | None, otherwise: AnyFormat, *, as_json: bool
) -> AnyFormat:
    """What was asked for; else what the file's name says."""
    known = type(otherwise)
    if as_json:
        if format not in (None, known("json")):
            raise InvalidInput(TWO_FORMATS.fault(format=str(format)))
        return known("json")
    if format is not None or output is None:
        return format or otherwise
    meant = _ENDINGS.get(output.suffix.lower())
    if meant is None or meant not in set(known):
        fault = UNKNOWN_ENDING.fault(path=str(output), formats=" or ".join(known))
        raise InvalidInput(fault)
    return known(meant)


def write_graph(picture: Diagram, format: GraphFormat, output: Path | None) -> None:
    """A picture to the file, or to stdout."""
    from perdure.render.mermaid import mermaid
    from perdure.render.svg import svg

    drawers: Mapping[GraphFormat, Callable[[Diagram], str]] = {
        GraphFormat.MERMAID: mermaid,
        GraphFormat.SVG: svg,
        GraphFormat.JSON: json_text,
    }
    write_text(drawers[format](picture), output)


@command
@argument(
    "target",
    metavar="FLOWS",
    help="MODULE[:NAME] or a file: what it has, with the flows they start; else the store.",
    required=False,
)
@app_option
@store_option
@namespace_option
@json_option
def list_flows(
    target: str | None, app: str | None, store: str | None, namespace: str, as_json: bool
) -> None:
    """List flows and versions of a module, file or store."""
    from perdure import clock
    from perdure.cli.target import APP_WITHOUT_FILE, flows_at
    from perdure.cli.views import flows as view
    from perdure.cli.views.console import make_console, print_table

    if target is not None or app is not None:
        if target is None:
            raise InvalidInput(APP_WITHOUT_FILE.fault())
        flows = flows_at(target, app)
        fields: object = [view.listed_fields(each) for each in flows]
        columns = view.module_columns(flows)
    else:
        with connected(store, namespace) as client:
            fields = counts = client.flows.list().items
        is_across = namespace == ALL_NAMESPACES
        columns = view.store_columns(counts, clock.system_clock(), is_across=is_across)
    if as_json:
        click.echo(json_text(fields))
    elif not fields:
        click.echo("no flows")
    else:
        print_table(make_console(), columns)


@command
@argument(
    "target", metavar="FLOW", help="MODULE[:FLOW] of a flow that was built, or a file: ship.yaml."
)
@app_option
@json_option
def show_flow(target: str, app: str | None, as_json: bool) -> None:
    """Show a flow with its nodes and its diagram."""
    from perdure.cli.target import flow_at
    from perdure.cli.views import flows as view
    from perdure.cli.views.console import make_console

    flow = flow_at(target, app)
    if as_json:
        click.echo(json_text(view.flow_fields(flow)))
    else:
        view.print_flow(make_console(), flow)


@command
@argument(
    "target", metavar="FLOW", help="MODULE[:FLOW] of a flow that was built, or a file: ship.yaml."
)
@app_option
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
@json_option
def draw_flow(
    target: str, app: str | None, format: GraphFormat | None, output: Path | None, as_json: bool
) -> None:
    """Draw a flow as Mermaid, SVG or JSON."""
    from perdure.cli.target import flow_at
    from perdure.render.diagram import diagram_of

    chosen = chosen_format(format, output, GraphFormat.MERMAID, as_json=as_json)
    write_graph(diagram_of(flow_at(target, app).graph), chosen, output)


@command
@argument(
    "target",
    metavar="MODULE[:NAME]",
    help="A Worker, a flow or a list of flows; a module alone means all in it.",
)
@store_option
@namespace_option
@json_option
def check(target: str, store: str | None, namespace: str, as_json: bool) -> ExitCode | None:
    """List live runs that your code cannot continue.

    They are of versions that it does not have. Says which version is the nearest, and whether
    the runs could be migrated to it. Exits with 0 if there is no such run, else with 1.
    """
    from perdure.cli.target import load_flows
    from perdure.cli.views import flows as view
    from perdure.cli.views.console import make_console

    with connected(store, namespace) as client:
        flows = load_flows(target)
        found = client.flows.unserved(flows)
        if as_json:
            click.echo(json_text(view.check_fields(found)))
        else:
            live = sum(
                client.runs.count(status=status) for status in RunStatus if status not in ENDED
            )
            view.print_check(make_console(), found, live, is_across=namespace == ALL_NAMESPACES)
    return ExitCode.REFUSED if found else ExitCode.OK


WHICH_FILES = declare(
    "cli.which_files", "no file was given", "Name at least one, such as ship.yaml"
)


@command
@argument("files", metavar="FILE...", help="Flows as YAML or JSON.", type=PATH, nargs=-1)
@click.option(
    "--app",
    metavar="MODULE[:NAME]",
    help="Where the tasks, kinds and flows are that they name; else they are not checked.",
)
@click.option("--store", metavar="URL", help="Check that workers of this store have the tasks.")
@namespace_option
@click.option("--strict", help="Take missing secrets for errors.", is_flag=True)
@click.option("--schema", help="Print the JSON Schema of the format, for editors.", is_flag=True)
@json_option
def validate(
    files: tuple[Path, ...],
    app: str | None,
    store: str | None,
    namespace: str,
    strict: bool,
    schema: bool,
    as_json: bool,
) -> ExitCode | None:
    """Validate flow files and list every fault.

    Exits with 0 if there is no error, else with 1.
    """
    if schema:
        from perdure.flows.yaml.schema import published_schema

        click.echo(published_schema(), nl=False)
        return None
    workers = _workers(store, namespace)
    expected = _expected(workers, is_strict=strict)
    return _validate(files, _library_of(app), expected, as_json=as_json)


def _validate(
    files: tuple[Path, ...],
    library: Callable[[], Library],
    expected: Expectations,
    *,
    as_json: bool,
) -> ExitCode:
    from perdure.cli.views import flows as view
    from perdure.cli.views.console import make_console
    from perdure.errors import InvalidInput
    from perdure.flows.yaml.validate import validate_file

    if not files:
        raise InvalidInput(WHICH_FILES.fault())
    reports = [validate_file(file, library, expected) for file in files]
    if as_json:
        click.echo(json_text([view.report_fields(each) for each in reports]))
    else:
        view.print_reports(make_console(), reports)
    return ExitCode.REFUSED if any(report.faults for report in reports) else ExitCode.OK


def _library_of(app: str | None) -> Callable[[], Library]:
    """What makes the library of a file: without code to look at, each makes up its own."""
    from perdure.flows.yaml.sources import Library

    if app is None:
        return partial(Library, is_open=True)
    from perdure.cli.target import library_at

    library = library_at(app)
    return lambda: library


def _expected(workers: Sequence[WorkerState] | None, *, is_strict: bool) -> Expectations:
    from perdure.flows.yaml.validate import Expectations

    if workers is None:
        return Expectations(environment=os.environ, is_strict=is_strict)
    return Expectations(
        environment=os.environ,
        registered={task for worker in workers for task in worker.info.tasks},
        versions={text for worker in workers for text in worker.info.flows},
        is_strict=is_strict,
    )


def _workers(store: str | None, namespace: str) -> Sequence[WorkerState] | None:
    if store is None:
        return None
    with connected(store, namespace) as client:
        return client.workers.list()
