"""Where a flow waits: for some time, or for a signal."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from perdure.client.flow_assembly import Assembly, Cursor
from perdure.client.flow_options import InputOptions
from perdure.client.flow_settings import check_options, checked_port, data, told_inputs
from perdure.client.flow_steps import Named, Step, id_or, one_entry
from perdure.model import check
from perdure.model.duration import Duration
from perdure.model.graph import FAIL, DelayNode, SignalNode
from perdure.rules.graph_check import NODE_ID


@dataclass(frozen=True, slots=True)
class DelayStep(Step):
    delay: Duration | None
    until: str | datetime | None
    named: Named
    options: InputOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        id = id_or(assembly, self.named.name, "delay", place)
        label = assembly.label(id)
        check_options(assembly, label, self.options, InputOptions)
        inputs = told_inputs(assembly, id, self.options)
        if (self.delay is None) is (self.until is None):
            assembly.fault(label, "give either how long to wait, or until=... when")
        node = DelayNode(
            id=id,
            delay_ms=assembly.attempt(label, self._delay_ms, 0),
            until=assembly.attempt(label, lambda: _time(self.until), ""),
            on_missing=inputs.on_missing,
        )
        # It hands on what comes before it, and that is one value; inputs are for its time alone.
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after))

    def _delay_ms(self) -> int:
        if self.delay is None:
            return 0
        return check.span(self.delay, "delay") // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class SignalStep(Step):
    signal: str
    named: Named
    timeout: Duration | None
    on_timeout: str
    where: Any
    options: InputOptions

    def add(self, assembly: Assembly, cursor: Cursor, place: str) -> Cursor:
        signal: Any = self.signal
        is_usable = isinstance(signal, str) and NODE_ID.fullmatch(signal)
        id = id_or(assembly, self.named.name, signal if is_usable else "signal", place)
        label = assembly.label(id)
        check_options(assembly, label, self.options, InputOptions)
        inputs = told_inputs(assembly, id, self.options)
        node = SignalNode(
            id=id,
            signal=assembly.attempt(label, lambda: check.name(signal, "signal"), ""),
            timeout_ms=self._timeout_ms(assembly, label),
            on_timeout=checked_port(assembly, label, "on_timeout", self.on_timeout),
            where=data(assembly, label, "where", self.where),
            on_missing=inputs.on_missing,
        )
        return assembly.add(node, one_entry(assembly, id, cursor, self.named.after, inputs))

    def _timeout_ms(self, assembly: Assembly, label: str) -> int | None:
        timeout = self.timeout
        if timeout is not None:
            return assembly.attempt(label, lambda: check.milliseconds(timeout, "timeout"), None)
        if self.on_timeout != FAIL:
            assembly.fault(label, f"on_timeout={self.on_timeout!r} needs a timeout=...")
        return None


def _time(until: Any) -> str:
    """A template, or a time as text."""
    if until is None:
        return ""
    if isinstance(until, str) and "{{" in until:
        return until
    try:
        moment = datetime.fromisoformat(until) if isinstance(until, str) else until
    except ValueError as error:
        expected = "a time such as 2030-01-31T08:00:00+00:00, or a template"
        raise check.wrong_type(until, "until", expected) from error
    return check.moment(moment, "until").isoformat()
