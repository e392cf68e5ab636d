"""``python -m perdure.verify STORE_URL``: check a store, and say what is wrong with it.

Exits with 0 if nothing is, with 1 if something is, and with 2 if it could not be checked.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import timedelta

import msgspec

from perdure.errors import PerdureError
from perdure.store.opening import require_store, store_at
from perdure.verify.finding import Finding
from perdure.verify.settings import CheckSettings
from perdure.verify.verifier import Checker

NOTHING_WRONG, FOUND, CANNOT_CHECK = 0, 1, 2


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    try:
        return asyncio.run(_checked(asked))
    except (PerdureError, OSError) as error:
        reason = str(error)
    except Exception as error:  # a fault of the check is no finding about the store
        reason = f"{type(error).__name__}: {error}"
    print(f"cannot check it: {' '.join(reason.split())}", file=sys.stderr)
    return CANNOT_CHECK


async def _checked(asked: argparse.Namespace) -> int:
    grace = None if asked.grace is None else timedelta(seconds=asked.grace)
    settings = CheckSettings(allows_pruned=asked.pruned, grace=grace)
    await require_store(asked.store)
    store = store_at(asked.store)
    await store.open()
    try:
        checker = Checker(store, asked.log, settings)
        findings: list[Finding] = []
        async for finding in checker.findings():
            findings.append(finding)
            if not asked.json:
                print(finding)
    finally:
        await store.close()
    counts = msgspec.to_builtins(checker.counts)
    if asked.json:
        told = {"findings": msgspec.to_builtins(findings), "counts": counts}
        print(msgspec.json.encode(told).decode())
    else:
        del counts["limits"]  # the command is told of none
        seen = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
        print(f"{len(findings)} findings in {seen}" if findings else f"nothing is wrong in {seen}")
    return FOUND if findings else NOTHING_WRONG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m perdure.verify",
        description="Check that a store keeps what Perdure promises. It is only read.",
        epilog="Limits (I11) are checked from Python: they are not kept in a store.",
    )
    parser.add_argument("store", metavar="STORE_URL")
    parser.add_argument("--log", metavar="FILE", help="a witness log to compare it with")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--pruned", action="store_true", help="what was accepted may have been pruned since"
    )
    parser.add_argument(
        "--grace", type=float, metavar="SECONDS", help="how late anything that is due may be"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
