"""Everything a worker can be told, checked once."""

from __future__ import annotations

from datetime import timedelta

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.job import ALL_NAMESPACES
from perdure.model.limit import Limit
from perdure.model.times import Duration
from perdure.model.value import Value

CONCURRENCY_MAX = 10_000
SEVERAL_NAMESPACES = declare(
    "worker.several_namespaces",
    "a worker needs a single namespace (got {namespace!r})",
)


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
    return check.integer(concurrency, "concurrency", 1, CONCURRENCY_MAX)


def one_namespace(namespace: str) -> str:
    if namespace == ALL_NAMESPACES:
        raise InvalidInput(SEVERAL_NAMESPACES.fault(("namespace",), namespace=namespace))
    return check.name(namespace, "namespace")


def kept(value: Duration | None, name: str) -> timedelta | None:
    return None if value is None else check.span(value, name)
