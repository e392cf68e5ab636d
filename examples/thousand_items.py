"""A map over 1,000 items: fifty at a time, some on the second attempt, one result.

    python examples/thousand_items.py
    python examples/thousand_items.py --items 5000

The run is stored in ``census.db``. Stop the program in the middle, also with ``kill -9``, and start
it again: it reports the earlier progress and does not count finished pages again. ``--restart``
starts another census.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import time
from collections import Counter

from perdure import CONTEXT, AsyncContext, Client, Flow, Retry, RunHandle, Worker, task

STORE = "sqlite:///census.db"
WORDS = ["durable", "flow", "job", "node", "run", "signal", "store", "task", "wait", "worker"]


@task
def list_pages(count: int) -> list[int]:
    return list(range(count))


@task(retries=Retry(3, first="20ms"))
async def count_words(page: int, ctx: AsyncContext = CONTEXT) -> dict[str, int]:
    """Stands for reading a page from a source that sometimes fails."""
    await asyncio.sleep(0.002)
    if page % 50 == 7 and ctx.attempt == 1:
        raise ConnectionError(f"page {page} broke off")
    chosen = random.Random(page).choices(WORDS, k=100)
    return dict(Counter(chosen))


@task
def add_up(counts: list[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total.most_common())


census = Flow("census").then(list_pages).map(count_words, concurrency=50).then(add_up).build()


def follow(run: RunHandle, step: int) -> None:
    """Print a line for every tenth of the items, from the events of the run."""
    done, began_at = 0, time.monotonic()
    for event in run.watch():
        if event.type == "node_retried":
            print(f"      {event.key} is tried again: {event.failure and event.failure.message}")
        if event.type != "item_completed":
            continue
        done += 1
        if done % step == 0:
            print(f"{done:>5} items after {time.monotonic() - began_at:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A map over many items, as a durable run.")
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--restart", action="store_true", help="start another run")
    parser.add_argument("--store", default=STORE)
    options = parser.parse_args()
    id = f"census-{options.items}"
    if options.restart:
        id += f"-{secrets.token_hex(4)}"
    worker = Worker(options.store, flows=[census], concurrency=50, lease="1s", hold_off=0)
    working = worker.start()
    try:
        with Client(options.store, on_conflict="use_existing") as client:
            run = client.submit(census, options.items, id=id)
            follow(run, max(1, options.items // 10))
            for word, count in list(run.result().items())[:3]:
                print(f"{word}: {count}")
    finally:
        working.shutdown()
        working.join()


if __name__ == "__main__":
    main()
