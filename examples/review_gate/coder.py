"""An external coder: finds open work, does it, and reports back.

    python -m examples.review_gate.coder

It needs only the store and knows nothing about the flow. Each report has a key, so a report that is
sent twice counts once.
"""

from __future__ import annotations

import argparse
import threading
from typing import Any

from examples.review_gate.agents import STORE
from perdure import Client

PAUSE_SECONDS = 0.2


def write(work: dict[str, Any]) -> dict[str, Any]:
    """Stands for an hour of work. It writes tests only after feedback."""
    title, files = f"Add {work['brief']}", ["facts.py"]
    if work["feedback"]:
        files.append("test_facts.py")
    return {"title": title, "files": files}


def look_for_work(store: str, stop: threading.Event) -> None:
    with Client(store) as client:
        while not stop.wait(PAUSE_SECONDS):
            for wait in client.waits.list(type="external", name="coder"):
                client.runs.report(
                    wait.run,
                    wait.node,
                    status="completed",
                    result=write(wait.detail["data"]),
                    key=f"{wait.run}:{wait.node}",
                    by="coder",
                )


def main() -> None:
    parser = argparse.ArgumentParser("coder", description="A coder who reports back.")
    parser.add_argument("--store", default=STORE)
    look_for_work(parser.parse_args().store, threading.Event())


if __name__ == "__main__":
    main()
