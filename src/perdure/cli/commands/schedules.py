"""``perdure schedules``: save, inspect and control schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perdure.cli.command import APP, CommandOutput, OperationCommand
from perdure.cli.output import echo
from perdure.cli.views.console import moment
from perdure.cli.views.schedules import print_schedule, schedule_table

if TYPE_CHECKING:
    from perdure.client.sync import Client
    from perdure.operations.records import ScheduleRecord, ScheduleStarted


def _target(target: str, given: dict[str, Any]) -> Any:
    from perdure.cli.target import load_target

    return load_target(target, given.pop("app"))


def _print_saved(record: ScheduleRecord, out: CommandOutput) -> None:
    echo(f"{record.name} is saved; next: {_next(record, out)}")


def _print_paused(record: ScheduleRecord, out: CommandOutput) -> None:
    by = f" by {record.paused_by}" if record.paused_by else ""
    echo(f"{record.name} is paused{by}")


def _print_resumed(record: ScheduleRecord, out: CommandOutput) -> None:
    echo(f"{record.name} is resumed; next: {_next(record, out)}")


def _next(record: ScheduleRecord, out: CommandOutput) -> str:
    return moment(record.next_at, out.now) or "never"


def _print_started(started: ScheduleStarted, out: CommandOutput) -> None:
    what = f"job {started.job}" if started.run is None else f"run {started.run}"
    echo(f"started {what}")


def _delete(client: Client, out: CommandOutput, *, name: str) -> dict[str, str]:
    client.schedules.delete(name)
    return {"deleted": name}


COMMANDS: Mapping[str, OperationCommand] = {
    "schedules.save": OperationCommand(
        view=_print_saved,
        metavars={"target": "TARGET"},
        convert={"target": _target},
        about={"target": "MODULE:NAME of a flow or a task, or a file such as ship.yaml"},
        extra=(APP,),
        makes_store=True,
    ),
    "schedules.list": OperationCommand(view=schedule_table, empty="no schedules"),
    "schedules.get": OperationCommand(view=print_schedule),
    "schedules.pause": OperationCommand(view=_print_paused),
    "schedules.resume": OperationCommand(view=_print_resumed),
    "schedules.trigger": OperationCommand(view=_print_started),
    "schedules.delete": OperationCommand(
        call=_delete, view=lambda deleted, _: echo(f"{deleted['deleted']} is deleted")
    ),
}
