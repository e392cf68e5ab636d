"""The clock that tests turn, and ids that sort by when they were made."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from perdure.clock import ManualClock, new_id, system_clock


class TestManualClock:
    def test_stands_still_until_it_is_turned(self):
        start = datetime(2031, 5, 6, tzinfo=UTC)
        clock = ManualClock(start)

        assert clock() == clock() == start
        clock.advance(timedelta(microseconds=1))
        assert clock() == start + timedelta(microseconds=1)


class TestSystemClock:
    def test_is_aware_of_its_zone(self):
        assert system_clock().utcoffset() == timedelta(0)


class TestNewId:
    def test_sorts_by_when_it_was_made(self):
        ids = [new_id() for _ in range(5000)]

        assert ids == sorted(set(ids))

    def test_has_26_plain_characters(self):
        id = new_id()

        assert len(id) == 26
        assert id.isascii()
        assert id.isalnum()
        assert id == id.lower()

    def test_differs_from_thread_to_thread(self):
        with ThreadPoolExecutor(4) as threads:
            batches = list(threads.map(lambda _: [new_id() for _ in range(1000)], range(4)))

        assert len({id for batch in batches for id in batch}) == 4000
