"""Evidence recorded outside a store, and the comparison of a store with it.

findings = await verify_with_evidence(store, "evidence.jsonl", EvidenceSettings(limits=...))
"""

from __future__ import annotations

from proof.evidence.log import EvidenceLog, MemoryEvidenceLog, new_nonce
from proof.evidence.rules import (
    EvidenceSettings,
    EvidenceVerifier,
    Expected,
    verify_with_evidence,
)

__all__ = [
    "EvidenceLog",
    "EvidenceSettings",
    "EvidenceVerifier",
    "Expected",
    "MemoryEvidenceLog",
    "new_nonce",
    "verify_with_evidence",
]
