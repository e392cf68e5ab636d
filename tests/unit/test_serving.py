"""Which workers are live, and which have what a job needs."""

from __future__ import annotations

import ast
from datetime import UTC, datetime, timedelta

import pytest

from perdure.model.ids import WorkerId
from perdure.model.worker import WorkerInfo, WorkerState, has_code, has_tags, is_live
from tests.architecture.source_tree import modules

SEEN = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEASE = timedelta(seconds=30)
MOMENT = timedelta(microseconds=1)
INFO = WorkerInfo(
    id=WorkerId("w-1"),
    namespace="default",
    host="box",
    pid=1,
    queues=("default",),
    tasks=("send",),
    tags=None,
    concurrency=4,
    lease=LEASE,
    flows=("orders@v1",),
)
WORKER = WorkerState(info=INFO, started_at=SEEN, seen_at=SEEN, running=())


class TestIsLive:
    def test_until_its_lease_is_over(self):
        assert is_live(WORKER, SEEN + LEASE)
        assert not is_live(WORKER, SEEN + LEASE + MOMENT)

    @pytest.mark.parametrize("leases", [0.5, 4])
    def test_for_part_of_a_lease_or_several(self, leases):
        assert is_live(WORKER, SEEN + leases * LEASE, leases=leases)
        assert not is_live(WORKER, SEEN + leases * LEASE + MOMENT, leases=leases)

    def test_is_asked_here_alone(self):
        """Stores keep leases and may read them; everybody else asks this rule."""
        elsewhere = {
            module.name
            for module in modules()
            if not module.name.startswith("store.")
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Attribute)
            and node.attr == "lease"
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "info"
        }

        assert elsewhere == {"model.worker"}


class TestHasCode:
    def test_of_a_run_the_version_counts_and_of_a_plain_job_the_task(self):
        assert has_code(INFO, task="anything", flow="orders@v1")
        assert not has_code(INFO, task="send", flow="orders@v2")
        assert has_code(INFO, task="send", flow="")
        assert not has_code(INFO, task="orders@v1", flow="")


class TestHasTags:
    def test_a_worker_without_tags_takes_any_job(self):
        assert has_tags(None, ["gpu"])

    def test_a_worker_with_tags_needs_all_that_are_wanted(self):
        assert has_tags(["gpu", "eu"], ["gpu"])
        assert has_tags([], [])
        assert not has_tags(["gpu"], ["gpu", "eu"])
