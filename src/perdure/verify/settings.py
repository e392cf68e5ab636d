"""What a check is told besides the store: what was meant to happen, and what it may assume."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from perdure.model.limit import LimitRule
from perdure.model.payload import Codec, PlainCodec
from perdure.model.run import RunStatus
from perdure.model.value import Value

GRACE = timedelta(seconds=60)
"""How late a worker that lives may be with what is due, unless the caller says otherwise."""

ANY_RESULT = object()


class Expected(Value):
    """How a run is known to end, whoever executes it."""

    status: RunStatus
    result: Any = ANY_RESULT
    """Compared as plain JSON values."""


class CheckSettings(Value):
    expected: Mapping[str, Expected] = {}
    """By run id."""
    limits: tuple[LimitRule, ...] = ()
    """As the store applies them, by the keys that the witness log names."""
    allows_pruned: bool = False
    """Retention was on: what ended long ago may be gone."""
    grace: timedelta | None = None
    """How late anything due may be. None: a minute, where a worker lives; else there is nobody."""
    start_slack: timedelta | None = None
    """How long after its claim a body begins at most. None: only the store's times are compared."""
    leases_hold: bool = False
    """No worker was ever stopped or cut off, so every execution held its claim to its end."""
    closed_max: timedelta = timedelta(days=366)
    """A limit that is closed for longer than this is taken for one that never opens."""
    codec: Codec = PlainCodec()
    """The one that the clients and workers of this store use."""
