"""What operators ask now and then."""

from __future__ import annotations

from datetime import timedelta

from perdure.model.duration import nearest_duration
from perdure.model.insight import STRAYS_MAX, EndedCounts, Examination, FlowRuns, Stray
from perdure.model.job import Status
from perdure.model.run import RunStatus
from perdure.store.contract import InsightStore
from perdure.store.postgres.access import Access
from perdure.store.postgres.statements import PACKAGE, place_in_sql
from perdure.store.sql.migrations import indexes_made, load_migrations


class PostgresInsight(Access, InsightStore):
    async def examine(self) -> Examination:
        schema = self._address.schema
        wanted = indexes_made(load_migrations(PACKAGE, place_in_sql(schema)))
        present = dict(await self._fetch("indexes_present", schema))
        strays = await self._scan(self._statements["strays"], STRAYS_MAX)
        return Examination(
            schema_version=(await self._fetch("schema_version"))[0][0],
            missing_indexes={name: wanted[name] for name in sorted(wanted.keys() - present.keys())},
            invalid_indexes={
                name: f'REINDEX INDEX CONCURRENTLY "{schema}".{name};'
                for name in sorted(wanted)
                if present.get(name) is False
            },
            strays=tuple(Stray(run=run, namespace=namespace) for run, namespace in strays),
        )

    async def count_flows(self, namespace: str | None) -> list[FlowRuns]:
        return [
            FlowRuns(
                namespace=place,
                flow=flow,
                version=version,
                live=live,
                ended=ended,
                last_submitted_at=last,
            )
            for place, flow, version, live, ended, last in await self._scan(
                self._statements["count_flows"], namespace
            )
        ]

    async def count_ended(self, namespace: str, keep: timedelta) -> EndedCounts:
        old = (self._moment(), namespace, nearest_duration(keep))
        jobs = await self._scan(self._statements["count_ended_jobs"], *old)
        runs = await self._scan(self._statements["count_ended_runs"], *old)
        return EndedCounts(
            jobs={Status(status): count for status, count in jobs},
            runs={RunStatus(status): count for status, count in runs},
        )
