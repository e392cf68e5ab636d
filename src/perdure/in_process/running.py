"""``run_flow``: a flow from input to result in this process, with nothing stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from perdure.client.client import AsyncClient
from perdure.client.portal import Portal
from perdure.client.submitting import checked_flow
from perdure.errors import RunTimeout
from perdure.in_process.mail import Mail
from perdure.in_process.private_store import PrivateStore
from perdure.in_process.replies import Replies
from perdure.in_process.supervision import Supervision
from perdure.model import check
from perdure.model.duration import Duration
from perdure.model.flow import BuiltFlow
from perdure.worker.secrets import Provider
from perdure.worker.worker import Worker

CONCURRENCY = 100
"""Enough for branches and items to run side by side; there is no other worker to take them."""


async def run_flow_async(
    flow: BuiltFlow,
    input: Any = None,
    *,
    signals: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
    reports: Mapping[str, Any] | None = None,
    secrets: Provider | None = None,
    allow_scripts: bool = False,
    timeout: Duration | None = None,
    skip_delays: bool = False,
) -> Any:
    """Run a flow on the running event loop, and return its result. Nothing is stored.

    ``signals`` has payloads for the signals that it waits for; a list holds several for one name.
    ``answers`` has what people decide, by the node of the approval: ``"approve"``, or an object
    with what ``client.decide`` takes. It is given in the name of the next decider, unless it says
    ``by`` whom. ``reports`` has what comes of outside work, by the node that waits for it: its
    result, or a ``Report``. ``secrets`` and ``allow_scripts`` are those of a worker.

    ``skip_delays`` makes delays, times for signals and pauses between attempts pass at once, as
    soon as there is nothing else to do. Raises ``RunFailed`` as ``result()`` of a run does,
    ``RunTimeout`` after ``timeout``, and ``RunStuck`` if it waits for what nobody can bring.
    """
    mail = Mail(checked_flow(flow), signals, Replies(flow, answers, reports))
    seconds = None if timeout is None else check.span(timeout, "timeout").total_seconds()
    store = PrivateStore()
    async with AsyncClient(store) as client:
        run = await client.submit(flow, input)
        await mail.deliver_up_front(client, run.id)
        watching = Supervision(client, store, mail, skip_delays=skip_delays)
        worker = _worker(store, flow, secrets, allow_scripts)
        async with working(worker):
            try:
                async with asyncio.timeout(seconds):
                    await watching.watch_over(run.id)
            except TimeoutError:
                if seconds is None:
                    raise
                raise RunTimeout(
                    run_id=run.id, timeout=seconds, status=await run.status()
                ) from None
            return await run.result()


def run_flow(
    flow: BuiltFlow,
    input: Any = None,
    *,
    signals: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
    reports: Mapping[str, Any] | None = None,
    secrets: Provider | None = None,
    allow_scripts: bool = False,
    timeout: Duration | None = None,
    skip_delays: bool = False,
) -> Any:
    """Run a flow in a thread of its own, and return its result; see :func:`run_flow_async`.

    May be called where an event loop is running, too, which waits meanwhile.
    """
    portal = Portal(_nothing)
    try:
        return portal.run(
            run_flow_async(
                flow,
                input,
                signals=signals,
                answers=answers,
                reports=reports,
                secrets=secrets,
                allow_scripts=allow_scripts,
                timeout=timeout,
                skip_delays=skip_delays,
            )
        )
    finally:
        portal.close()


def _worker(
    store: PrivateStore, flow: BuiltFlow, secrets: Provider | None, allow_scripts: bool
) -> Worker:
    return Worker(
        store,
        flows=[flow],
        concurrency=CONCURRENCY,
        hold_off="0s",  # there is no other worker to prefer
        keep_completed=None,
        keep_failed=None,
        secrets=secrets,
        allow_scripts=allow_scripts,
    )


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    """Let a worker work on the running event loop; at the end it is stopped at once."""
    started = asyncio.Event()
    serving = asyncio.create_task(worker.serve(started=started.set))
    try:
        await started.wait()  # before that it could not be told to stop
        yield
    finally:
        worker.shutdown(grace="0s")
        await asyncio.wait([serving])


async def _nothing() -> None:
    pass
