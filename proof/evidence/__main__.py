"""``python -m proof.evidence STORE LOG``: compare a store with an evidence log, as from chaos.

Exits with 0 without findings, with 1 with findings, and with 2 if it could not check. Limits (I11)
are checked from Python only, because a store does not have them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from perdure.errors import PerdureError
from perdure.store.opening import require_store, store_at
from perdure.verify import finding_text
from proof.evidence.rules import EvidenceSettings, EvidenceVerifier


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.evidence", description=__doc__)
    parser.add_argument("store", metavar="STORE")
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("--pruned", action="store_true", help="what was accepted may be pruned")
    asked = parser.parse_args(arguments)
    try:
        return asyncio.run(_verified(asked.store, asked.log, is_pruned=asked.pruned))
    except (PerdureError, OSError) as error:
        print(f"cannot check it: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


async def _verified(url: str, log: str, *, is_pruned: bool) -> int:
    await require_store(url)
    store = store_at(url)
    await store.open()
    is_sound = True
    try:
        verifier = EvidenceVerifier(store, log, EvidenceSettings(allows_pruned=is_pruned))
        async for finding in verifier.findings():
            is_sound = False
            print(finding_text(finding))
    finally:
        await store.close()
    print(verifier.counts, verifier.evidence_counts, sep="\n")
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
