"""Approvals: what deciders see, and who decided. The rules are implemented a second time, as
simply as possible.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from perdure import AsyncClient, BuiltFlow, Flow, PerdureError
from perdure.model.wait import MESSAGE_MAX, TITLE_MAX
from perdure.operations.records import ApprovalRecord
from proof.strategies import any_templates, hostile_texts, json_values, odd_texts, odd_values

_VALUE = "{{ value }}"
TITLES = st.tuples(
    st.just(_VALUE) | hostile_texts() | any_templates(),
    st.sampled_from([_VALUE, _VALUE * 30]) | hostile_texts() | any_templates(),
    hostile_texts() | odd_texts() | json_values() | odd_values(),
)
"""Title and message as templates, and the input."""


async def ask(client: AsyncClient, title: str, message: str, value: Any) -> ApprovalRecord | None:
    """Open an approval and approve it; returns it, unless it was refused or its node failed."""
    try:
        flow = Flow("asked").approve(title, message=message, data=_VALUE, name="ask").build()
        run = await client.submit(flow, value)
    except PerdureError:
        return None
    [*listed] = await client.approvals.list(run=run.id)
    if not listed:
        assert str((await client.runs.get(run.id)).status) == "failed"
        return None
    [record] = listed
    assert record.fault is None
    assert record == await client.approvals.get(record.id)
    assert len(record.title) <= TITLE_MAX
    assert len(record.message) <= MESSAGE_MAX
    decided = await client.approvals.decide(record.id, "approve")
    assert str(decided.status) == "decided", decided
    assert str((await client.runs.get(run.id)).status) == "completed"
    return record


_PEOPLE = [
    "ada", "ada ", "  ada", "a\u200bda", "\uff41\uff44\uff41", "Ada", "a\u0301da", "\u00e1da",
    "ad\u0430", "bob", "bob\n", "finance", "legal", "poll", "Poll", "role:ada", "\U000e0061ada",
    "ada\ufe0f", "ada\u00a0", "ada\u3000smith", "ada smith", "ada\x00", "",
]  # fmt: skip
_ROLES = ["finance", "finance ", "\uff46inance", "Finance", "legal", "ada", "bob", "role:finance"]
_DECIDERS = [*_PEOPLE, *(f"role:{each}" for each in _ROLES), "role: finance", "ROLE:legal", "role:"]
_FIELDS = {"amount": {"type": "number"}, "why": {"type": "string"}}
_FORM = {"type": "object", "properties": _FIELDS}
_DATA = {"amount": 100, "to": "X"}
_ANSWERS = st.fixed_dictionaries(
    {"decision": st.sampled_from(["approve", "approve", "reject", "defer", "ad"])},
    optional={
        "by": st.sampled_from(["ada", "bob", "eve"]) | st.sampled_from(_PEOPLE),
        "roles": st.just(["finance"]) | st.lists(st.sampled_from(_ROLES), max_size=2),
        "data": st.sampled_from(
            [None, {}, {"amount": 1}, {"amount": 100}, {"why": "x"}, {"to": "Y"}, [1], "approve"]
        ),
        "revision": st.integers(0, 3),
    },
)
DECISIONS = st.tuples(
    st.lists(st.sampled_from(["ada", "bob", "role:finance"]), max_size=3)
    | st.lists(st.sampled_from(_DECIDERS), max_size=2),
    st.sampled_from(["any", "all", {"at_least": 2}, {"at_least": 3}]),
    st.booleans(),
    st.lists(_ANSWERS, min_size=1, max_size=8),
)
"""Deciders, policy, whether there is a form, and what people answer in turn."""


def approving(deciders: list[str], policy: Any, has_form: bool) -> BuiltFlow:
    flow = Flow("deciding")
    return flow.approve(
        "Pay?",
        name="ask",
        deciders=deciders,
        policy=policy,
        answers=["approve", "reject", "defer"],
        on_reject="continue",
        form=_FORM if has_form else None,
    ).build()


def normal(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).split())


def meant(decider: str) -> tuple[str, str]:
    """Who a decider is: a role or a user, and the name."""
    kind, colon, name = normal(decider).partition(":")
    return ("role", name.strip()) if (kind, colon) == ("role", ":") else ("user", normal(decider))


@dataclass
class Ballot:
    """What the answers that were accepted amount to."""

    deciders: list[str]
    policy: Any
    has_form: bool
    people: list[str] = field(default_factory=list)
    decisions: Counter[str] = field(default_factory=Counter)
    covered: set[tuple[str, str]] = field(default_factory=set)
    data: dict[str, Any] = field(default_factory=lambda: dict(_DATA))
    revision: int = 0

    def accept(self, answer: dict[str, Any]) -> None:
        """Count an answer; raises ``AssertionError`` if it must not be accepted."""
        assert self.decided is None, "it was decided"
        by, decision, data = answer.get("by"), answer["decision"], answer.get("data")
        who = None if by is None else normal(by)
        answers_as = {("role", normal(each)) for each in answer.get("roles", ())}
        answers_as |= {("user", who)} if who is not None else set()
        stands_for = {meant(each) for each in self.deciders} & answers_as
        assert not self.deciders or stands_for, "a stranger decided"
        assert who is not None or self.policy == "any", "an answer without a decider was counted"
        assert who is None or who not in self.people, "one person was counted twice"
        assert decision in ("approve", "reject", "defer")
        expected = (self.revision,) if self.revision else (0, None)
        assert answer.get("revision") in expected, "the data was changed in between"
        if data is not None:
            assert self.has_form, "data without a form"
            assert data.keys() <= _FIELDS.keys(), "a field that is not in the form"
            changed = self.data | data
            self.revision += changed != self.data
            self.data = changed
        self.people += [] if who is None else [who]
        self.decisions[decision] += 1
        self.covered |= stands_for if decision == "approve" else set()

    @property
    def decided(self) -> str | None:
        if self.policy == "all":
            other = next((each for each in self.decisions if each != "approve"), None)
            is_whole = self.decisions and self.covered >= set(map(meant, self.deciders))
            return other or ("approve" if is_whole else None)
        needed = 1 if self.policy == "any" else self.policy["at_least"]
        return next((each for each, count in self.decisions.items() if count >= needed), None)


async def decide(
    client: AsyncClient,
    deciders: list[str],
    policy: Any,
    has_form: bool,
    answers: list[dict[str, Any]],
) -> bool:
    """Let people answer in turn: what is accepted is allowed, and decides as it should."""
    try:
        run = await client.submit(approving(deciders, policy, has_form), dict(_DATA))
    except PerdureError:
        return False
    ballot = Ballot(deciders, policy, has_form)
    for answer in answers:
        fields = {name: value for name, value in answer.items() if name != "decision"}
        try:
            record = await client.approvals.decide(f"{run.id}:ask", answer["decision"], **fields)
        except PerdureError:
            continue
        ballot.accept(answer)
        assert record.decision == ballot.decided, (record, ballot)
        assert (record.data, record.revision) == (ballot.data, ballot.revision)
    if ballot.decided is not None:
        output = (await client.runs.handle(run.id).outputs())["ask"]
        assert (output["decision"], output["data"]) == (ballot.decided, ballot.data)
    return bool(ballot.decisions)
