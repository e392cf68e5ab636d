"""``perdure decide``: answer an approval, from a script or at a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.exits import ExitCode, error_line
from perdure.cli.form_asking import FormAsking, given_fields, understood
from perdure.cli.options import (
    JsonOption,
    NamespaceOption,
    StoreOption,
    connected,
    login_name,
    parsed_json,
)
from perdure.diagnostics import declare
from perdure.errors import InvalidAnswer, InvalidInput, NotADecider
from perdure.model.graph import REJECT
from perdure.model.job import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from perdure.client.approval_records import ApprovalRecord
    from perdure.client.blocking import Client

NOT_AN_OBJECT = declare(
    "cli.data_not_an_object", "--data must be an object where --field adds to it"
)
WHICH_DECISION = declare(
    "cli.which_decision",
    "no decision was given",
    "Name one: perdure decide {approval_id} {choices}",
)


class Said:
    """What the command line says of an answer; the rest is asked for, if somebody is there."""

    def __init__(
        self, decision: str | None, data: Any, by: str | None, roles: list[str], note: str | None
    ) -> None:
        self.decision = decision
        self.data = data
        self.by = by
        self.roles = roles
        self.note = note


def decide(
    id: Annotated[
        str, typer.Argument(metavar="ID", help="The approval: RUN:NODE.", show_default=False)
    ],
    decision: Annotated[
        str | None,
        typer.Argument(
            metavar="DECISION", help="approve, reject, or what it offers.", show_default=False
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="JSON", help="What its form asks for.")
    ] = None,
    field: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="One field of the form.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who decides; else your login name.")
    ] = None,
    role: Annotated[
        list[str] | None, typer.Option(metavar="ROLE", help="What you may decide as.")
    ] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; kept with it.")] = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Answer an approval.

    At a terminal, what is not given is asked for: the decision, and the fields of the form.
    """
    from perdure.cli import approval_view, present

    with connected(store, namespace) as client:
        record = client.approval(id)
        said = Said(
            decision, _data(record, data, field or []), by or login_name(), role or [], note
        )
        if record.is_open and _is_to_be_asked(record, said, as_json=as_json):
            record = _asked(client, record, said)
        else:
            record = _answered(client, record, said)
        typer.echo(
            present.as_json(approval_view.approval_fields(record))
            if as_json
            else approval_view.told(record)
        )


def _data(record: ApprovalRecord, data: str | None, fields: list[str]) -> Any:
    whole = parsed_json(data, "--data")
    if not fields:
        return whole
    if whole is not None and not isinstance(whole, dict):
        raise InvalidInput(NOT_AN_OBJECT.fault())
    return {**(whole or {}), **given_fields(fields, record.form)}


def _is_to_be_asked(record: ApprovalRecord, said: Said, *, as_json: bool) -> bool:
    """Whether something is missing, and somebody is there to say it."""
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    has_fields = isinstance(record.form, dict) and bool(record.form.get("properties"))
    wants_fields = has_fields and said.data is None and said.decision != REJECT
    return said.decision is None or wants_fields


def _answered(client: Client, record: ApprovalRecord, said: Said) -> ApprovalRecord:
    if said.decision is None:
        choices = "|".join(record.choices)
        raise InvalidInput(WHICH_DECISION.fault(approval_id=record.id, choices=choices))
    return client.decide(
        record.id, said.decision, data=said.data, by=said.by, roles=said.roles, note=said.note
    )


def _asked(client: Client, record: ApprovalRecord, said: Said) -> ApprovalRecord:
    from perdure import clock
    from perdure.cli.approval_view import print_approval
    from perdure.cli.terminal import make_console

    _refuse_others(record, said)
    console = make_console()
    print_approval(console, record, clock.system_clock())
    console.print()
    try:
        if said.decision is None:
            said.decision = _choice(record)
            if said.decision == REJECT and said.note is None:
                said.note = input("Why (may be empty): ").strip() or None
        if said.decision == REJECT:
            return _answered(client, record, said)
        return _with_form(client, record, said)
    except EOFError:
        typer.echo("\nnothing was decided", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _refuse_others(record: ApprovalRecord, said: Said) -> None:
    """Before anything is asked for, which would be typed in vain."""
    if record.deciders and {said.by, *said.roles}.isdisjoint(record.deciders):
        raise NotADecider(approval_id=record.id, by=said.by, deciders=record.deciders)


def _choice(record: ApprovalRecord) -> str:
    choices = {"enum": list(record.choices)}
    while True:
        typed = input(f"Decision ({', '.join(record.choices)}): ").strip()
        try:
            return str(understood(typed, choices))
        except InvalidInput as error:
            typer.echo(error_line(error))


def _with_form(client: Client, record: ApprovalRecord, said: Said) -> ApprovalRecord:
    """Ask until the answer fits; what was typed before is the default of the next time."""
    asking = FormAsking(record.form, record.data, input, typer.echo)
    if said.data is None:
        asking.ask_for(asking.fields)
    while True:
        if asking.answers:
            said.data = {**(said.data or {}), **asking.answers}
        try:
            return _answered(client, record, said)
        except InvalidAnswer as error:
            faults = asking.named_in(error.faults)
            again = [name for name in asking.fields if name in faults]
            if not again:
                raise
            asking.ask_for(again, faults)
