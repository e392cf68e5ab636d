"""``perdure flows``: flows in modules, in files and in a store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.command import (
    APP,
    JSON,
    NAMESPACE,
    PATH,
    Argument,
    CommandOutput,
    OperationCommand,
    command,
    connected,
    output_for,
)
from perdure.cli.commands.runs import DIAGRAM_FORMATS, FLOW_HELP, format_options, write_diagram
from perdure.cli.output import ExitCode, echo_lines
from perdure.cli.views.console import json_text, print_table
from perdure.cli.views.flows import (
    flow_fields,
    listed_fields,
    module_columns,
    print_flow,
    print_reports,
    print_unserved,
    report_fields,
    store_columns,
    unserved_fields,
)
from perdure.errors import InvalidInput
from perdure.model.job import DEFAULT_NAMESPACE
from perdure.model.run import ENDED, RunStatus

if TYPE_CHECKING:
    from perdure.client.sync import Client
    from perdure.flows.built import BuiltFlow
    from perdure.model.facts import FlowRuns
    from perdure.operations.page import Page
    from perdure.operations.records import UnservedVersion

FLOW = Argument(["flow"], metavar="FLOW", about=FLOW_HELP)


def _list_target(out: CommandOutput, given: dict[str, Any]) -> ExitCode | None:
    """List the flows of a module or a file; without either, the store's flows are listed."""
    from perdure.cli.target import APP_WITHOUT_FILE, flows_at

    target, app = given.pop("target"), given.pop("app")
    if target is None:
        if app is not None:
            raise InvalidInput(APP_WITHOUT_FILE.fault())
        return None
    flows = flows_at(target, app)
    if out.as_json:
        echo_lines(json_text([listed_fields(each) for each in flows]))
    else:
        print_table(out.console, module_columns(flows))
    return ExitCode.OK


def _print_flows(flows: Page[FlowRuns], out: CommandOutput) -> None:
    print_table(out.console, store_columns(flows, out.now, is_across=out.is_across))


def _flows(target: str, given: dict[str, Any]) -> tuple[BuiltFlow, ...]:
    from perdure.cli.target import load_flows

    return load_flows(target)


def _unserved(
    client: Client, out: CommandOutput, *, flows: Sequence[BuiltFlow]
) -> tuple[Sequence[UnservedVersion], int]:
    found = client.flows.unserved(flows)
    unfinished = [each for each in RunStatus if each not in ENDED]
    return found, sum(client.runs.count(status=each) for each in unfinished)


@command(FLOW, APP, JSON)
def show(flow: str, app: str | None, as_json: bool) -> None:
    """Show a flow with its nodes and its diagram."""
    from perdure.cli.target import flow_at

    built = flow_at(flow, app)
    if as_json:
        echo_lines(json_text(flow_fields(built)))
    else:
        print_flow(output_for(None, DEFAULT_NAMESPACE, as_json=False).console, built)


@command(FLOW, APP, *format_options(DIAGRAM_FORMATS), JSON)
def graph(
    flow: str, app: str | None, format: str | None, output: Path | None, as_json: bool
) -> ExitCode:
    """Draw a flow as Mermaid, SVG or JSON."""
    from perdure.cli.target import flow_at
    from perdure.render.diagram import diagram_of

    return write_diagram(diagram_of(flow_at(flow, app).graph), format, output, as_json=as_json)


@command(
    Argument(["files"], metavar="FILE...", about="Flows as YAML or JSON", type=PATH, nargs=-1),
    click.Option(
        ["--app"],
        metavar="MODULE[:NAME]",
        help="Module with their tasks; without it, tasks are not checked",
    ),
    click.Option(
        ["--store"], metavar="URL", help="Check that workers of this store have the tasks"
    ),
    NAMESPACE,
    click.Option(["--strict"], is_flag=True, help="Missing secrets are errors"),
    click.Option(["--schema"], is_flag=True, help="Print the JSON Schema of the format"),
    JSON,
)
def validate(
    files: tuple[Path, ...],
    app: str | None,
    store: str | None,
    namespace: str,
    strict: bool,
    schema: bool,
    as_json: bool,
) -> ExitCode:
    """Validate flow files and list every fault.

    Shows the line of each fault. The exit code is 0 if there is no error, otherwise 1.
    """
    from perdure.cli.target import library_at
    from perdure.flows.yaml.library import Library
    from perdure.flows.yaml.schema import published_schema
    from perdure.flows.yaml.validate import Expectations, validate_file

    if schema:
        echo_lines(published_schema())
        return ExitCode.OK
    if not files:
        raise click.MissingParameter(param=validate.params[0], ctx=click.get_current_context())
    expected = Expectations(environment=os.environ, is_strict=strict)
    if store is not None:
        with connected(store, namespace) as client:
            page = client.workers.list()
            workers = list(page)
            while page.next:
                page = client.workers.list(cursor=page.next)
                workers += page
            live = [each.info for each in workers if each.status == "live"]
        expected = Expectations(
            environment=os.environ,
            registered={task for worker in live for task in worker.tasks},
            versions={text for worker in live for text in worker.flows},
            is_strict=strict,
        )
    # Without code, each file is its own library.
    own = None if app is None else library_at(app)
    library = partial(Library, is_open=True) if own is None else lambda: own
    reports = [validate_file(file, library, expected) for file in files]
    if as_json:
        echo_lines(json_text([report_fields(each) for each in reports]))
    else:
        print_reports(output_for(store, namespace, as_json=False).console, reports)
    return ExitCode.REFUSED if any(report.faults for report in reports) else ExitCode.OK


COMMANDS: Mapping[str, OperationCommand | click.Command] = {
    "flows.list": OperationCommand(
        local=_list_target,
        view=_print_flows,
        empty="no flows",
        extra=(
            Argument(
                ["target"],
                metavar="[FLOWS]",
                about="MODULE[:NAME] or a file; default: the flows in the store",
                required=False,
            ),
            APP,
        ),
    ),
    "flows.unserved": OperationCommand(
        call=_unserved,
        view=print_unserved,
        fields=unserved_fields,
        exit_code=lambda found: ExitCode.REFUSED if found[0] else ExitCode.OK,
        metavars={"flows": "MODULE[:NAME]"},
        convert={"flows": _flows},
        about={"flows": "A Worker, a flow or a list of flows; default: all in the module"},
        more="Shows the nearest version in your code, and what prevents a migration to it. The "
        "exit code is 0 if there is no such run, otherwise 1.",
    ),
    "flows.show": show,
    "flows.graph": graph,
    "flows.validate": validate,
}
