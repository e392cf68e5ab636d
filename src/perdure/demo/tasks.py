"""The work of the demo: ordinary tasks, and the worker that ``perdure worker`` is given."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from perdure import Context, Rate, Retry, Worker, task

PAGE_END = "\f"
LETTERS_A_SECOND = 2


@task
def count_words(path: str, pause: float, ctx: Context) -> int:
    """Count the words of a book, page by page, slowly enough to be watched."""
    pages = Path(path).read_text(encoding="utf-8").split(PAGE_END)
    words = 0
    for number, page in enumerate(pages, start=1):
        ctx.check()
        words += len(page.split())
        ctx.progress(100 * number / len(pages), f"page {number} of {len(pages)}")
        ctx.abort_signal.wait(pause)
    return words


@task(retries=Retry(3, first="1s", jitter=False), priority=2)
def fetch(path: str, ctx: Context) -> str:
    """Hash a book; the first try always fails, as networks do."""
    if ctx.attempt == 1:
        raise ConnectionError("the server is busy")
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@task(limits=[Rate(LETTERS_A_SECOND, per="1s", key="letters")], priority=2)
async def send_letter(reader: str) -> str:
    """Only so many a second, however many workers there are."""
    await asyncio.sleep(0.05)
    return f"a letter to {reader}"


@task
def close_library() -> str:
    """Enqueued with a delay."""
    return "good night"


@task
def proofread(path: str, ctx: Context) -> None:
    """Never finished: somebody has to abort it."""
    for round in range(1, 1_000_000):
        ctx.progress(50, f"reading {Path(path).stem} again ({round})")
        ctx.abort_signal.wait(0.3)
        ctx.check()


worker = Worker(
    "sqlite:///perdure-demo.db",
    tasks=[count_words, fetch, send_letter, close_library, proofread],
    concurrency=4,
    lease="3s",  # short, so that the jobs of a killed worker are seen to move on
    poll="1s",
)
