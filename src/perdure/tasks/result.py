"""Results of a task body that control the node. A plain return value is ``complete(value)``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure.model import check
from perdure.model.times import Duration
from perdure.model.value import Value


class Complete(Value):
    """The node is completed, and the run continues on ``port``."""

    output: Any = None
    port: str = ""


class Pause(Value):
    """Wait for ``client.runs.report`` without occupying a worker."""

    checkpoint: Any = None
    name: str = ""
    deadline: timedelta | None = None
    poll: timedelta | None = None
    """How often to poll while no report arrives."""
    cancels: bool = False
    """Whether to call the node type's ``cancel`` if nothing waits for the report any more."""


class Skip(Value):
    """Treat the node as if no edge led to it."""

    reason: str = ""


class Fail(Value):
    """Fail the node without retries."""

    error: str


BodyResult = Complete | Pause | Skip | Fail


def complete(output: Any = None, port: str = "") -> Complete:
    """Complete the node with this output; ``port`` chooses the edges that the run takes."""
    return Complete(output=output, port=check.name(port, "port") if port else "")


def paused(
    checkpoint: Any = None,
    *,
    name: str = "",
    deadline: Duration | None = None,
    poll: Duration | None = None,
) -> Pause:
    """Wait for a report. ``checkpoint`` is stored as JSON and passed to ``resume``.

    ``deadline`` is the maximum wait; then the node's ``on_timeout`` applies.
    """
    return Pause(
        checkpoint=checkpoint,
        name=check.name(name, "name", label="name of the pause") if name else "",
        deadline=_span(deadline, "deadline"),
        poll=_span(poll, "poll"),
    )


def skipped(reason: str = "") -> Skip:
    """Skip the node, and all nodes that only follow it."""
    return Skip(reason=str(reason))


def failed(error: str | BaseException) -> Fail:
    """Fail the node without retries."""
    return Fail(error=str(error) or type(error).__name__)


def _span(duration: Duration | None, name: str) -> timedelta | None:
    shortest = timedelta(milliseconds=1)  # as waits are stored
    return None if duration is None else check.span(duration, name, least=shortest)
