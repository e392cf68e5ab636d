"""``perdure approvals``: list and answer approvals, from a script or at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.command import CommandOutput, OperationCommand
from perdure.cli.output import ExitCode, ask, echo, error_line
from perdure.cli.views.approvals import (
    answer_text,
    approval_fields,
    approval_table,
    print_approval,
)
from perdure.cli.views.forms import FormAsking, given_fields, understood
from perdure.diagnostics import declare
from perdure.errors import InvalidAnswer, InvalidInput, NotDecider
from perdure.model.graph import REJECT
from perdure.model.principal import stands_for

if TYPE_CHECKING:
    from perdure.client.sync import Client
    from perdure.operations.records import ApprovalRecord

NOT_AN_OBJECT = declare(
    "cli.data_not_an_object", "--data must be an object where --field adds to it"
)
WHICH_DECISION = declare(
    "cli.which_decision", "a decision on {approval_id!r} is required: {choices:or}"
)


class AnswerOptions:
    """The answer as given on the command line; the rest is prompted for at a terminal."""

    def __init__(
        self,
        decision: str | None,
        data: Any,
        by: str | None,
        roles: tuple[str, ...],
        note: str | None,
        revision: int | None,
    ) -> None:
        self.decision = decision
        self.data = data
        self.by = by
        self.roles = roles
        self.note = note
        self.revision = revision


def _decide(
    client: Client,
    out: CommandOutput,
    *,
    id: str,
    decision: str | None,
    data: Any,
    field: tuple[str, ...],
    by: str | None,
    roles: tuple[str, ...],
    note: str | None,
    revision: int | None,
) -> ApprovalRecord:
    record = client.approvals.get(id)
    if record.fault is not None and decision is None:  # the question cannot be shown
        raise InvalidInput(record.fault)
    answer = AnswerOptions(decision, _data(record, data, field), by, roles, note, revision)
    if record.is_open and _is_to_be_asked(record, answer, out):
        return _asked(client, record, answer, out)
    return _answered(client, record, answer)


def _data(record: ApprovalRecord, whole: Any, fields: tuple[str, ...]) -> Any:
    if not fields:
        return whole
    if whole is not None and not isinstance(whole, dict):
        raise InvalidInput(NOT_AN_OBJECT.fault())
    return {**(whole or {}), **given_fields(fields, record.form)}


def _is_to_be_asked(record: ApprovalRecord, answer: AnswerOptions, out: CommandOutput) -> bool:
    """Whether to prompt: something is missing, and stdin is a terminal."""
    if out.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    has_fields = isinstance(record.form, dict) and bool(record.form.get("properties"))
    wants_fields = has_fields and answer.data is None and answer.decision != REJECT
    return answer.decision is None or wants_fields


def _answered(client: Client, record: ApprovalRecord, answer: AnswerOptions) -> ApprovalRecord:
    if answer.decision is None:
        raise InvalidInput(WHICH_DECISION.fault(approval_id=record.id, choices=record.choices))
    return client.approvals.decide(
        record.id,
        answer.decision,
        data=answer.data,
        by=answer.by,
        roles=answer.roles,
        note=answer.note,
        revision=answer.revision,
    )


def _asked(
    client: Client, record: ApprovalRecord, answer: AnswerOptions, out: CommandOutput
) -> ApprovalRecord:
    _refuse_others(record, answer)
    if answer.revision is None:
        answer.revision = record.revision  # what is shown now
    print_approval(record, out)
    out.console.print()
    try:
        if answer.decision is None:
            answer.decision = _choice(record, out)
            if answer.decision == REJECT and answer.note is None:
                answer.note = ask("Why (may be empty): ").strip() or None
        if answer.decision == REJECT:
            return _answered(client, record, answer)
        return _with_form(client, record, answer)
    except EOFError:
        echo(err=True)
        echo("nothing was decided", err=True)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


def _refuse_others(record: ApprovalRecord, answer: AnswerOptions) -> None:
    """Refuse other users before prompting, so that no input is wasted."""
    if record.deciders and not stands_for(record.deciders, answer.by, answer.roles):
        raise NotDecider(approval_id=record.id, by=answer.by, deciders=record.deciders)


def _choice(record: ApprovalRecord, out: CommandOutput) -> str:
    choices = {"enum": list(record.choices)}
    while True:
        typed = ask(f"Decision ({', '.join(record.choices)}): ").strip()
        try:
            return str(understood(typed, choices))
        except InvalidInput as error:
            echo(error_line(error, out.renderer))


def _with_form(client: Client, record: ApprovalRecord, answer: AnswerOptions) -> ApprovalRecord:
    """Prompt until the answer is valid; the previous input is the next default."""
    asking = FormAsking(record.form, record.data, ask, echo)
    if answer.data is None:
        asking.ask_for(asking.fields)
    while True:
        if asking.answers:
            answer.data = {**(answer.data or {}), **asking.answers}
        try:
            return _answered(client, record, answer)
        except InvalidAnswer as error:
            faults = asking.named_in(error.faults)
            again = [name for name in asking.fields if name in faults]
            if not again:
                raise
            asking.ask_for(again, faults)


COMMANDS: Mapping[str, OperationCommand] = {
    "approvals.list": OperationCommand(
        view=approval_table,
        fields=approval_fields,
        empty="no open approvals",
        metavars={"deciders": "--for"},
    ),
    "approvals.get": OperationCommand(view=print_approval, fields=approval_fields),
    "approvals.decide": OperationCommand(
        call=_decide,
        fields=approval_fields,
        view=lambda record, _: echo(answer_text(record)),
        metavars={"decision": "[DECISION]", "roles": "--role"},
        extra=(
            click.Option(
                ["--field"], multiple=True, metavar="NAME=VALUE", help="One field of the form"
            ),
        ),
        more="At a terminal, prompts for the decision and the fields of the form that you did not "
        "pass.",
    ),
}
