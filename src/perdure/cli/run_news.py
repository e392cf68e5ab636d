"""What is new about the runs of a store, from one look to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perdure.actions import cli_command
from perdure.client.run_records import RunRecord
from perdure.diagnostics import Action
from perdure.model.run import RunStatus

LOOK_MAX = 200
"""Runs that are looked at each time, the newest."""


class RunNews(NamedTuple):
    """A run began, or is not as it was."""

    run: RunRecord
    is_new: bool


class RunWatch:
    """Remembers how runs were. The first look tells of nothing: those were there before."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], RunStatus] | None = None

    def news(self, runs: Sequence[RunRecord]) -> Iterator[RunNews]:
        """Of the newest runs, newest first; what is told is in the order in which they began."""
        known, self._known = self._known, {(each.namespace, each.id): each.status for each in runs}
        if known is None:
            return
        for run in reversed(runs):
            before = known.get((run.namespace, run.id))
            if before is None:
                yield RunNews(run, is_new=True)
            if before is not run.status and (before or run.is_ended or _tells(run)):
                yield RunNews(run, is_new=False)


def _tells(run: RunRecord) -> bool:
    """Whether more can be said of a new run than that it began."""
    return run.status is not RunStatus.RUNNING


def told(news: RunNews) -> str:
    """One line: ``order-7 began, a run of orders@3f…``."""
    run = news.run
    if news.is_new:
        return f"{run.id} began, a run of {run.flow}@{run.version}"
    match run.status:
        case RunStatus.WAITING:
            explain = cli_command(Action("runs.explain", {"id": run.id}))
            return f"{run.id} waits; see {explain}"
        case RunStatus.FAILED if run.failure is not None:
            failure = " ".join(f"{run.failure.type}: {run.failure.message}".split())
            return f"{run.id} failed at {run.failed_node}: {failure}"
        case RunStatus.RUNNING:
            return f"{run.id} goes on"
        case status:
            return f"{run.id} is {status}"
