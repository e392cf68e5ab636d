"""Fakes: what stands for a task while a flow is tested."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from perdure.diagnostics import safe_repr
from perdure.errors import InvalidInput
from perdure.model.key import Key
from perdure.model.task import Task

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
        raise InvalidInput("in_turn() needs at least one outcome")
    if any(isinstance(each, InTurn) for each in outcomes):
        raise InvalidInput("in_turn() within in_turn(): give all outcomes to one of them")
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
            listed = ", ".join(map(repr, sorted(known))) or "nothing yet"
            raise InvalidInput(
                f"there is a fake for {_told(target)}, but no task and no node with a task is "
                f"called so here; there is {listed}"
            )


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
    raise InvalidInput(
        f"a fake for {safe_repr(target)}: name a task, a function that a flow calls, or the id of "
        "a node"
    )


def _node_of(text: str) -> str:
    """Of a key such as ``pack[7]`` the node; any other text as it is."""
    try:
        return Key.parse(text).node
    except InvalidInput:
        return text


def _told(target: Target) -> str:
    return repr(target if isinstance(target, str) else getattr(target, "__name__", target))
