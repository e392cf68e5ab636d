"""The measured flows. Their tasks do nothing, so that only Perdure's cost remains."""

from __future__ import annotations

from bench.tasks import noop
from perdure import Flow, task
from perdure.flows.built import BuiltFlow

FAN = 100
LENGTHS = (10, 100, 1_000)


@task
async def gather(outputs: dict[str, int]) -> int:
    return len(outputs)


def chain(length: int) -> BuiltFlow:
    flow = Flow(f"chain-{length}")
    for number in range(length):
        flow = flow.then(noop, name=f"step-{number}")
    return flow.build()


def fan() -> BuiltFlow:
    branches = {f"branch-{number}": Flow().then(noop, name=f"n{number}") for number in range(FAN)}
    return Flow("fan").then(noop, name="start").fork(branches).join(gather).build()


def waiting() -> BuiltFlow:
    return Flow("waiting").then(noop).wait_for_signal("go").build()


CHAINS = {length: chain(length) for length in LENGTHS}
FLOWS = [*CHAINS.values(), fan(), waiting()]
