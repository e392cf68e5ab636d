"""The pure part of enqueueing: from a task, a call and its options to a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from perdure.clock import new_id
from perdure.errors import InvalidInput
from perdure.model.ids import JobId
from perdure.model.job import NewJob
from perdure.model.partition import Partition
from perdure.tasks.calls import (
    JobDefaults,
    JobMaker,
    Storing,
    defaults_of,
    job_template,
    may_be_refused,
    payload_job,
)
from perdure.tasks.task import Task
from tests.client.tasks import add, embed, for_user, named
from tests.support.refusal import refused

MINUTE = timedelta(minutes=1)
NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)


def template(task: Task[..., Any] = add, **options: Any) -> NewJob:
    return job_template(defaults_of(task, "team-a", MINUTE), task.options(**options).settings)


def made(task: Task[..., Any], *args: Any, kwargs: dict[str, Any] | None = None) -> NewJob:
    maker = JobMaker(task, template(task))
    return maker.job(JobId(new_id()), args, kwargs or {}, Storing())


class TestJobTemplate:
    def test_takes_what_the_task_says(self):
        job = template(embed)

        assert job.partition == Partition(queue="embeddings", task="embed", tags=("gpu",))
        assert (job.namespace, job.aging, job.priority) == ("team-a", MINUTE, 2)
        assert job.policy is None

    def test_prefers_what_the_options_say(self):
        job = template(embed, queue="other", priority=5, tags=[])

        assert (job.partition.queue, job.partition.tags, job.priority) == ("other", (), 5)

    def test_takes_none_for_not_given(self):
        assert template(embed, queue=None, priority=None, tags=None, delay=None) == template(embed)

    def test_reads_moments_as_utc(self):
        elsewhere = NOON.astimezone(timezone(timedelta(hours=9)))
        job = template(run_at=elsewhere, deadline=elsewhere + MINUTE)

        assert (job.run_at, job.deadline_at) == (NOON, NOON + MINUTE)
        assert job.run_at is not None
        assert job.run_at.tzinfo is UTC

    def test_refuses_a_moment_that_utc_cannot_tell(self):
        edge = datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))

        with refused("argument.range", InvalidInput, name="run_at"):
            template(run_at=edge)

    def test_names_the_nearest_option(self):
        with refused("argument.unknown", InvalidInput, name="que", nearest=("queue",)):
            template(que="x")


class TestJobMaker:
    def test_stores_equal_calls_equally(self):
        calls = [
            made(add, 1, 2),
            made(add, 1, kwargs={"b": 2}),
            made(add, kwargs={"b": 2, "a": 1}),
        ]

        assert {(job.input, job.input_hash) for job in calls} == {
            (b"[[1,2],{}]", calls[0].input_hash)
        }

    def test_tells_tasks_and_inputs_apart(self):
        hashes = {made(add, 1).input_hash, made(add, 2).input_hash, made(embed, "1").input_hash}

        assert len(hashes) == 3
        assert all(0 <= each < 2**63 for each in hashes)

    def test_leaves_the_context_to_the_worker(self):
        assert made(embed, "hello").input == b'[["hello"],{}]'

    def test_keeps_keyword_only_arguments_by_name(self):
        assert made(named, kwargs={"queue": "q"}).input == b'[[],{"queue":"q"}]'

    def test_gives_equal_keys_one_partition(self):
        maker = JobMaker(for_user, template(for_user))
        jobs = [maker.job(JobId("x"), (user,), {}, Storing()) for user in ("ann", "bob", "ann")]

        assert [job.partition.keys for job in jobs] == [("user:ann",), ("user:bob",), ("user:ann",)]
        assert jobs[0].partition is jobs[2].partition


class TestPayloadJob:
    def test_is_a_call_with_one_argument(self):
        defaults = JobDefaults(namespace="n", aging=MINUTE, task="start", max_attempts=3)
        job = payload_job(JobId("x"), defaults, {"run": 1}, {"priority": 1}, Storing())

        assert job.input == b'[[{"run":1}],{}]'
        assert (job.partition.task, job.priority, job.max_attempts) == ("start", 1, 3)


class TestMayBeRefused:
    @pytest.mark.parametrize(
        "options, expected",
        [
            ({}, False),
            ({"fingerprint": "x"}, False),
            ({"fingerprint": "x", "on_conflict": "replace"}, False),
            ({"fingerprint": "x", "on_conflict": "fail"}, True),
            ({"on_conflict": "fail"}, False),
            ({"deadline": "1m"}, True),
            ({"deadline": NOON}, True),
        ],
    )
    def test_by_reasons_that_neighbours_do_not_share(self, options, expected):
        assert may_be_refused(template(**options)) is expected
