"""Acting on several jobs or runs with one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from perdure.cli.exits import ExitCode, exit_code_of, tell_error
from perdure.diagnostics import declare
from perdure.errors import InvalidInput, PerdureError

if TYPE_CHECKING:
    from perdure.client.records import AbortOutcome
    from perdure.client.run_records import RunMoved
    from perdure.model.job import StatusChange

    AnyMove = StatusChange | AbortOutcome | RunMoved

WHICH_IDS = declare("cli.which_ids", "no id was given", "Name at least one: perdure {command} ID")


def given(ids: list[str] | None, what: str) -> list[str]:
    """The ids; ``what`` is the command, such as ``jobs retry``."""
    if not ids:
        raise InvalidInput(WHICH_IDS.fault(command=what))
    return ids


def act_on_each(
    act: Callable[[str], AnyMove], ids: Sequence[str], options: str, *, as_json: bool
) -> None:
    """Act on each, whether or not others are refused; ``options`` name the store in advice."""
    from perdure.cli import present

    worst = ExitCode.OK
    done = []
    for id in ids:
        try:
            moved = act(id)
        except PerdureError as error:
            tell_error(error, options)
            worst = max(worst, exit_code_of(error))
            continue
        done.append(fields_of(moved))
        if not as_json:
            typer.echo(told(moved))
    if as_json:
        typer.echo(present.as_json(done))
    if worst:
        raise typer.Exit(worst)


def fields_of(moved: AnyMove) -> dict[str, str]:
    return {"id": moved.id, "before": moved.before, "after": moved.after}


def told(moved: AnyMove) -> str:
    if moved.before is moved.after:
        return f"{moved.id} was {moved.before} already"
    return f"{moved.id} is {moved.after}, was {moved.before}"
