"""``perdure inbox`` and ``perdure decide``: open approvals and their answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.command import (
    argument,
    command,
    connected,
    json_option,
    login_name,
    namespace_option,
    parsed_json,
    store_option,
)
from perdure.cli.output import ExitCode, error_line
from perdure.cli.renderer import CliRenderer
from perdure.cli.views.console import json_text
from perdure.cli.views.forms import FormAsking, given_fields, understood
from perdure.diagnostics import declare
from perdure.errors import InvalidAnswer, InvalidInput, NotADecider
from perdure.model.graph import REJECT
from perdure.model.job import ALL_NAMESPACES

if TYPE_CHECKING:
    from perdure.client.sync import Client
    from perdure.operations.records import ApprovalRecord


@command
@argument("id", metavar="ID", help="Show this one, open or decided.", required=False)
@click.option(
    "--for", "for_", metavar="NAME", help="Only what this name or role may decide.", multiple=True
)
@click.option("--flow", metavar="NAME", help="Only of this flow.")
@click.option(
    "--limit", metavar="N", help="At most so many.", type=click.IntRange(min=1), default=50
)
@click.option("--cursor", metavar="CURSOR", help="Continue a list: the next page.")
@store_option
@namespace_option
@json_option
def inbox(
    id: str | None,
    for_: tuple[str, ...],
    flow: str | None,
    limit: int,
    cursor: str | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """List open approvals, oldest first, or show one."""
    from perdure import clock
    from perdure.cli.views import approvals as view
    from perdure.cli.views.console import make_console, print_table, tell_more

    with connected(store, namespace) as client:
        now = clock.system_clock()
        if id is not None:
            record = client.approvals.get(id)
            if as_json:
                click.echo(json_text(view.approval_fields(record)))
            else:
                view.print_approval(make_console(), record, now)
            return
        records = client.approvals.list(for_ or None, flow=flow, limit=limit, cursor=cursor)
        if as_json:
            fields = [view.approval_fields(record) for record in records]
            click.echo(json_text(fields))
        elif not records:
            click.echo("nothing to decide")
        else:
            is_across = namespace == ALL_NAMESPACES
            columns = view.approval_columns(records, now, is_across=is_across)
            print_table(make_console(), columns)
            tell_more(records.next)


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


@command
@argument("id", metavar="ID", help="The approval: RUN:NODE.")
@argument(
    "decision", metavar="DECISION", help="approve, reject, or what it offers.", required=False
)
@click.option("--data", metavar="JSON", help="What its form asks for.")
@click.option("--field", metavar="NAME=VALUE", help="One field of the form.", multiple=True)
@click.option("--by", metavar="NAME", help="Who decides; else your login name.")
@click.option("--role", metavar="ROLE", help="What you may decide as.", multiple=True)
@click.option("--note", metavar="TEXT", help="Why; kept with it.")
@store_option
@namespace_option
@json_option
def decide(
    id: str,
    decision: str | None,
    data: str | None,
    field: tuple[str, ...],
    by: str | None,
    role: tuple[str, ...],
    note: str | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Answer an approval.

    At a terminal, what is not given is asked for: the decision, and the fields of the form.
    """
    from perdure.cli.views import approvals as view

    with connected(store, namespace) as client:
        record = client.approvals.get(id)
        said = Said(decision, _data(record, data, field), by or login_name(), list(role), note)
        if record.is_open and _is_to_be_asked(record, said, as_json=as_json):
            record = _asked(client, record, said)
        else:
            record = _answered(client, record, said)
        click.echo(json_text(view.approval_fields(record)) if as_json else view.answer_text(record))


def _data(record: ApprovalRecord, data: str | None, fields: tuple[str, ...]) -> Any:
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
    return client.approvals.decide(
        record.id, said.decision, data=said.data, by=said.by, roles=said.roles, note=said.note
    )


def _asked(client: Client, record: ApprovalRecord, said: Said) -> ApprovalRecord:
    from perdure import clock
    from perdure.cli.views.approvals import print_approval
    from perdure.cli.views.console import make_console

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
        click.echo("\nnothing was decided", err=True)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


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
            click.echo(error_line(error, CliRenderer()))


def _with_form(client: Client, record: ApprovalRecord, said: Said) -> ApprovalRecord:
    """Ask until the answer fits; what was typed before is the default of the next time."""
    asking = FormAsking(record.form, record.data, input, click.echo)
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
