"""What operators ask now and then."""

from __future__ import annotations

import os
from datetime import timedelta

from perdure.model.insight import STRAYS_MAX, EndedCounts, Examination, FlowRuns, Stray
from perdure.model.job import Status
from perdure.model.run import RunStatus
from perdure.store.contract import InsightStore
from perdure.store.sql.migrations import indexes_made, load_migrations
from perdure.store.sqlite.handle import Handle
from perdure.store.sqlite.rows import micros_in, moment
from perdure.store.sqlite.statements import PACKAGE
from perdure.store.sqlite.transaction import Transaction

_SOUND = "ok"


class SqliteInsight(Handle, InsightStore):
    async def examine(self) -> Examination:
        wanted = indexes_made(load_migrations(PACKAGE, {"prefix": self._place.prefix}))
        path = self._place.path

        def look(transaction: Transaction) -> Examination:
            present = {name for (name,) in transaction.rows("indexes_present")}
            damages = (text for (text,) in transaction.rows("damages"))
            strays = transaction.rows("strays", limit=STRAYS_MAX)
            return Examination(
                schema_version=transaction.rows("schema_version")[0][0],
                damages=tuple(text for text in damages if text != _SOUND),
                missing_indexes={name: wanted[name] for name in sorted(wanted.keys() - present)},
                log_bytes=_size(f"{path}-wal"),
                strays=tuple(Stray(run=run, namespace=namespace) for run, namespace in strays),
            )

        return await self._read(look)

    async def count_flows(self, namespace: str | None) -> list[FlowRuns]:
        return [
            FlowRuns(
                namespace=place,
                flow=flow,
                version=version,
                live=live,
                ended=ended,
                last_submitted_at=None if last is None else moment(last),
            )
            for place, flow, version, live, ended, last in await self._rows(
                "count_flows", namespace=namespace
            )
        ]

    async def count_ended(self, namespace: str, keep: timedelta) -> EndedCounts:
        def count(transaction: Transaction) -> EndedCounts:
            old = {"namespace": namespace, "until": transaction.now - micros_in(keep)}
            jobs = transaction.rows("count_ended_jobs", **old)
            runs = transaction.rows("count_ended_runs", **old)
            return EndedCounts(
                jobs={Status(status): count for status, count in jobs},
                runs={RunStatus(status): count for status, count in runs},
            )

        return await self._read(count)


def _size(path: str) -> int:
    """0 for a log that is not there: everything has been moved into the file."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0
