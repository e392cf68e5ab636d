"""Settings and findings of a verification: each finding is one contradiction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from perdure.diagnostics import Code, Finding, message
from perdure.model.payload import Codec, PlainCodec
from perdure.model.value import Value

GRACE = timedelta(seconds=60)
"""The default for how late a live worker may process due work."""


class VerifySettings(Value):
    namespace: str | None = None
    """The namespace to verify; None for all."""
    allows_pruned: bool = False
    """Retention was on: old ended rows may have been pruned."""
    grace: timedelta | None = None
    """How late anything due may be. None: a minute if a worker is alive, otherwise unlimited."""
    closed_max: timedelta = timedelta(days=366)
    """A limit closed for longer than this is reported as never opening."""
    codec: Codec = PlainCodec()
    """The codec of this store's clients and workers."""


def contradiction(
    invariant: str,
    code: Code,
    *,
    namespace: str = "",
    run: str = "",
    key: str = "",
    schedule: str = "",
    job: str = "",
    events: Sequence[int] = (),
    **args: Any,
) -> Finding:
    """A finding with its location: ``run``, ``key``, ``job`` … are arguments if known.

    ``invariant`` is ``I1`` to ``I13``, as on the architecture page, or ``log`` for unreadable logs.
    """
    place: dict[str, Any] = {
        "run": run,
        "key": key,
        "schedule": schedule,
        "job": job,
        "events": tuple(events),
    }
    known: dict[str, Any] = {name: value for name, value in place.items() if value}
    about = ", ".join(
        f"event {', '.join(map(str, events))}" if name == "events" else f"{name} {value!r}"
        for name, value in known.items()
    )
    if namespace:
        known["namespace"] = namespace
    return code.finding(about, invariant=invariant, **known, **args)


def finding_text(finding: Finding) -> str:
    """``I7 verify.live_waits.missing: run 'order-7', key 'go': waits according to …``"""
    about = f"{finding.about}: " if finding.about else ""
    return f"{finding.args['invariant']} {finding.code}: {about}{message(finding)}"


class Counts(Value):
    """The number of checked items, so that verifying nothing does not pass for success."""

    runs: int = 0
    ended_runs: int = 0
    events: int = 0
    snapshots: int = 0
    jobs: int = 0
    waits: int = 0
    schedules: int = 0
