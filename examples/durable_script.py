"""A script of several steps that can be killed at any point and resumes where it stopped.

    python examples/durable_script.py --die-after 3
    python examples/durable_script.py

It closes the books of a month: an ordinary function whose expensive parts go through ``ctx.step``.
The result of each step is stored in ``closing.db`` and reused by a second execution. The first
command kills its own process with SIGKILL after three steps; the second one does the rest and
repeats nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

from perdure import CONTEXT, Client, Context, Flow, Worker, task

STORE = "sqlite:///closing.db"
CUSTOMERS = ["Ada", "Bob", "Cid"]


class Office:
    """The steps: each stands for a call that is slow, costs money or notifies someone."""

    def __init__(self) -> None:
        self.die_after = 0
        self.done = 0

    def did(self, what: str) -> None:
        self.done += 1
        print(f"did step {self.done} of this process: {what}", flush=True)

    def fetch_rates(self, month: str) -> dict[str, float]:
        self.did(f"fetched the rates of {month}")
        return {"EUR": 1.0, "GBP": 1.17}

    def write_invoice(self, customer: str, rate: float) -> dict[str, Any]:
        self.did(f"wrote the invoice for {customer}")
        return {"customer": customer, "amount": round(100 * len(customer) * rate, 2)}

    def send(self, invoices: list[dict[str, Any]]) -> str:
        self.did(f"sent {len(invoices)} invoices")
        return f"receipt {sum(invoice['amount'] for invoice in invoices):.2f}"

    def die_if_asked(self) -> None:
        """Crash after the step was stored, as a power failure would."""
        if self.die_after and self.done >= self.die_after:
            os.kill(os.getpid(), signal.SIGKILL)


office = Office()


@task
def close_month(month: str, ctx: Context = CONTEXT) -> str:
    """The whole script. It can use loops, conditions and variables freely."""
    rates = ctx.step("rates", office.fetch_rates, month)
    office.die_if_asked()
    invoices = []
    for customer in CUSTOMERS:
        rate = rates["GBP" if customer == "Bob" else "EUR"]
        invoices.append(ctx.step(f"invoice {customer}", office.write_invoice, customer, rate))
        office.die_if_asked()
    return f"{month} is closed: {ctx.step('send', office.send, invoices)}"


closing = Flow("closing").then(close_month).build()


def main() -> None:
    parser = argparse.ArgumentParser(description="A script that resumes where it was killed.")
    parser.add_argument("month", nargs="?", default="2026-10")
    parser.add_argument("--die-after", type=int, default=0, metavar="STEPS")
    parser.add_argument("--store", default=STORE)
    options = parser.parse_args()
    office.die_after = options.die_after
    # A crashed worker's job is taken over when its lease expires; short, to keep the demo fast.
    worker = Worker(options.store, flows=[closing], lease="1s", poll="200ms").start()
    try:
        with Client(options.store, on_conflict="use_existing") as client:
            run = client.submit(closing, options.month, id=options.month)
            print(run.result())
    finally:
        worker.shutdown()
        worker.join()


if __name__ == "__main__":
    main()
