"""``perdure events``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perdure.cli.command import CommandOutput, OperationCommand
from perdure.cli.output import echo
from perdure.cli.views.console import json_line
from perdure.model.text import visible

if TYPE_CHECKING:
    from perdure.client.sync import Client
    from perdure.model.client_event import ClientEvent


def _stream(client: Client, out: CommandOutput, **filter: Any) -> None:
    for event in client.events.stream(**filter):
        echo(json_line(event) if out.as_json else plain_line(event))


def plain_line(event: ClientEvent) -> str:
    subject = " ".join(each for each in (event.job or event.run, event.node) if each)
    words = [
        f"{event.at.astimezone():%H:%M:%S}",
        event.type,
        subject,
        event.task or event.flow or "",
    ]
    if event.failure is not None:
        words.append(f"{event.failure.type}: {event.failure.message}")
    return visible("  ".join(filter(None, words)))


COMMANDS: Mapping[str, OperationCommand] = {
    "events.stream": OperationCommand(
        call=_stream,
        view=lambda *_: None,
        metavars={"types": "--type", "after": "--after CURSOR"},
        more="Prints a line for each event, until Ctrl-C. With --json, prints an object whose "
        "cursor --after accepts.",
        shows_values=True,
    ),
}
