"""What operators ask now and then."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from perdure.model.duration import nearest_duration
from perdure.model.insight import STRAYS_MAX, EndedCounts, Examination, FlowRuns, Stray
from perdure.model.job import FINISHED
from perdure.model.run import ENDED, RunStatus
from perdure.store.contract import InsightStore
from perdure.store.memory.index import Index
from perdure.store.memory.state import State
from perdure.store.memory.stored_run import StoredRun
from perdure.store.memory.transaction import Handle


class MemoryInsight(Handle, InsightStore):
    async def examine(self) -> Examination:
        with self._transaction() as transaction:
            state = transaction.state
            oldest_first = (state.records.runs[place] for place in state.records.by_age.ids())
            strays = (
                Stray(run=run.id, namespace=run.namespace)
                for run in oldest_first
                if _is_stray(state, run)
            )
            return Examination(strays=tuple(islice(strays, STRAYS_MAX)))

    async def count_flows(self, namespace: str | None) -> list[FlowRuns]:
        with self._transaction() as transaction:
            records = transaction.state.records
            return [
                _counted(definition, records.runs.values())
                for definition in sorted(records.definitions)
                if namespace in (None, definition[0])
            ]

    async def count_ended(self, namespace: str, keep: timedelta) -> EndedCounts:
        with self._transaction() as transaction:
            state, until = transaction.state, transaction.now - nearest_duration(keep)
            jobs = {each: _ended(state.finished, until, (namespace, each)) for each in FINISHED}
            runs = {each: _ended(state.records.ended, until, (namespace, each)) for each in ENDED}
            return EndedCounts(
                jobs={status: count for status, count in jobs.items() if count},
                runs={status: count for status, count in runs.items() if count},
            )


def _is_stray(state: State, run: StoredRun) -> bool:
    if run.is_ended or run.status is RunStatus.PAUSED or state.records.waits_of(run.place):
        return False
    return all(state.jobs[id].status in FINISHED for id in state.of_run.ids(run.place))


def _counted(definition: tuple[str, str, str], runs: Iterable[StoredRun]) -> FlowRuns:
    namespace, flow, version = definition
    of_it = [each for each in runs if (each.namespace, each.flow, each.version) == definition]
    ended = sum(run.is_ended for run in of_it)
    return FlowRuns(
        namespace=namespace,
        flow=flow,
        version=version,
        live=len(of_it) - ended,
        ended=ended,
        last_submitted_at=max((run.created_at for run in of_it), default=None),
    )


def _ended(index: Index[Any, Any], until: datetime, group: tuple[str, str]) -> int:
    return len(index.entries(group)) - index.count_after(until, group)
