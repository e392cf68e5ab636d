"""Where a flow waits for people to decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.client.flow_assembly import Assembly, Cursor
from perdure.client.flow_inputs import plain
from perdure.client.flow_options import ApprovalOptions
from perdure.client.flow_settings import (
    check_options,
    checked_port,
    data,
    names,
    schema,
    text,
    told_inputs,
)
from perdure.client.flow_steps import Named, Step, id_or, one_entry
from perdure.model import check
from perdure.model.graph import APPROVE, FAIL, REJECT, ApprovalNode, Call, DefaultAnswer, Escalation

_POLICIES = {"any": 1, "all": 0}
_ANSWER_FIELDS = ("decision", "data")


@dataclass(frozen=True, slots=True)
class ApproveStep(Step):
    title: str
    named: Named
    options: ApprovalOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_or(assembly, self.named.name, "approve", place)
        label = assembly.label(id)
        options: Mapping[str, Any] = self.options
        check_options(assembly, label, options, ApprovalOptions)
        inputs = told_inputs(assembly, id, options)
        deciders = names(assembly, label, "deciders", options.get("deciders", ()))
        answers, show = options.get("answers"), options.get("show")
        node = ApprovalNode(
            id=id,
            title=text(assembly, label, "title", self.title),
            message=text(assembly, label, "message", options.get("message", "")),
            form=schema(assembly, label, "form", options.get("form")),
            shows=None if show is None else names(assembly, label, "show", show),
            data=data(assembly, label, "data", options.get("data")),
            deciders=deciders,
            quorum=assembly.attempt(label, lambda: _quorum(options.get("policy", "any")), 1),
            answers=(APPROVE, REJECT)
            if answers is None
            else names(assembly, label, "answers", answers),
            on_reject=checked_port(assembly, label, "on_reject", options.get("on_reject", FAIL)),
            notify=self._notify(assembly, id, label),
            on_missing=inputs.on_missing,
            **_times(assembly, label, options),
        )
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after, inputs))

    def _notify(self, assembly: Assembly, id: str, label: str) -> Call | None:
        notify = self.options.get("notify")
        if notify is None:
            return None
        return assembly.call(notify, f"{id}.notify", {}, f"{label}, notify=")


def _times(assembly: Assembly, label: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an approval that say what happens when."""
    deadline, on_timeout = options.get("deadline"), options.get("on_timeout", FAIL)
    timeout_ms = None
    if deadline is not None:
        timeout_ms = assembly.attempt(label, lambda: check.milliseconds(deadline, "deadline"), None)
    elif on_timeout != FAIL:
        assembly.fault(label, f"on_timeout={on_timeout!r} needs a deadline=...")
    default = None
    if isinstance(on_timeout, Mapping):
        default = assembly.attempt(label, lambda: _default_answer(on_timeout), None)
        on_timeout = FAIL
    reminders: tuple[int, ...] = ()
    reminders = assembly.attempt(label, lambda: _reminders(options.get("reminders")), reminders)
    escalations: tuple[Escalation, ...] = ()
    escalations = assembly.attempt(
        label, lambda: _escalations(options.get("escalate")), escalations
    )
    return {
        "timeout_ms": timeout_ms,
        "on_timeout": checked_port(assembly, label, "on_timeout", on_timeout),
        "default_answer": default,
        "reminders_ms": reminders,
        "escalations": escalations,
    }


def _quorum(policy: Any) -> int:
    """How many must agree; 0: all."""
    if isinstance(policy, Mapping) and list(policy) == ["at_least"]:
        policy = policy["at_least"]
    if isinstance(policy, str) and policy in _POLICIES:
        return _POLICIES[policy]
    if isinstance(policy, bool) or not isinstance(policy, int) or policy < 1:
        expected = '"any", "all" or how many must agree: {"at_least": 2}'
        raise check.wrong_type(policy, "policy", expected)
    return policy


def _default_answer(told: Mapping[str, Any]) -> DefaultAnswer:
    for field in told:
        check.known(str(field), "field", _ANSWER_FIELDS, "on_timeout")
    return DefaultAnswer(
        decision=check.name(told.get("decision"), "on_timeout.decision"),
        data=plain(told.get("data"), "data of on_timeout"),
    )


def _reminders(told: Any) -> tuple[int, ...]:
    if told is None:
        return ()
    listed = check.listed(told, "reminders", "durations")
    return tuple(sorted(check.milliseconds(each, "reminders") for each in listed))


def _escalations(told: Any) -> tuple[Escalation, ...]:
    if told is None:
        return ()
    pairs = (
        list(told.items()) if isinstance(told, Mapping) else check.listed(told, "escalate", "pairs")
    )
    found: list[Escalation] = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            expected = 'pairs of when and to whom: {"1d": ["cfo"]}'
            raise check.wrong_type(pair, "escalate", expected)
        after, deciders = pair
        listed = check.listed(deciders, "escalate", "names or roles")
        found.append(
            Escalation(
                after_ms=check.milliseconds(after, "escalate"),
                deciders=tuple(check.name(each, "escalate") for each in listed),
            )
        )
    return tuple(sorted(found, key=lambda each: each.after_ms))
