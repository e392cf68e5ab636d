"""Dedup: a fingerprint is unique among the live jobs of its queue."""

from __future__ import annotations

import pytest

from perdure import FingerprintTaken, JobCancelled, Status
from tests.client.tasks import add


class TestFingerprint:
    async def test_returns_the_live_job_by_default(self, client):
        first = await client.enqueue(add.options(fingerprint="one"), 1)
        second = await client.enqueue(add.options(fingerprint="one"), 1)

        assert second.id == first.id
        assert (first.is_new, second.is_new) == (True, False)
        assert await client.jobs.count() == 1

    async def test_raises_when_asked_to(self, client):
        first = await client.enqueue(add.options(fingerprint="one"), 1)

        with pytest.raises(FingerprintTaken) as taken:
            await client.enqueue(add.options(fingerprint="one", on_conflict="fail"), 1)

        assert (taken.value.job_id, taken.value.queue) == (first.id, "default")
        assert await client.jobs.count() == 1

    async def test_replaces_when_asked_to(self, client):
        first = await client.enqueue(add.options(fingerprint="one"), 1)
        second = await client.enqueue(add.options(fingerprint="one", on_conflict="replace"), 2)

        assert second.is_new
        assert await second.status() is Status.WAITING
        with pytest.raises(JobCancelled, match=f"replaced by {second.id}"):
            await first.result(timeout=10)

    async def test_of_a_replaced_active_job_leaves_its_holder_stale(self, client, worker):
        await client.enqueue(add.options(fingerprint="one"), 1)
        job = await worker.claim()
        second = await client.enqueue(add.options(fingerprint="one", on_conflict="replace"), 2)

        assert await worker.complete(job, "too late") is None
        assert await second.status() is Status.WAITING

    async def test_is_free_again_once_the_job_is_finished(self, client, worker):
        first = await client.enqueue(add.options(fingerprint="one"), 1)
        await worker.complete(await worker.claim())

        second = await client.enqueue(add.options(fingerprint="one", on_conflict="fail"), 1)

        assert second.id != first.id

    async def test_is_of_one_queue(self, client):
        first = await client.enqueue(add.options(fingerprint="one"), 1)
        second = await client.enqueue(add.options(fingerprint="one", queue="other"), 1)

        assert second.id != first.id

    async def test_may_be_made_from_the_input(self, client):
        handle = await client.enqueue(add.options(fingerprint=lambda a, b: f"{a}+{b}"), 1, b=2)

        assert (await client.jobs.get(handle.id)).fingerprint == "1+2"
