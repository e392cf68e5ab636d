"""Times far away: refused with nothing written, or kept so that everybody can read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.errors import InvalidInput
from perdure.model.job import JobFilter, Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Retried
from perdure.model.times import LATEST
from perdure.store.contract import Store
from tests.conformance.builders import (
    HOUR,
    NAMESPACE,
    PARTITION,
    SECOND,
    WORKER,
    claim,
    close_limit,
    failure,
    hold,
    insert,
    new_job,
    put_in,
    read,
    settle,
    worker_info,
)

END, BEGINNING = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
LONG, LONGEST = timedelta(days=9_999_999), timedelta.max

JOBS: list[dict[str, Any]] = [
    {"run_at": END},
    {"run_at": BEGINNING},
    {"delay": LONG},
    {"delay": LONGEST},
    {"delay": timedelta.min},
    {"deadline_at": END},
    {"deadline": LONG},
    {"deadline": LONGEST},
]
RETRIES: list[dict[str, Any]] = [
    {"delay": LONG},
    {"delay": LONGEST},
    {"until": END},
    {"until": BEGINNING},
    {"until": END, "hold_off": LONGEST},
    {"delay": SECOND, "hold_off": LONG},
    {"until": END, "closes_limit": "mailer"},
]


async def look_everywhere(store: Store) -> None:
    """Every read that meets the times of jobs, as every worker and operator makes them."""
    for namespace in (NAMESPACE, "another"):
        poll = await store.maintenance.poll(namespace)
        dues = (poll.next_due_at, poll.next_lease_end_at, poll.next_deadline_at)
        assert all(due is None or abs((due - poll.now).days) < 4_000_000 for due in dues)
    for job in await store.queries.list_jobs(JobFilter(), 100):
        again = await store.queries.get_job(None, job.id)
        assert again is not None
        assert again.ready_at == job.ready_at
        assert again.ready_at.utcoffset() == timedelta(0)


class TestFarTimes:
    @pytest.mark.parametrize("times", JOBS)
    async def test_of_a_new_job_are_refused_and_nothing_is_written(
        self, store: Store, times: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInput):
            await store.jobs.insert([new_job(), new_job(**times)])

        assert await store.queries.count_jobs(JobFilter()) == 0
        await look_everywhere(store)

    async def test_of_a_new_job_may_be_as_far_as_any_backend_can_tell(self, store: Store) -> None:
        id = await insert(store, run_at=LATEST - HOUR, deadline_at=LATEST)

        await look_everywhere(store)
        assert (await read(store, id)).deadline_at == LATEST

    @pytest.mark.parametrize("times", RETRIES)
    async def test_of_a_retry_are_kept_where_they_can_be_read(
        self, store: Store, times: dict[str, Any]
    ) -> None:
        held = await hold(store)

        status = await settle(store, held, Retried(failure=failure(), **times))

        assert status in (Status.SCHEDULED, Status.WAITING)
        await look_everywhere(store)
        rules = (LimitRule(key="mailer", live_max=1),)
        opens_at = (await claim(store, rules=rules)).opens_at
        assert opens_at == (LATEST if "closes_limit" in times else None)

    async def test_of_a_lease_are_kept_where_they_can_be_read(self, store: Store) -> None:
        first = await hold(store, lease=LONG)
        await hold(store, lease=LONGEST)
        await insert(store)
        await claim(store, rules=(LimitRule(key="mailer", live_max=9),), lease=LONGEST)
        await store.jobs.renew(WORKER, [first], LONGEST)
        assert await store.maintenance.acquire_lease("keeping house", WORKER, LONGEST)

        await look_everywhere(store)
        assert await store.maintenance.take_over_expired(NAMESPACE, 10, 3) == []

    async def test_of_a_limit_are_kept_where_they_can_be_read(self, store: Store) -> None:
        await close_limit(store, NAMESPACE, "mailer", END)
        await insert(store)

        claimed = await claim(store, PARTITION, rules=(LimitRule(key="mailer", live_max=1),))

        assert claimed.jobs == []
        assert claimed.opens_at == LATEST

    @pytest.mark.parametrize("span", [LONG, LONGEST])
    async def test_of_keeping_remove_nothing(self, store: Store, span: timedelta) -> None:
        await put_in(store, Status.COMPLETED)
        await put_in(store, Status.FAILED)
        await store.maintenance.register_worker(worker_info())

        keep = {Status.COMPLETED: span, Status.FAILED: span}
        assert await store.maintenance.prune_jobs(NAMESPACE, keep, 10) == 0
        assert await store.maintenance.prune_workers(NAMESPACE, span) == 0
