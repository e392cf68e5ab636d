"""The demo's tasks, flow and workers.

The flow makes a catalogue of books: it counts their words, fetches prices, draws a cover, and asks
for approval before it publishes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure import CONTEXT, Context, Flow, Retry, Worker, task

PAGE_END = "\f"
LEASE = "3s"
"""Short, so that the jobs of a killed worker are taken over soon."""

Book = dict[str, Any]


@task
def open_library(request: dict[str, Any]) -> dict[str, Any]:
    """List the books in a folder, each with the pause after a page."""
    paths = sorted(Path(request["folder"]).glob("*.txt"))
    return {"books": [{"path": str(path), "pause": request["pause"]} for path in paths]}


@task
def count_words(book: Book, ctx: Context = CONTEXT) -> Book:
    """Count the words of a book, page by page, slowly enough to be watched."""
    path = Path(book["path"])
    pages = path.read_text(encoding="utf-8").split(PAGE_END)
    words = 0
    for number, page in enumerate(pages, start=1):
        ctx.check()
        words += len(page.split())
        ctx.progress(100 * number / len(pages), path.stem)
        ctx.abort_signal.wait(book["pause"])
    return {"title": path.stem, "words": words, "attempt": ctx.attempt}


@task(retries=Retry(3, first="2s", jitter=False), priority=2)
def fetch_prices(library: dict[str, Any], ctx: Context = CONTEXT) -> Book:
    """Fetch prices; the first attempt always fails."""
    if ctx.attempt == 1:
        raise ConnectionError("the price server is busy")
    return {"cents": 1_250 * len(library["books"]), "attempt": ctx.attempt}


@task(priority=2)
def add_tax(prices: Book) -> Book:
    return {**prices, "cents": round(prices["cents"] * 1.07)}


@task(priority=2)
def draw_cover(library: dict[str, Any], ctx: Context = CONTEXT) -> Book:
    for percent in range(0, 101, 5):
        ctx.check()
        ctx.progress(percent)
        ctx.abort_signal.wait(library["books"][0]["pause"])
    return {"cover": "blue", "attempt": ctx.attempt}


@task
def set_pages(branches: dict[str, Any]) -> dict[str, Any]:
    """Combine the results of the branches."""
    books = branches["words"]
    return {
        "books": len(books),
        "words": sum(book["words"] for book in books),
        "cents": branches["prices"]["cents"],
    }


@task
def publish(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer["data"], "is_published": True}


@task
def put_aside(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer["data"], "is_published": False}


catalogue = (
    Flow("catalogue")
    .then(open_library)
    .fork(
        words=Flow().map(count_words, over="books"),
        prices=[fetch_prices, add_tax],
        cover=draw_cover,
    )
    .join(set_pages)
    .approve(
        "Publish {{ value.books }} books with {{ value.words }} words?",
        name="sign_off",
        deciders=["role:editor"],
        on_reject="no",
    )
    .then(publish)
    .node("put_aside", put_aside, after="sign_off:no")
    .build()
)


def _worker(number: int) -> Worker:
    return Worker(
        "sqlite:///perdure-demo.db",
        flows=[catalogue],
        id=f"worker-{number}",
        concurrency=3,
        lease=LEASE,
        poll="1s",
    )


worker_1, worker_2, worker_3 = map(_worker, (1, 2, 3))
