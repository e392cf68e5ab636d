"""Which waiting jobs no live worker takes, and what one would need for them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from perdure.model.lane import Lane
from perdure.model.worker import PollResult, WorkerState
from perdure.rules.serving import has_code, has_tags


def idle_lanes(survey: PollResult, alive: Sequence[WorkerState]) -> Iterator[tuple[str, str]]:
    """In words, each once, with the options of a worker that would take them."""
    told = set()
    for text in survey.lanes:
        lane = Lane.parse(text)
        if lane.queue in survey.paused:
            continue
        found = _why_idle(lane, alive)
        if found is not None and found not in told:
            told.add(found)
            yield found


def _why_idle(lane: Lane, alive: Sequence[WorkerState]) -> tuple[str, str] | None:
    """Narrows down who could take them."""
    able = [each for each in alive if has_code(each.info, task=lane.task, flow=lane.flow)]
    if not able:
        code = f"jobs of flow {lane.flow}" if lane.flow else f"jobs of task {lane.task!r}"
        return f"{code} wait, and no live worker has it", ""
    code = lane.flow or repr(lane.task)
    serving = [each for each in able if lane.queue in each.info.queues]
    if not serving:
        text = f"jobs wait in queue {lane.queue!r}, which no live worker that has {code} serves"
        return text, f" --queues {shlex.quote(lane.queue)}"
    if not any(has_tags(each.info.tags, lane.tags) for each in serving):
        tags = ", ".join(lane.tags)
        text = f"jobs of {code} wait for a worker with the tags {tags}, and none is live"
        wanted = shlex.quote(",".join(lane.tags))
        return text, f" --queues {shlex.quote(lane.queue)} --tags {wanted}"
    return None
