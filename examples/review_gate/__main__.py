"""Agents research, write and review; a person decides what is published.

    python -m examples.review_gate
    python -m examples.review_gate --play

The flow is ``review_gate.yaml``, with ``round.yaml`` for each round. The program prints how to
answer from another shell, and waits. Stop it at any time, with Ctrl-C or ``kill -9``, and answer
while nothing runs: when you start it again, it resumes. With ``--play`` it answers on its own: it
rejects once and then approves with another title.

The coder of the flow is a thread here, but could be any program with access to the store: with
``--no-coder``, run ``python -m examples.review_gate.coder`` in another shell.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from contextlib import ExitStack

from examples.review_gate.agents import STORE, flow, how_to_answer
from examples.review_gate.coder import PAUSE_SECONDS, look_for_work
from perdure import Client, Worker


def play(store: str, stop: threading.Event) -> None:
    """A maintainer who always rejects the first version."""
    with Client(store) as client:
        while not stop.wait(PAUSE_SECONDS):
            for approval in client.approvals.list("role:maintainers"):
                if "#2:" in approval.id:
                    client.approvals.decide(
                        approval.id, "reject", by="ada", roles=["maintainers"], note="too long"
                    )
                else:
                    client.approvals.decide(
                        approval.id,
                        "approve",
                        data={"title": "Add facts", "risk": "medium"},
                        by="ada",
                        roles=["maintainers"],
                    )


def beside(stack: ExitStack, work: Callable[[str, threading.Event], None], store: str) -> None:
    """Run a participant in a thread until the end."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(store, stop))
    thread.start()
    stack.callback(thread.join)
    stack.callback(stop.set)


def main() -> None:
    parser = argparse.ArgumentParser("review_gate", description="Agents, and a person who decides.")
    parser.add_argument("topic", nargs="?", default="bees")
    parser.add_argument("--play", action="store_true", help="answer the approvals automatically")
    parser.add_argument("--no-coder", action="store_true", help="run coder.py separately")
    options = parser.parse_args()
    with ExitStack() as stack:
        client = stack.enter_context(Client(STORE, on_conflict="use_existing"))
        for approval in client.approvals.list("role:maintainers"):
            print(f"still open: {approval.title}\n{how_to_answer(approval.id)}", flush=True)
        worker = Worker(STORE, flows=[flow]).start()
        stack.callback(worker.join)
        stack.callback(worker.shutdown)
        if not options.no_coder:
            beside(stack, look_for_work, STORE)
        if options.play:
            beside(stack, play, STORE)
        run = client.submit(flow, {"topic": options.topic}, id=options.topic)
        print(run.result())


if __name__ == "__main__":
    main()
