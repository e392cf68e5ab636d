"""What jobs of the same task have in common, sent once however many of them are written.

Half of what a large batch costs is encoding its columns, and jobs of runs differ in little.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.model.job import NewJob

_WIDTH = 14


class JobKinds:
    """Numbers the kinds of jobs from 1, as they come."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}

    def number_of(self, job: NewJob) -> int:
        lane = job.lane
        kind = (
            job.namespace,
            lane.queue,
            lane.task,
            lane.text,
            job.group,
            job.policy,
            job.input_hash,
            job.priority,
            job.aging.total_seconds(),
            job.max_attempts,
            job.delay,
            job.run_at,
            job.deadline,
            job.deadline_at,
        )
        return self._numbers.setdefault(kind, len(self._numbers) + 1)

    def columns(self) -> Iterator[list[Any]]:
        """One list for each of what a kind consists of."""
        for number in range(_WIDTH):
            yield [kind[number] for kind in self._numbers]


def compact(column: list[Any]) -> list[Any]:
    """Nothing in place of a list without values: the database fills up columns that are short."""
    return [] if column.count(None) == len(column) else column
