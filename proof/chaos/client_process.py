"""Clients in a process of their own: ``python -m proof.chaos.client_process JSON``.

SIGTERM ends them.
"""

from __future__ import annotations

import asyncio
import signal

from proof.chaos.child import say_ready, settings_told
from proof.chaos.clients import Clients


async def serve() -> None:
    clients = Clients(settings_told())
    serving = asyncio.ensure_future(clients.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    say_ready()
    await asyncio.wait([serving])
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise error


def main() -> None:
    asyncio.run(serve())


if __name__ == "__main__":
    main()
