"""One flow of the catalogue, with all that is brought to it and what must come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perdure.flows.built import BuiltFlow
from perdure.model.wait import Report


@dataclass(frozen=True)
class Case:
    flow: BuiltFlow
    input: Any
    expected: Any
    signals: dict[str, Any] = field(default_factory=dict)
    """Payloads by name; a list has several."""
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What people decide, by approval, in the order in which the flow comes to them."""
    reports: dict[str, list[Report]] = field(default_factory=dict)
    """What outside parties say, by the key that waits for it, in that order too."""
