"""What a body may return instead of a plain output: it says what follows.

A plain return value is ``complete(value)``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure.model import check
from perdure.model.times import Duration
from perdure.model.value import Value


class Complete(Value):
    """The node is done, and the run goes on from ``port``."""

    output: Any = None
    port: str = ""


class Pause(Value):
    """Wait for external work, holding nothing; it is reported with ``client.runs.report``."""

    checkpoint: Any = None
    name: str = ""
    deadline: timedelta | None = None
    poll: timedelta | None = None
    """How often to ask, if nobody reports."""


class Skip(Value):
    """As if no edge had led to the node."""

    reason: str = ""


class Fail(Value):
    """The node failed for good, whatever its retries."""

    error: str


BodyResult = Complete | Pause | Skip | Fail


def complete(output: Any = None, port: str = "") -> Complete:
    """End a node with this output; ``port`` chooses which edges the run takes from here."""
    return Complete(output=output, port=check.name(port, "port") if port else "")


def paused(
    checkpoint: Any = None,
    *,
    name: str = "",
    deadline: Duration | None = None,
    poll: Duration | None = None,
) -> Pause:
    """Wait for a report. ``checkpoint`` is what is needed to go on from there, kept as JSON.

    ``deadline`` is how long to wait at most; then the node goes on as its ``on_timeout`` says.
    """
    return Pause(
        checkpoint=checkpoint,
        name=check.name(name, "name", label="name of the pause") if name else "",
        deadline=_span(deadline, "deadline"),
        poll=_span(poll, "poll"),
    )


def skipped(reason: str = "") -> Skip:
    """Do not count this node: what follows only it is skipped too."""
    return Skip(reason=str(reason))


def failed(error: str | BaseException) -> Fail:
    """Fail the node for good, without further tries."""
    return Fail(error=str(error) or type(error).__name__)


def _span(duration: Duration | None, name: str) -> timedelta | None:
    shortest = timedelta(milliseconds=1)  # as waits are stored
    return None if duration is None else check.span(duration, name, least=shortest)
