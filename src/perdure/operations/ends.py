"""Following the ends of jobs and runs by their rows, each at least once.

Rows are read by time of end, but a commit becomes visible after the time that it wrote, so the end
of the log is read again: the last seconds often, the last minute now and then. What was delivered
is remembered for as long as it is read again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from perdure.diagnostics import declare, safe_repr
from perdure.errors import EventLogCorrupt, EventsGap, InvalidInput, UnknownEvent
from perdure.model.client_event import (
    ClientEvent,
    EndedJob,
    EndFilter,
    EventFilter,
    EventSource,
    bounded_result,
)
from perdure.model.ids import RunId
from perdure.model.job import JobState, Status
from perdure.model.payload import Codec
from perdure.model.run import Run, RunStatus, Wait, WaitFilter, WaitType
from perdure.model.times import EARLIEST
from perdure.operations.page import decode_cursor, encode_cursor
from perdure.operations.records import run_record
from perdure.operations.results import run_output
from perdure.store.admission import CLOCK_STEP_MIN
from perdure.store.contract import Store

INVALID_CURSOR = declare(
    "events.invalid_cursor",
    "{value} is not the cursor of an event",
    "Pass the cursor of an event",
)

PAGE = 1_000
DETAILS = 100
"""Ends whose results are read together."""
MARGINS = (
    (timedelta(seconds=60), timedelta(seconds=20)),
    (timedelta(seconds=5), timedelta(seconds=1)),
)
"""How far back to read again, and how often. A statement on PostgreSQL may wait that long for an
answer (``answer_timeout``) after it has read the clock."""
MARGIN_MAX = MARGINS[0][0]
START = EARLIEST + MARGIN_MAX
"""Before everything."""
CURSOR_ENDS_MAX = 64
"""Ends that a cursor names as delivered; of the others within the margin, some come twice."""
Row = EndedJob | Run | Wait
_SOURCES = (EventSource.JOB, EventSource.RUN, EventSource.WAIT)
_HASH_BYTES = 8
_BETWEEN = "\n"
"""In the id of a wait, between its run and its key."""


class Cursor(NamedTuple):
    at: tuple[datetime, datetime, datetime]
    """By source."""
    delivered: tuple[bytes, ...]


def parse_cursor(cursor: Any) -> Cursor:
    try:
        *at, delivered = decode_cursor(
            "events.stream", cursor, tuple[datetime, datetime, datetime, bytes]
        )
    except InvalidInput:
        raise InvalidInput(INVALID_CURSOR.fault(("after",), value=safe_repr(cursor))) from None
    starts = range(0, len(delivered), _HASH_BYTES)
    hashes = tuple(delivered[start : start + _HASH_BYTES] for start in starts)
    return Cursor((at[0], at[1], at[2]), hashes)


class Ends:
    """How far the ends of one source have been read: pure; ``EndFollower`` does the reads."""

    def __init__(self, at: datetime, delivered: Iterable[bytes] = ()) -> None:
        self.at = at
        """Everything that ended earlier was delivered, except what becomes visible late."""
        self._delivered = dict.fromkeys(delivered, at)
        """By hash, with the time of end, in the order of delivery."""
        self._again_at = [EARLIEST] * len(MARGINS)

    def start(self, now: datetime) -> datetime:
        """The time of end from which to read now."""
        if (
            self.at - now > CLOCK_STEP_MIN
        ):  # the clock was set back, so ends are earlier from now on
            self.at = now
            self._again_at = [EARLIEST] * len(MARGINS)
        start = self.at
        for number, (margin, every) in reversed([*enumerate(MARGINS)]):
            if now >= self._again_at[number]:
                self._again_at[number] = now + every
                start = self.at - margin
        return start

    def is_new(self, id: str, at: datetime) -> bool:
        return _hash(id, at) not in self._delivered

    def take(self, id: str, at: datetime) -> None:
        """This end is delivered."""
        self._delivered[_hash(id, at)] = at
        self.at = max(self.at, at)

    def read_up_to(self, now: datetime) -> None:
        """Everything that was visible was delivered."""
        self.at = max(self.at, now)
        limit = self.at - MARGIN_MAX
        self._delivered = {key: at for key, at in self._delivered.items() if at >= limit}

    def latest(self) -> list[bytes]:
        return list(islice(reversed(self._delivered), CURSOR_ENDS_MAX // len(_SOURCES)))


class EndFollower:
    """Reads the ends that a filter selects as events, and knows the cursor after each."""

    def __init__(self, store: Store, namespace: str, wanted: EventFilter, codec: Codec) -> None:
        self._store = store
        self._namespace = namespace
        self._wanted = wanted
        self._codec = codec
        self._ends: dict[EventSource, Ends] = {}

    @property
    def cursor(self) -> str:
        every = [self._ends[source] for source in _SOURCES]
        delivered = b"".join(key for each in every for key in each.latest())
        return encode_cursor("events.stream", (*(each.at for each in every), delivered))

    async def start(self) -> None:
        """Follow what ends from now on."""
        now = await self._store.now()
        self._ends = {source: Ends(now) for source in _SOURCES}
        async for _ in self._read(now, is_silent=True):
            pass

    async def resume(self, cursor: Cursor) -> None:
        """Continue after a cursor; raises ``EventsGap`` if ends after it were pruned."""
        now = await self._store.now()
        self._ends = {
            # Ahead of the clock, which was set back since then, by an unknown amount.
            source: Ends(START if at - now > CLOCK_STEP_MIN else at, cursor.delivered)
            for source, at in zip(_SOURCES, cursor.at, strict=True)
        }
        await self.check_gap()

    async def check_gap(self) -> None:
        """Raise ``EventsGap`` if ends that are yet to be read were pruned."""
        pruned = await self._store.queries.pruned_until(self._namespace)
        for source, ends in self._ends.items():
            for status in self._wanted.statuses(source):
                until = pruned.get(f"{source}.{status}")
                if until is not None and until > ends.at:
                    raise EventsGap(cursor_at=ends.at, pruned_until=until)

    async def read(self) -> AsyncIterator[ClientEvent]:
        """What has ended since the last read, in the order of time, late ones out of order."""
        now = await self._store.now()
        if any(now - ends.at > MARGIN_MAX for ends in self._ends.values()):  # a slow reader
            await self.check_gap()
        async for event in self._read(now):
            yield event

    async def _read(self, now: datetime, *, is_silent: bool = False) -> AsyncIterator[ClientEvent]:
        for source, ends in self._ends.items():
            after: tuple[datetime, str] | None = (ends.start(now), "")
            while after is not None:
                rows, after = await self._page(source, after, now)
                new = [row for row in rows if ends.is_new(_id(row), _ended_at(row))]
                for start in range(0, len(new), DETAILS):
                    batch = new[start : start + DETAILS]
                    events = [None] * len(batch) if is_silent else await self._events(batch)
                    for row, event in zip(batch, events, strict=True):
                        ends.take(_id(row), _ended_at(row))
                        if event is not None:
                            yield replace(event, cursor=self.cursor)
            ends.read_up_to(now)

    async def _page(
        self, source: EventSource, after: tuple[datetime, str], now: datetime
    ) -> tuple[Sequence[Row], tuple[datetime, str] | None]:
        """The next ends, and where the page after them starts."""
        statuses = self._wanted.statuses(source)
        if not statuses:
            return (), None
        wanted = EndFilter(
            namespace=self._namespace,
            statuses=statuses,
            after=after,
            until=now + CLOCK_STEP_MIN,  # later ones were written before the clock was set back
            queue=self._wanted.queue,
            task=self._wanted.task,
            flow=self._wanted.flow,
        )
        queries = self._store.queries
        rows: Sequence[Row]
        if source is EventSource.JOB:
            rows = await queries.ended_jobs(wanted, PAGE)
        elif source is EventSource.RUN:
            rows = await queries.ended_runs(wanted, PAGE)
        else:
            run, _, key = after[1].partition(_BETWEEN)
            opened = WaitFilter(
                namespace=self._namespace,
                type=WaitType.APPROVAL,
                after=(after[0], RunId(run), key),
            )
            rows = await queries.list_waits(opened, PAGE)
            return rows, None if len(rows) < PAGE else (rows[-1].opened_at, _id(rows[-1]))
        return rows, None if len(rows) < PAGE else (_ended_at(rows[-1]), _id(rows[-1]))

    async def _events(self, rows: Sequence[Row]) -> list[ClientEvent | None]:
        jobs = [row.id for row in rows if isinstance(row, EndedJob)]
        states = await self._store.queries.job_states(jobs) if jobs else {}
        waits = [(self._namespace, row.run) for row in rows if isinstance(row, Wait)]
        runs = await self._store.queries.get_runs(waits) if waits else []
        flows = {run.id: run.flow for run in runs if run is not None}
        events: list[ClientEvent | None] = []
        for row in rows:
            if isinstance(row, EndedJob):
                events.append(self._job_event(row, states.get(row.id)))
            elif isinstance(row, Run):
                events.append(await self._run_event(row))
            else:
                events.append(self._approval_event(row, flows.get(row.run)))
        return events

    def _approval_event(self, wait: Wait, flow: str | None) -> ClientEvent | None:
        if self._wanted.flow not in (None, flow):
            return None
        return ClientEvent(
            type="approval.opened",
            at=wait.opened_at,
            namespace=self._namespace,
            run=wait.run,
            flow=flow,
            node=wait.key,
        )

    def _job_event(self, job: EndedJob, state: JobState | None) -> ClientEvent:
        if state is not None and state.status is not job.status:  # retried meanwhile
            state = None
        result, is_omitted = bounded_result(None if state is None else state.output, self._codec)
        return ClientEvent(
            type=f"job.{job.status}",
            at=job.at,
            namespace=self._namespace,
            job=job.id,
            task=job.task,
            queue=job.queue,
            attempt=job.attempt,
            result=result,
            is_result_omitted=is_omitted or (state is None and job.status is Status.COMPLETED),
            failure=None if state is None else state.failure,
        )

    async def _run_event(self, run: Run) -> ClientEvent:
        record, output, is_lost = run_record(run), None, False
        if run.status is RunStatus.COMPLETED:
            try:
                output = await run_output(self._store, run)
            # Retried or pruned meanwhile, or written by a newer version.
            except (EventLogCorrupt, UnknownEvent):
                is_lost = True
        result, is_omitted = bounded_result(output, self._codec)
        return ClientEvent(
            type=f"run.{run.status}",
            at=_ended_at(run),
            namespace=self._namespace,
            run=run.id,
            flow=run.flow,
            node=record.failed_node,
            parent=None if run.parent is None else run.parent.run,
            result=result,
            is_result_omitted=is_omitted or is_lost,
            failure=record.failure,
            reason=record.reason,
            by=record.by,
        )


def _id(row: Row) -> str:
    return f"{row.run}{_BETWEEN}{row.key}" if isinstance(row, Wait) else row.id


def _ended_at(row: Row) -> datetime:
    """When it ended, or an approval was opened."""
    match row:
        case EndedJob():
            return row.at
        case Run():
            assert row.finished_at is not None
            return row.finished_at
        case Wait():
            return row.opened_at


def _hash(id: str, at: datetime) -> bytes:
    return blake2b(f"{id} {at.isoformat()}".encode(), digest_size=_HASH_BYTES).digest()
