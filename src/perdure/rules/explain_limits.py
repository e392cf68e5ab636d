"""Limits that keep a job waiting: which govern it, and who holds what they allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from perdure.model.explanation import Finding, FindingKind, Surroundings
from perdure.model.ids import JobId
from perdure.model.job import Job
from perdure.model.lane import Lane
from perdure.model.limit import Limit, LimitInfo, LimitRule, LimitUse, limit_of
from perdure.model.worker import WorkerState
from perdure.rules.explain_waits import moment
from perdure.rules.limits import governing_rules, room_under

HOLDERS_TOLD = 3


def rules_for(job: Job, flow: str, worker: WorkerState) -> tuple[LimitRule, ...]:
    """What a worker keeps to when it claims a job like this; ``flow`` is empty for a plain one."""
    lane = Lane(queue=job.queue, task=job.task, tags=job.tags, keys=job.limit_keys, flow=flow)
    of_task = [
        info
        for each in worker.info.task_limits
        if (each.task, each.flow) == (job.task, flow)
        for info in each.limits
    ]
    return governing_rules(lane, _limits(of_task), _limits(worker.info.limits))


def _limits(infos: Iterable[LimitInfo]) -> list[Limit]:
    return [limit for limit in map(limit_of, infos) if limit is not None]


def full_limits(
    job: Job, flow: str, able: Sequence[WorkerState], around: Surroundings, now: datetime
) -> list[Finding]:
    """The limits that leave no room on any worker that could take the job; else none."""
    found: dict[LimitRule, Finding] = {}
    for worker in able:
        full = list(_full(rules_for(job, flow, worker), around, now))
        if not full:
            return []
        found |= {rule: _told(job, rule, use, around, now) for rule, use in full}
    return list(found.values())


def _full(
    rules: Sequence[LimitRule], around: Surroundings, now: datetime
) -> Iterator[tuple[LimitRule, LimitUse]]:
    for rule in rules:
        use = around.limit_uses.get(rule)
        if use is not None and not room_under(rule, use.usage, now).count:
            yield rule, use


def _told(job: Job, rule: LimitRule, use: LimitUse, around: Surroundings, now: datetime) -> Finding:
    key = "" if job.node is None else job.node.key
    name, usage = f"limit {rule.key!r}", use.usage
    opens_at = room_under(rule, usage, now).opens_at
    opens = "" if opens_at is None else f"; the next one may start at {moment(opens_at)}"
    if usage.closed_until is not None and usage.closed_until > now:
        until = moment(usage.closed_until)
        text, help = f"{name} is closed until {until}, as a job asked that met it", ""
    elif rule.live_max is not None and usage.live >= rule.live_max:
        text = f"{name} is full: {usage.live} of {rule.live_max} run, {_holders(use, around)}"
        help = "".join(f"client.explain({id!r})" for id in use.held_by[:1])
    elif rule.starts_max is not None and usage.starts >= rule.starts_max:
        text, help = f"{name} is used up: {usage.starts} started within {rule.window}{opens}", ""
    else:
        text, help = f"{name} lets one start every {rule.spacing}{opens}", ""
    return Finding(kind=FindingKind.LIMITED, key=key, text=text, help=help)


def _holders(use: LimitUse, around: Surroundings) -> str:
    told = [_holder(id, around.holders.get(id)) for id in use.held_by[:HOLDERS_TOLD]]
    more = use.usage.live - len(told)
    return "held by " + " and ".join([*told, *([f"{more} more"] if more else [])])


def _holder(id: JobId, job: Job | None) -> str:
    if job is None:
        return f"job {id}"
    of = "" if job.node is None else f" ({job.node.key} of run {job.node.run!r})"
    since = "" if job.started_at is None else f" since {moment(job.started_at)}"
    return f"job {id}{of} on worker {job.worker}{since}"
