"""A report every night at three, in order and without gaps.

    python examples/nightly_report.py
    python examples/nightly_report.py --every 2s

Both commands save a schedule in ``reports.db`` and work until Ctrl-C; the second has shorter
nights. Stop it for a while and start it again: the schedule catches up on missed ticks, in order.
However many copies run at once, each tick starts one run.
"""

from __future__ import annotations

import argparse

from perdure import CONTEXT, Client, Context, Flow, Worker, task

STORE = "sqlite:///reports.db"


@task
def collect(region: str, ctx: Context = CONTEXT) -> dict[str, str]:
    """The id of the run names its tick: ``nightly@2030-01-31T03:00:00Z``."""
    assert ctx.run_id is not None
    return {"region": region, "night": ctx.run_id.partition("@")[2]}


@task
def report(collected: dict[str, str]) -> None:
    print(f"{collected['night']}: sales of the {collected['region']}", flush=True)


sales = Flow("sales").then(collect).then(report).build()


def main() -> None:
    parser = argparse.ArgumentParser(description="A report for every night, whatever happens.")
    parser.add_argument("--every", help="interval such as 2s, instead of nightly at three")
    every = parser.parse_args().every
    with Client(STORE) as client:
        client.schedules.save(
            "nightly",
            sales,
            cron=None if every else "0 3 * * *",
            every=every,
            timezone="UTC" if every else "Europe/Berlin",
            input="north",
            overlap="queue",  # a slow report delays the next one instead of dropping it
            catch_up="all",  # start ticks missed while no worker ran
        )
    Worker(STORE, flows=[sales]).run()


if __name__ == "__main__":
    main()
