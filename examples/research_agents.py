"""Several agents research a question in parallel, and one report combines their findings.

    python examples/research_agents.py "Why do bees dance?"

The model is a fake that needs no network, answers slowly and sometimes fails. Each agent is one
item of a map. ``ctx.step`` stores each response of the model, so an attempt after a failure, or
after a crash of this program, does not make the same call again.
"""

from __future__ import annotations

import argparse
import asyncio
import zlib
from typing import TypedDict

from perdure import CONTEXT, AsyncContext, Client, Flow, Retry, Worker, task

STORE = "sqlite:///research.db"
ANGLES = ["history", "evidence", "doubts", "open questions"]


async def ask_model(prompt: str) -> str:
    """Stands for a call that is slow and costs money."""
    print(f"asked: {prompt}")
    await asyncio.sleep(0.02)
    return f"{zlib.crc32(prompt.encode()) % 90 + 10} words about {prompt!r}"


@task
async def plan(question: str, ctx: AsyncContext = CONTEXT) -> dict[str, list[str]]:
    await ctx.step("outline", ask_model, f"outline: {question}")
    return {"tasks": [f"{angle}: {question}" for angle in ANGLES]}


@task(retries=Retry(4, first="50ms"), timeout="5m")
async def investigate(assignment: str, ctx: AsyncContext = CONTEXT) -> dict[str, str]:
    """One agent: it searches, reads the results and writes a summary."""
    found = await ctx.step("search", ask_model, f"search {assignment}")
    if ctx.item in (1, 2) and ctx.attempt <= ctx.item:
        raise ConnectionError("the model broke off")
    read = [await ctx.step(f"read {n}", ask_model, f"read {n} of {assignment}") for n in (1, 2)]
    ctx.progress(90, f"read {len(read)} sources")
    return {"task": assignment, "found": found, "text": " / ".join(read)}


@task
def write_summary(notes: list[dict[str, str]]) -> str:
    return "; ".join(note["task"].partition(":")[0] for note in notes)


@task
def count_sources(notes: list[dict[str, str]]) -> int:
    return sum(note["text"].count(" / ") + 1 for note in notes)


class Parts(TypedDict):
    summary: str
    sources: int


@task
def publish(parts: Parts) -> str:
    return f"{parts['summary']} ({parts['sources']} sources)"


research = (
    Flow("research")
    .then(plan)
    .map(investigate, over="tasks", concurrency=3)
    .fork(summary=write_summary, sources=count_sources)
    .join(publish)
    .build()
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Agents that outlast their process.")
    parser.add_argument("question", nargs="?", default="Why do bees dance?")
    parser.add_argument("--store", default=STORE)
    options = parser.parse_args()
    worker = Worker(options.store, flows=[research]).start()
    try:
        with Client(options.store, on_conflict="use_existing") as client:
            run = client.submit(research, options.question, id=options.question)
            report = run.result(timeout="10m")
            again = sum(event.type == "node_retried" for event in run.events())
            print(f"{report}, {again} attempts were repeated")
    finally:
        worker.shutdown()
        worker.join()


if __name__ == "__main__":
    main()
