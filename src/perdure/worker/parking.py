"""Pauses of plain jobs: parked until somebody resumes them, with the checkpoint kept as a step.

A job that belongs to no run has no log in which a pause could stand. Its checkpoint is stored
under the claim, then the job is parked under the same claim. A worker that dies in between leaves
a checkpoint of a pause that never was: nobody resumed the job, so it must pause again. Such a
death is counted on the job. A pause counts as over if no worker died since, and that is noted at
once, so that later deaths do not matter. When in doubt the job pauses again, which is safe.
"""

from __future__ import annotations

from typing import Any

from perdure.model.job import ClaimedJob
from perdure.model.outcome import Paused
from perdure.model.payload import Codec, as_type, from_json, to_json
from perdure.model.report import PastPause, Report, ReportStatus, Resumption
from perdure.model.run import StoredStep
from perdure.model.value import Value
from perdure.store.contract import Store

OWN_PREFIX = "perdure:"
_PAUSE, _RESUMED = f"{OWN_PREFIX}pause:", f"{OWN_PREFIX}resumed:"


class _Parked(Value):
    name: str
    checkpoint: Any
    deaths: int


async def save_checkpoint(
    store: Store, job: ClaimedJob, owner: str, codec: Codec, paused: Paused
) -> None:
    """Keep what a parked job needs to go on; ``StaleClaim`` if it is no longer ours to park."""
    checkpoint = from_json(codec.decode(paused.checkpoint))
    parked = _Parked(name=paused.name, checkpoint=checkpoint, deaths=job.deaths)
    # Of one claim there is one pause at most, so a repeated write changes nothing.
    await _save(store, job, owner, codec, f"{_PAUSE}{job.claim.epoch}", parked)


async def past_pauses(store: Store, job: ClaimedJob, owner: str, codec: Codec) -> Resumption:
    """The pauses that the job was resumed from, in their order."""
    steps = {step.name: step.value for step in await store.runs.load_steps(owner)}
    pauses = []
    for name, value in steps.items():
        if not name.startswith(_PAUSE):
            continue
        parked = as_type(from_json(codec.decode(value)), _Parked)
        mark = f"{_RESUMED}{name.removeprefix(_PAUSE)}"
        if mark not in steps:
            if parked.deaths != job.deaths:
                continue
            await _save(store, job, owner, codec, mark, None)
        report = Report(status=ReportStatus.COMPLETED)
        pauses.append(PastPause(name=parked.name, checkpoint=parked.checkpoint, report=report))
    return Resumption(pauses=tuple(pauses))


async def _save(
    store: Store, job: ClaimedJob, owner: str, codec: Codec, name: str, value: Any
) -> None:
    plain = to_json(value, f"step {name!r}", 2**31)
    await store.runs.save_step(job.claim, owner, StoredStep(name=name, value=codec.encode(plain)))
