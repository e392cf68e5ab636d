"""``perdure queues`` and ``perdure workers list``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perdure.cli.command import CommandOutput, OperationCommand
from perdure.cli.output import echo
from perdure.cli.views.jobs import job_fields, job_table
from perdure.cli.views.queues import queue_table, worker_table

if TYPE_CHECKING:
    from perdure.client.sync import Client


def _pause(client: Client, out: CommandOutput, *, name: str, by: str | None) -> dict[str, str]:
    client.queues.pause(name, by=by)
    return {"queue": name, "state": "paused"}


def _resume(client: Client, out: CommandOutput, *, name: str) -> dict[str, str]:
    client.queues.resume(name)
    return {"queue": name, "state": "open"}


def _print_state(queue: dict[str, str], out: CommandOutput) -> None:
    echo(f"queue {queue['queue']} is {queue['state']}")


COMMANDS: Mapping[str, OperationCommand] = {
    "queues.list": OperationCommand(view=queue_table),
    "queues.peek": OperationCommand(
        view=job_table, empty="no waiting jobs", metavars={"name": "QUEUE"}, fields=job_fields
    ),
    "queues.pause": OperationCommand(call=_pause, view=_print_state, metavars={"name": "QUEUE"}),
    "queues.resume": OperationCommand(call=_resume, view=_print_state, metavars={"name": "QUEUE"}),
    "workers.list": OperationCommand(view=worker_table, empty="no workers"),
}
