"""Sync bodies that ignore their abort signal: no other worker executes their job beside them."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.crash.crash_tasks import ignore_signal, ignore_timeout, keep_place, take_place

SETTINGS = {"lease": "3s", "poll": "200ms", "abort_grace": "200ms"}


def spans(path: Path) -> dict[str, tuple[float, float]]:
    """When the body was first and last seen running, by process."""
    seen: dict[str, list[float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        _, pid, at = line.split()
        seen.setdefault(pid, []).append(float(at))
    return {pid: (min(times), max(times)) for pid, times in seen.items()}


def assert_one_after_the_other(path: Path) -> None:
    first, second = sorted(spans(path).values())
    assert first[1] < second[0], f"two executions overlap: {first} and {second}"


class TestBodiesThatDoNotEnd:
    async def test_a_stopped_one_ends_with_its_process_before_its_job_runs_again(
        self, client, shared_url, launch, tmp_path
    ):
        path = tmp_path / "executions"
        first = await launch(shared_url, grace="200ms", **SETTINGS)
        job = await client.enqueue(ignore_signal.options(max_attempts=1), str(path))
        await first.emitted("AttemptStarted", job.id)
        second = await launch(shared_url, **SETTINGS)
        first.send(signal.SIGTERM)

        assert await first.ended() == 0
        assert await job.result(20) == "attempt 1"
        await second.emitted("AttemptCompleted", job.id)
        assert_one_after_the_other(path)
        record = await job.record()
        assert (record.crashes, record.failures, record.attempt) == (0, 0, 1)
        assert await job.attempts() == []

    async def test_a_timed_out_one_makes_its_worker_end_before_the_retry(
        self, client, shared_url, launch, tmp_path
    ):
        path = tmp_path / "executions"
        first = await launch(shared_url, grace="200ms", **SETTINGS)
        job = await client.enqueue(ignore_timeout, str(path))
        await first.emitted("AttemptStarted", job.id)
        await launch(shared_url, **SETTINGS)

        assert await first.ended() == 7
        assert await job.result(20) == "attempt 2"
        assert_one_after_the_other(path)
        record = await job.record()
        assert (record.crashes, record.failures) == (0, 1)
        [failed] = await job.attempts()
        assert failed.failure.type == "perdure.errors.AttemptTimeout"

    async def test_a_slow_limiter_changes_no_exit_code_and_one_left_keeps_its_place(
        self, client, shared_url, launch, tmp_path
    ):
        left_path, ended_path = tmp_path / "left", tmp_path / "ended"
        worker = await launch(shared_url, grace="200ms", **SETTINGS)
        left = await client.enqueue(keep_place, str(left_path))
        await worker.emitted("AttemptStarted", left.id)
        ended = await client.enqueue(take_place, str(ended_path))
        await worker.emitted("AttemptCompleted", ended.id)
        worker.send(signal.SIGTERM)

        assert await worker.ended() == 0
        assert (await left.record()).crashes == 0
        assert Path(f"{ended_path}-release").read_text(encoding="utf-8") == "asked\ndone\n"
        assert not Path(f"{left_path}-release").exists()
