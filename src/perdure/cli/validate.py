"""``perdure validate``: all that is wrong with flows in files, before anything runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.exits import ExitCode, errors_told
from perdure.cli.options import JsonOption, NamespaceOption, connected
from perdure.diagnostics import declare
from perdure.model.job import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from perdure.flows.yaml.library import Library
    from perdure.flows.yaml.validate import Expectations
    from perdure.model.worker import WorkerState

WHICH_FILES = declare(
    "cli.which_files", "no file was given", "Name at least one, such as ship.yaml"
)


def validate(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="Flows as YAML or JSON.")
    ] = None,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE[:NAME]",
            help="Where the tasks, kinds and flows are that they name; else they are not checked.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Check that workers of this store have the tasks."),
    ] = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    strict: Annotated[
        bool, typer.Option("--strict", help="Take missing secrets for errors.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of the format, for editors.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check flows in files, and list all that is wrong, each fault with its line.

    Exits with 0 if there is no error, else with 1.
    """
    with errors_told():
        if schema:
            from perdure.flows.yaml.schema import published_schema

            typer.echo(published_schema(), nl=False)
            return
        workers = _workers(store, namespace)
        expected = _expected(workers, is_strict=strict)
        _validate(files or [], _library_of(app), expected, as_json=as_json)


def _validate(
    files: list[Path], library: Callable[[], Library], expected: Expectations, *, as_json: bool
) -> None:
    from perdure.cli import present, validate_view
    from perdure.cli.terminal import make_console
    from perdure.errors import InvalidInput
    from perdure.flows.yaml.validate import validate_file

    if not files:
        raise InvalidInput(WHICH_FILES.fault())
    reports = [validate_file(file, library, expected) for file in files]
    if as_json:
        typer.echo(present.as_json([validate_view.report_fields(each) for each in reports]))
    else:
        validate_view.print_reports(make_console(), reports)
    if any(report.errors for report in reports):
        raise typer.Exit(ExitCode.REFUSED)


def _library_of(app: str | None) -> Callable[[], Library]:
    """What makes the library of a file: without code to look at, each makes up its own."""
    from perdure.flows.yaml.library import Library

    if app is None:
        return partial(Library, is_open=True)
    from perdure.cli.loading import library_at

    library = library_at(app)
    return lambda: library


def _expected(workers: list[WorkerState] | None, *, is_strict: bool) -> Expectations:
    from perdure.flows.yaml.validate import Expectations

    if workers is None:
        return Expectations(environment=os.environ, is_strict=is_strict)
    return Expectations(
        environment=os.environ,
        registered={task for worker in workers for task in worker.info.tasks},
        versions={text for worker in workers for text in worker.info.flows},
        is_strict=is_strict,
    )


def _workers(store: str | None, namespace: str) -> list[WorkerState] | None:
    if store is None:
        return None
    with connected(store, namespace) as client:
        return client.workers()
