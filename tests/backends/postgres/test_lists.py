"""Lists are in order and complete, whether few or many jobs have the status."""

from __future__ import annotations

import pytest

from perdure.model.ids import JobId
from perdure.model.job import JobFilter, Status
from tests.conformance.builders import MINUTE, claim_ids, insert_many

FEW, MANY = 150, 450
"""Below and above the number up to which jobs of a status are sorted."""


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("status", [Status.WAITING, Status.SCHEDULED, Status.ACTIVE])
async def test_pages_of_one_status_hold_each_job_once_newest_first(store, status, count):
    delay = MINUTE if status is Status.SCHEDULED else 0 * MINUTE
    others = {Status.WAITING: MINUTE, Status.SCHEDULED: 0 * MINUTE, Status.ACTIVE: MINUTE}
    await insert_many(store, 10, delay=others[status])
    ids = await insert_many(store, count, delay=delay)
    await insert_many(store, 10, delay=others[status])
    if status is Status.ACTIVE:
        await claim_ids(store, limit=count)

    listed: list[JobId] = []
    wanted = JobFilter(namespace="default", status=status)
    while page := await store.queries.list_jobs(wanted, 70):
        assert {job.status for job in page} == {status}
        listed += [job.id for job in page]
        wanted = JobFilter(namespace="default", status=status, before=listed[-1])

    assert listed == ids[::-1]
