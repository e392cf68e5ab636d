"""An expense that the manager and finance must both approve, or the CFO alone.

    python examples/expenses.py --amount 1800
    python examples/expenses.py --amount 1800 --day 2

The first command waits for days and prints how to answer from another shell. Stop it at any time,
with Ctrl-C or ``kill -9``, and answer while nothing runs; when you start it again, it resumes. The
second command makes a day last two seconds, so that you see the reminder, escalation and deadline.
"""

from __future__ import annotations

import argparse
import shlex
from datetime import timedelta
from typing import Any, TypedDict

from perdure import BuiltFlow, Client, Flow, Worker, task

STORE = "sqlite:///expenses.db"
FORM = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "exclusiveMinimum": 0, "maximum": 5_000},
        "cost_centre": {"type": "string", "enum": ["sales", "research"]},
    },
    "required": ["amount", "cost_centre"],
}


class Notice(TypedDict):
    """What people are told: who may decide the approval, and why they are notified now."""

    approval: str
    why: str
    title: str
    deciders: list[str]


@task
def tell(notice: Notice) -> None:
    """Print a line; a real program would send an email or a message."""
    print(f"{notice['why']}: {notice['title']}", flush=True)
    for decider in notice["deciders"]:
        words = ["perdure", "decide", notice["approval"], "--by", decider, "--store", STORE]
        print(f"  {shlex.join(words)}", flush=True)


@task
def pay(answer: dict[str, Any]) -> str:
    """Pay the approved amount, which may be less than requested."""
    data = answer["data"]
    people = " and ".join(answer["by"])
    return f"paid {data['amount']:g} to {data['who']} for {data['cost_centre']}, said {people}"


@task
def decline(answer: dict[str, Any]) -> str:
    reason = "time is over" if answer["timed_out"] else f"{answer['by'][0]} said no"
    return f"nothing for {answer['data']['who']}: {reason}"


def expenses(day: timedelta) -> BuiltFlow:
    return (
        Flow("expenses")
        .approve(
            "{{ value.who }} spent {{ value.amount }} on {{ value.what }}",
            name="approval",
            deciders=["manager", "finance"],
            policy="all",
            form=FORM,
            reminders=[day],
            escalate={2 * day: ["cfo"]},
            deadline=4 * day,
            on_timeout={"decision": "reject"},
            on_reject="declined",
            notify=tell,
        )
        .then(pay)
        .then(decline, after="approval:declined")
        .build()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="An expense, as a durable run.")
    parser.add_argument("--amount", type=float, default=1_800)
    parser.add_argument("--day", type=float, default=86_400, help="length of a day in seconds")
    options = parser.parse_args()
    flow = expenses(timedelta(seconds=options.day))
    claim = {"who": "Ada", "what": "a trip", "amount": options.amount, "cost_centre": "sales"}
    worker = Worker(STORE, flows=[flow]).start()
    try:
        with Client(STORE, on_conflict="use_existing") as client:
            print(client.submit(flow, claim, id="trip").result())
    finally:
        worker.shutdown()
        worker.join()


if __name__ == "__main__":
    main()
