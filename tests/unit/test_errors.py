"""What errors say, and what they must not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from perdure.errors import InvalidInput, InvalidStoreUrl, RetryLater, RunEnded, RunExists
from perdure.store.opening import store_at


class TestInvalidStoreUrl:
    @pytest.mark.parametrize(
        "url",
        [
            "postgresql+psycopg://ann:secret@host/db",
            "postgresql+psycopg://ann:sec/ret:@host:5432/db?note=a@b",
            "redis://:secret@host/0",
            "mysql://host/db?user=ann&password=secret&sslpassword=secret",
        ],
    )
    def test_hides_the_password(self, url: str) -> None:
        with pytest.raises(InvalidStoreUrl) as caught:
            store_at(url)

        assert "sec" not in str(caught.value)
        assert url.partition(":")[0] in str(caught.value)


class TestRunEnded:
    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    def test_advises_to_retry_what_can_be_retried(self, status: str) -> None:
        told = str(RunEnded("order-3", "pause", status))

        assert "client.retry(id) or client.fork(id)" in told
        assert "perdure runs retry and perdure runs fork" in told

    def test_advises_only_to_fork_what_is_completed(self) -> None:
        told = str(RunEnded("order-3", "pause", "completed"))

        assert "client.fork(id), or perdure runs fork," in told
        assert "retry" not in told


class TestRunExists:
    def test_names_what_commands_take_too(self) -> None:
        told = str(RunExists("order-3", "orders", "running"))

        assert 'on_conflict="use_existing" or "terminate_existing"' in told
        assert told.endswith("and the command --on-conflict")


class TestRetryLater:
    @pytest.mark.parametrize(
        "times",
        [
            {"after": "9999999d"},
            {"after": -1},
            {"after": "soon"},
            {"until": datetime(2031, 1, 1)},  # noqa: DTZ001
            {"until": "noon"},
            {"until": datetime.max.replace(tzinfo=UTC)},
            {"until": datetime.min.replace(tzinfo=UTC)},
            {"until": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))},
            {"until": datetime(2031, 1, 1, tzinfo=UTC), "after": "1s"},
            {"limit": ""},
            {"limit": "a\x00b"},
            {"limit": 7},
        ],
    )
    def test_refuses_what_no_store_could_use(self, times: dict[str, Any]) -> None:
        [name, *_] = times

        with pytest.raises(InvalidInput, match=name):
            RetryLater("not now", **times)
