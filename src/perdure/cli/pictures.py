"""Pictures on the command line: in which format, and where to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from perdure.diagnostics import declare
from perdure.errors import InvalidInput

if TYPE_CHECKING:
    from perdure.render.diagram import Picture

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

GraphFormatOption = Annotated[
    GraphFormat | None,
    typer.Option("--format", metavar="FORMAT", help=f"{', '.join(GraphFormat)}."),
]
TimelineFormatOption = Annotated[
    TimelineFormat | None,
    typer.Option("--format", metavar="FORMAT", help=f"{', '.join(TimelineFormat)}."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write there; its ending tells the format too."
    ),
]

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


def write_graph(picture: Picture, format: GraphFormat, output: Path | None) -> None:
    """A picture to the file, or to stdout."""
    from perdure.cli.present import as_json
    from perdure.render.mermaid import mermaid
    from perdure.render.svg import svg

    drawers: Mapping[GraphFormat, Callable[[Picture], str]] = {
        GraphFormat.MERMAID: mermaid,
        GraphFormat.SVG: svg,
        GraphFormat.JSON: as_json,
    }
    write_text(drawers[format](picture), output)


def write_text(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text.rstrip("\n"))
        return
    try:
        output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    except OSError as error:
        from perdure.transfer.format import UNWRITABLE

        fault = UNWRITABLE.fault(path=str(output), reason=error.strerror or str(error))
        raise InvalidInput(fault) from error
    typer.echo(f"wrote {output}", err=True)
