"""Tasks that write to an evidence log from separate processes."""

from __future__ import annotations

import os
from pathlib import Path

from perdure import CONTEXT, Context, task
from proof.evidence import EvidenceLog

LOG = "PERDURE_TEST_EVIDENCE"


@task(isolation="process")
def print_in_process(value: int, ctx: Context = CONTEXT) -> str:
    with EvidenceLog(os.environ[LOG]).execution(ctx) as execution:
        return execution.nonce


def write_many(path: Path, name: str) -> None:
    evidence = EvidenceLog(path)
    for number in range(200):
        evidence.accepted(run=f"{name} {number}")
