"""What a verification is told, and what it found: each finding is one contradiction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from perdure.diagnostics import Code, Finding, message
from perdure.model.payload import Codec, PlainCodec
from perdure.model.value import Value

GRACE = timedelta(seconds=60)
"""How late a worker that lives may be with what is due, unless the caller says otherwise."""


class VerifySettings(Value):
    namespace: str | None = None
    """The one to look at; None: all."""
    allows_pruned: bool = False
    """Retention was on: what ended long ago may be gone."""
    grace: timedelta | None = None
    """How late anything due may be. None: a minute, where a worker lives; else there is nobody."""
    closed_max: timedelta = timedelta(days=366)
    """A limit that is closed for longer than this is taken for one that never opens."""
    codec: Codec = PlainCodec()
    """The one that the clients and workers of this store use."""


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
    """A finding with its place: ``run``, ``key``, ``job`` … are arguments where they are known.

    ``invariant`` is as the design page numbers them: ``I1`` to ``I12``; ``log`` for what cannot be
    read.
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
    """How much was looked at, so that verifying nothing cannot pass for a good result."""

    runs: int = 0
    ended_runs: int = 0
    events: int = 0
    snapshots: int = 0
    jobs: int = 0
    waits: int = 0
    schedules: int = 0
