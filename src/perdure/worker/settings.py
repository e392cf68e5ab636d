"""Everything a worker can be told, checked once."""

from __future__ import annotations

from datetime import timedelta

from perdure.diagnostics import safe_repr
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.duration import Duration
from perdure.model.job import ALL_NAMESPACES
from perdure.model.limit import Limit
from perdure.model.value import Value

CONCURRENCY_MAX = 10_000


class WorkerSettings(Value):
    """What a worker runs, how much at once, and how patient it is."""

    namespace: str
    queues: tuple[str, ...]
    tags: tuple[str, ...] | None
    limits: tuple[Limit, ...]
    concurrency: int
    lease: timedelta
    """How long a claim outlives its worker's last sign of life."""
    poll: timedelta
    """How often to look without being woken."""
    grace: timedelta
    """How long a stop lets running work finish."""
    abort_grace: timedelta
    """How long an aborted body may take to end by itself before it is cancelled."""
    hold_off: timedelta
    """How long a retry is left to other workers."""
    deaths_max: int
    """Worker deaths that make a job a poison pill."""
    keep_completed: timedelta | None
    keep_failed: timedelta | None
    keep_dead: timedelta | None
    """None keeps for ever, zero removes at once."""
    payload_max_bytes: int
    allows_scripts: bool
    """Whether commands that come with a flow are executed."""


def checked_concurrency(concurrency: object) -> int:
    if isinstance(concurrency, bool) or not isinstance(concurrency, int):
        raise InvalidInput(f"concurrency={safe_repr(concurrency)} must be a whole number")
    if not 1 <= concurrency <= CONCURRENCY_MAX:
        raise InvalidInput(f"concurrency={concurrency} is not between 1 and {CONCURRENCY_MAX}")
    return concurrency


def at_least_one(count: object, name: str) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidInput(f"{name}={safe_repr(count)} must be a whole number of at least 1")
    return count


def yes_or_no(choice: object, name: str) -> bool:
    if not isinstance(choice, bool):
        raise InvalidInput(f"{name}={safe_repr(choice)} must be True or False")
    return choice


def one_namespace(namespace: str) -> str:
    if namespace == ALL_NAMESPACES:
        raise InvalidInput(
            f"namespace={namespace!r} is an operator's look at all; a worker serves one"
        )
    return check.name(namespace, "namespace")


def positive(value: Duration, name: str) -> timedelta:
    duration = check.span(value, name)
    if not duration:
        raise InvalidInput(f"{name}={safe_repr(value)} must be above zero")
    return duration


def kept(value: Duration | None, name: str) -> timedelta | None:
    return None if value is None else check.span(value, name)
