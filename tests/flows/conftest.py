"""Runs of the whole catalogue at once, and workers of this process and of others."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import AsyncClient
from tests.crash.conftest import launch, shared_url
from tests.flows.catalogue import CASES
from tests.flows.people import Replies
from tests.worker.conftest import client, start_worker, store

__all__ = ["client", "launch", "results_of_all", "shared_url", "start_worker", "store"]


async def results_of_all(client: AsyncClient) -> dict[str, Any]:
    """Submit every flow of the catalogue; what came out, by the name of the case."""
    runs = {
        name: await client.submit(case.flow, case.input, id=name) for name, case in CASES.items()
    }
    for name, case in CASES.items():
        for signal, given in case.signals.items():
            for payload in given if isinstance(given, list) else [given]:
                await client.runs.signal(name, signal, payload)
    await Replies(client, CASES).give_all()
    results = await asyncio.gather(*(run.result(30) for run in runs.values()))
    return dict(zip(runs, results, strict=True))
