"""Places in memory: who shares one, and how long it lives."""

from __future__ import annotations

import gc

import pytest

from perdure.errors import InvalidInput, InvalidStoreUrl
from perdure.model.job import JobFilter
from perdure.store.memory.store import MemoryStore
from perdure.testing.contract.builders import insert, new_job
from tests.support.refusal import refused


async def count(store: MemoryStore) -> int:
    return await store.queries.count_jobs(JobFilter())


class TestPlaces:
    async def test_are_shared_by_all_handles_of_one_name(self, memory_url):
        first, second = MemoryStore(memory_url), MemoryStore(memory_url)
        await insert(first)
        assert await count(second) == 1

    async def test_are_kept_apart_by_name(self, memory_url):
        first, other = MemoryStore(memory_url), MemoryStore(memory_url + "-other")
        await insert(first)
        assert await count(other) == 0

    async def test_without_a_name_belong_to_one_store_and_its_twins(self):
        mine, other = MemoryStore("memory://"), MemoryStore("memory://")
        target = mine.clone()
        await insert(mine)
        assert await count(target) == 1
        assert await count(other) == 0

    async def test_live_as_long_as_a_handle_on_them(self, memory_url):
        store = MemoryStore(memory_url)
        target = store.clone()
        await insert(store)

        del store
        gc.collect()
        assert await count(MemoryStore(memory_url)) == 1

        del target
        gc.collect()
        assert await count(MemoryStore(memory_url)) == 0

    @pytest.mark.parametrize(
        "url", ["memory:name", "memory://name?schema=x", "memory://name#x", "sqlite:///x.db"]
    )
    def test_are_not_named_like_this(self, url):
        with refused("store.invalid_url", InvalidStoreUrl):
            MemoryStore(url)


class TestInsertInTransaction:
    async def test_is_refused_because_memory_takes_part_in_no_transaction(self, memory_url):
        store = MemoryStore(memory_url)
        with refused("store.unusable_connection", InvalidInput):
            await store.insert_in_transaction(object(), [new_job()])
        with refused("store.unusable_connection", InvalidInput):
            store.insert_in_blocking_transaction(object(), [new_job()])
        assert await count(store) == 0
