"""Fakes: what stands for a task while a flow is tested."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.key import Key
from perdure.model.task import Task

NO_OUTCOME = declare("testing.no_outcome", "in_turn() needs at least one outcome")
NESTED_IN_TURN = declare(
    "testing.nested_in_turn", "in_turn() within in_turn()", "Give all outcomes to one of them"
)
FAKE_FOR_NOTHING = declare(
    "testing.fake_for_nothing",
    "there is a fake for {target}, but no task and no node of that name[; known: {known}]",
)


Target = str | Callable[..., Any]
"""A task, a function that a flow calls, the name of a task, or the id of a node."""


@dataclass(frozen=True, slots=True)
class InTurn:
    """Outcomes of one call each; the last one also counts for all calls after it."""

    outcomes: tuple[Any, ...]


def in_turn(*outcomes: Any) -> InTurn:
    """A fake that does one thing after the other: ``in_turn(ConnectionError("busy"), "sent")``.

    Each outcome is one that a fake may have. The last one stays.
    """
    if not outcomes:
        raise InvalidInput(NO_OUTCOME.fault())
    if any(isinstance(each, InTurn) for each in outcomes):
        raise InvalidInput(NESTED_IN_TURN.fault())
    return InTurn(outcomes)


class Fake:
    """What one target does instead. Calls may come from several threads."""

    def __init__(self, outcome: Any) -> None:
        self._outcomes = outcome.outcomes if isinstance(outcome, InTurn) else (outcome,)
        self._calls = 0
        self._lock = threading.Lock()

    def outcome(self) -> Any:
        """What the next call comes to."""
        with self._lock:
            outcome = self._outcomes[min(self._calls, len(self._outcomes) - 1)]
            self._calls += 1
            return outcome


class Fakes:
    """Fakes by what they stand for. The nearest counts: a part of a node, a node, then a task."""

    def __init__(self) -> None:
        self._by_target: dict[Target, Fake] = {}

    def set(self, target: Any, outcome: Any) -> None:
        self._by_target[_checked(target)] = Fake(outcome)

    def find(self, key: Key | None, task: Task[..., Any]) -> Fake | None:
        names: list[Target] = []
        if key is not None and not key.part:  # a poll or an undo is not the work of the node
            names = [key.text, key.node]
        names += [task.name, task.function]
        return next((self._by_target[name] for name in names if name in self._by_target), None)

    def refuse_unknown(self, names: Iterable[str], functions: Iterable[Callable[..., Any]]) -> None:
        """Say so if a fake stands for nothing that there is."""
        known, called = set(names), set(functions)
        for target in self._by_target:
            if target in called or (isinstance(target, str) and _node_of(target) in known):
                continue
            fault = FAKE_FOR_NOTHING.fault(target=_told(target), known=tuple(sorted(known)))
            raise InvalidInput(fault)


def come_to(outcome: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
    """Let an outcome happen: an exception is raised, a function called, a value returned."""
    if isinstance(outcome, BaseException):
        raise outcome
    if inspect.isclass(outcome) and issubclass(outcome, BaseException):
        raise outcome
    return outcome(*args, **kwargs) if callable(outcome) else outcome


def _checked(target: Any) -> Target:
    if isinstance(target, str):
        return target
    if callable(target):
        function: Callable[..., Any] = getattr(target, "function", target)  # a task has one
        return function
    wanted = "a task, a function that a flow calls, or the id of a node"
    raise check.wrong_type(target, "target", wanted)


def _node_of(text: str) -> str:
    """Of a key such as ``pack[7]`` the node; any other text as it is."""
    try:
        return Key.parse(text).node
    except InvalidInput:
        return text


def _told(target: Target) -> str:
    return repr(target if isinstance(target, str) else getattr(target, "__name__", target))
