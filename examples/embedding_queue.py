"""Embed a shelf of books through a service with a rate limit.

    python examples/embedding_queue.py
    python examples/embedding_queue.py --books 100

The service is a fake that needs no network and is sometimes too busy. Each book is a job in
``embeddings.db`` and reports its progress. The limits are on the task, so they hold for any number
of workers; when the service is busy, all workers wait for as long as it asks. Stop the program and
start it again: embedded books are not embedded again.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import threading
import time
import zlib
from collections.abc import AsyncIterator

from perdure import (
    CONTEXT,
    AsyncContext,
    Client,
    Concurrency,
    NoResult,
    Rate,
    RetryLater,
    Worker,
    task,
)

STORE = "sqlite:///embeddings.db"
DIMENSIONS = 24
WORDS = ["bee", "hive", "dance", "nectar", "honey", "queen", "swarm", "wax", "comb", "meadow"]


class Service:
    """Stands for a model behind an HTTP API; it remembers when it was called."""

    def __init__(self) -> None:
        self.asked_at: list[float] = []

    async def embed(self, chapters: list[str]) -> AsyncIterator[list[float]]:
        """One request, answered chapter by chapter."""
        self.asked_at.append(time.monotonic())
        if len(self.asked_at) % 12 == 0:
            raise BlockingIOError("429 Too Many Requests")
        for chapter in chapters:
            await asyncio.sleep(0.06)
            yield vector_of(chapter)

    def account(self) -> str:
        count = len(self.asked_at)
        if count < 2:
            return f"{count} requests"
        seconds = self.asked_at[-1] - self.asked_at[0]
        return f"{count} requests in {seconds:.1f} s, {count / seconds:.0f} a second"


def vector_of(text: str) -> list[float]:
    vector = [0.0] * DIMENSIONS
    for word in text.split():
        vector[zlib.crc32(word.encode()) % DIMENSIONS] += 1
    length = math.hypot(*vector)
    return [round(each / length, 3) for each in vector]


service = Service()


@task(
    limits=[
        Rate(12, per="1s", evenly=True, key="embedder"),
        Concurrency(8, key="embedder"),
    ]
)
async def embed(title: str, chapters: list[str], ctx: AsyncContext = CONTEXT) -> list[list[float]]:
    """The vectors of one book."""
    vectors: list[list[float]] = []
    try:
        async for vector in service.embed(chapters):
            vectors.append(vector)
            ctx.progress(100 * len(vectors) / len(chapters), f"chapter {len(vectors)}")
    except BlockingIOError as error:
        raise RetryLater(str(error), after="300ms", limit="embedder") from error
    return vectors


def shelf(count: int) -> dict[str, list[str]]:
    """Books of eight chapters, made of the words above."""
    books: dict[str, list[str]] = {}
    for number in range(count):
        words = [WORDS[(number * step + step) % len(WORDS)] for step in range(1, 33)]
        books[f"Book {number}"] = [" ".join(words[at : at + 4]) for at in range(0, 32, 4)]
    return books


def show(client: Client, total: int, stop: threading.Event) -> None:
    """Print a line for each change; works for a terminal and for a file."""
    before = ""
    while True:
        is_last = stop.wait(0.25)
        done = client.jobs.count(status="completed")
        bar = "█" * round(12 * done / total)
        running = [
            f"{job.progress.percent:.0f}%" for job in client.jobs.list(status="active", limit=50)
        ]
        line = f"{bar:░<12} {done:>3} of {total}  {' '.join(running[-4:])}".rstrip()
        if line != before:
            print(line, flush=True)
        before = line
        if is_last:
            return


def nearest(books: dict[str, list[list[float]]], wanted: str) -> tuple[str, float]:
    """Use the vectors: find the book with the chapter most similar to a text."""
    vector = vector_of(wanted)
    likeness = {
        title: max(sum(a * b for a, b in zip(each, vector, strict=True)) for each in vectors)
        for title, vectors in books.items()
    }
    best = max(likeness, key=likeness.__getitem__)
    return best, likeness[best]


def main() -> None:
    parser = argparse.ArgumentParser(description="Books, embedded under a rate limit.")
    parser.add_argument("--books", type=int, default=30)
    parser.add_argument("--store", default=STORE)
    options = parser.parse_args()
    books, stop = shelf(options.books), threading.Event()
    with Client(options.store) as client:
        missing = []
        for title, chapters in books.items():
            try:
                client.jobs.find_result(embed, [title, chapters])
            except NoResult:
                missing.append((title, chapters))
        client.enqueue_many(embed.options(fingerprint=lambda title, chapters: title), missing)
        print(f"{len(books)} books, {len(missing)} to embed")
        worker = Worker(options.store, tasks=[embed], concurrency=20).start()
        showing = threading.Thread(target=show, args=(client, len(books), stop))
        showing.start()
        client.jobs.results(client.jobs.handle(job.id) for job in client.jobs.list(limit=1000))
        stop.set()
        showing.join()
        worker.shutdown()
        worker.join()
        vectors = {title: client.jobs.find_result(embed, [title, books[title]]) for title in books}
    print(service.account())
    title, score = nearest(vectors, "honey queen")
    print(f"nearest to 'honey queen': {title} ({score:.2f})")


if __name__ == "__main__":
    main()
