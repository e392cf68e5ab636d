"""The answers to approvals and the reports on outside work that are given with a run's input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.client.approval_records import ApprovalRecord
from perdure.client.client import AsyncClient
from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.flow import BuiltFlow
from perdure.model.graph import ApprovalNode, LoopNode, MapNode, TaskNode
from perdure.model.key import Key
from perdure.model.report import Report, ReportStatus
from perdure.model.run import Wait

NOT_WAITING = declare(
    "flow.node_waits_for_none",
    "node {node!r} does not wait for {what}[; nodes that do: {known}]",
)
INVALID_REPLY = declare(
    "flow.invalid_reply",
    "{value!r} is not an answer for node {node!r}",
    "Give a decision such as 'approve', or an object with a decision and any of {fields}",
)


ANSWER_FIELDS = frozenset({"decision", "data", "by", "roles", "note"})


class Replies:
    """What people and outside parties say, by the node that waits for it; each of them once."""

    def __init__(
        self,
        flow: BuiltFlow,
        answers: Mapping[str, Any] | None,
        reports: Mapping[str, Any] | None,
    ) -> None:
        nodes = [
            node for each in flow.with_children().values() for node in each.graph.nodes.values()
        ]
        approvals = {node.id for node in nodes if isinstance(node, ApprovalNode)}
        workers = {node.id for node in nodes if isinstance(node, TaskNode | MapNode | LoopNode)}
        self._answers = {
            node: [_answer(node, each) for each in given]
            for node, given in _by_node(answers, "answers", approvals).items()
        }
        self._reports = _by_node(reports, "reports", workers)

    def __bool__(self) -> bool:
        return bool(self._answers or self._reports)

    async def answer(self, client: AsyncClient, wait: Wait) -> None:
        """Decide on an approval, as the next of its deciders where it is not said as whom."""
        for answer in _all_of(self._answers.get(wait.key)):
            record = await client.approval(f"{wait.run}:{wait.key}")
            if not record.is_open:
                return
            await client.decide(record.id, **{"by": next_decider(record), **answer})
            self._answers[wait.key].pop(0)

    async def report(self, client: AsyncClient, wait: Wait) -> None:
        """Report on the work of a node, or of one item or iteration of it."""
        name = wait.key if wait.key in self._reports else Key.parse(wait.key).node
        for given in _all_of(self._reports.get(name)):
            self._reports[name].pop(0)
            report = given if isinstance(given, Report) else _completed(given)
            await client.report(
                wait.run,
                wait.key,
                status=report.status,
                result=report.result,
                error=report.error,
                progress=report.progress,
                port=report.port,
            )
            if report.status is not ReportStatus.PROGRESS:
                return


def next_decider(approval: ApprovalRecord) -> str | None:
    """Whose turn it is, where nobody says as whom they answer."""
    answered = {each.by for each in approval.answers}
    return next((name for name in approval.deciders if name not in answered), None)


def _completed(result: Any) -> Report:
    return Report(status=ReportStatus.COMPLETED, result=result)


def _all_of(given: list[Any] | None) -> list[Any]:
    return list(given or ())


def _by_node(given: Any, name: str, known: set[str]) -> dict[str, list[Any]]:
    if given is None:
        return {}
    for text in check.mapping(given, name, f"node ids to {name}"):
        check.name(text, name)
        if _node_of(text) not in known:
            fault = NOT_WAITING.fault(
                (name, text), node=text, what=name, known=tuple(sorted(known))
            )
            raise InvalidInput(fault)
    return {node: list(each) if isinstance(each, list) else [each] for node, each in given.items()}


def _node_of(text: str) -> str:
    try:
        return Key.parse(text).node
    except ValueError:
        return text


def _answer(node: str, given: Any) -> dict[str, Any]:
    """As ``client.decide`` takes it."""
    answer = {"decision": given} if isinstance(given, str) else given
    if not isinstance(answer, Mapping) or "decision" not in answer or answer.keys() - ANSWER_FIELDS:
        fields = ", ".join(sorted(ANSWER_FIELDS))
        fault = INVALID_REPLY.fault(("answers", node), value=given, node=node, fields=fields)
        raise InvalidInput(fault)
    return dict(answer)
