"""The verifier: checks whether a store keeps Perdure's promises.

    findings = await verify_store(store)

It reads a store page by page, replays and redecides each run's log, and reports every contradiction
of the invariants I1 to I13. It writes nothing. ``perdure verify`` is its command.
"""

from __future__ import annotations

from perdure.diagnostics import Finding
from perdure.verify.finding import Counts, VerifySettings, finding_text
from perdure.verify.verifier import ExtraRules, Verifier, verify_store

__all__ = [
    "Counts",
    "ExtraRules",
    "Finding",
    "Verifier",
    "VerifySettings",
    "finding_text",
    "verify_store",
]
