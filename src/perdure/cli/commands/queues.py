"""``perdure queues`` and ``perdure workers list``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perdure.cli.command import CommandOutput, OperationCommand
from perdure.cli.output import echo
from perdure.cli.views.queues import queue_table, worker_fields, worker_table

if TYPE_CHECKING:
    from perdure.client.sync import Client
    from perdure.model.worker import WorkerState
    from perdure.operations.page import Page


def _pause(client: Client, out: CommandOutput, *, name: str, by: str | None) -> dict[str, str]:
    client.queues.pause(name, by=by)
    return {"queue": name, "state": "paused"}


def _resume(client: Client, out: CommandOutput, *, name: str) -> dict[str, str]:
    client.queues.resume(name)
    return {"queue": name, "state": "open"}


def _print_state(queue: dict[str, str], out: CommandOutput) -> None:
    echo(f"queue {queue['queue']} is {queue['state']}")


def _workers(client: Client, out: CommandOutput, **given: Any) -> Page[WorkerState]:
    out.now = client.store.now()  # `last seen` is by the store's clock
    return client.workers.list(**given)


COMMANDS: Mapping[str, OperationCommand] = {
    "queues.list": OperationCommand(view=queue_table, empty="no jobs"),
    "queues.pause": OperationCommand(call=_pause, view=_print_state, spell={"name": "QUEUE"}),
    "queues.resume": OperationCommand(call=_resume, view=_print_state, spell={"name": "QUEUE"}),
    "workers.list": OperationCommand(
        call=_workers, view=worker_table, fields=worker_fields, empty="no workers"
    ),
}
