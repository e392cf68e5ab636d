"""The history checker: whether a store keeps what Perdure promises.

    findings = await check(store)
    findings = await check(store, "witness.jsonl", CheckSettings(limits=...))

It reads and writes nothing. With a witness log, which bodies and clients write outside the store,
it also knows what really happened, and compares the two.
"""

from __future__ import annotations

from perdure.verify.finding import Counts, Finding, Judged
from perdure.verify.settings import CheckSettings, Expected
from perdure.verify.verifier import Checker, check
from perdure.verify.witness import HeardWitness, Witness, new_nonce

__all__ = [
    "CheckSettings",
    "Checker",
    "Counts",
    "Expected",
    "Finding",
    "HeardWitness",
    "Judged",
    "Witness",
    "check",
    "new_nonce",
]
