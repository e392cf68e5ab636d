"""An import whose process is killed leaves nothing behind, and can be done again."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from perdure.transfer import import_store
from tests.transfer.seen import seen_of

ROOT = Path(__file__).parents[2]


async def test_a_killed_import_leaves_the_store_empty(source_url, export, target_url):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.transfer.killed_import", target_url, str(export), cwd=ROOT
    )
    assert await process.wait() == -signal.SIGKILL

    seen = await seen_of(target_url)
    assert [name for name, found in seen.items() if found] == []

    await import_store(target_url, export)
    assert await seen_of(target_url) == await seen_of(source_url)
