"""A process that imports, and is killed in the middle of it: ``URL FILE``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from perdure.transfer import import_store


def die_half_way(done: int, of: int) -> None:
    if done > of / 2:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(import_store(sys.argv[1], Path(sys.argv[2]), on_progress=die_half_way))
