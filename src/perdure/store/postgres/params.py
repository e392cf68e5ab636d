"""The arguments of statements that take many: by name here and in SQL, numbered when loaded."""

from __future__ import annotations

from typing import NamedTuple

from perdure.store.sql.statements import (
    Bigint,
    Boolean,
    Bytea,
    Double,
    Integer,
    Interval,
    Moments,
    Now,
    OneBigint,
    OneBoolean,
    OneBytea,
    OneText,
    Params,
    Text,
    TextArray,
)


class CommitColumns(NamedTuple):
    """Steps of different runs, sorted by namespace and id: the order in which runs are locked."""

    namespace: Text
    run_id: Text
    expected: Bigint
    token: Bigint
    status: Text
    number: Bigint
    """That of the run's last event once it is written."""
    summary: Bytea


class ClaimColumns(NamedTuple):
    """Jobs that these commits settle, sorted by id: the order in which jobs are locked."""

    commit: Integer
    """The position of its commit, from 1; so in all columns below."""
    id: Text
    epoch: Integer
    ends: Boolean
    next_spec: Integer
    """The position of what the next job in its place is like; null if there is none."""
    input: Bytea
    node_key: Text


class EventColumns(NamedTuple):
    commit: Integer
    number: Bigint
    data: Bytea
    value: Bytea


class NewJobColumns(NamedTuple):
    """New jobs."""

    commit: Integer
    id: Text
    run_id: Text
    spec: Integer
    input: Bytea
    node_key: Text


class SpecColumns(NamedTuple):
    """What jobs of the same task have in common, sent once however many of them are written.

    Half of what a large batch costs is encoding its columns, and jobs of runs differ in little.
    """

    namespace: Text
    queue: Text
    task: Text
    lane: Text
    job_group: Text
    policy: Bytea
    input_hash: Bigint
    priority: Integer
    aging: Double
    max_attempts: Integer
    delay: Interval
    run_at: Moments
    deadline: Interval
    deadline_at: Moments


class RetryColumns(NamedTuple):
    """Jobs that go back to the queue after a failure."""

    commit: Integer
    id: Text
    failure: Text
    delay: Interval
    until: Moments
    hold_off: Interval
    is_postponed: Boolean
    closes_limit: Text


class CommitParams(NamedTuple):
    now: Now
    commits: CommitColumns
    claims: ClaimColumns
    events: EventColumns
    jobs: NewJobColumns
    specs: SpecColumns
    retries: RetryColumns
    namespaces: TextArray
    lanes: TextArray


class FirstEventColumns(NamedTuple):
    data: Bytea
    value: Bytea


class NodeJobColumns(NamedTuple):
    """Jobs of a run that is added with them."""

    id: Text
    namespace: Text
    queue: Text
    task: Text
    lane: Text
    job_group: Text
    policy: Bytea
    input: Bytea
    input_hash: Bigint
    priority: Integer
    aging: Double
    max_attempts: Integer
    delay: Interval
    run_at: Moments
    deadline: Interval
    deadline_at: Moments
    run_id: Text
    node_key: Text


class SubmitParams(NamedTuple):
    now: Now
    namespace: OneText
    id: OneText
    flow: OneText
    version: OneText
    status: OneText
    submission: OneBigint
    """Random: by it a submission whose answer was lost recognizes its run."""
    parent_run: OneText
    parent_key: OneText
    summary: OneBytea
    events: FirstEventColumns
    jobs: NodeJobColumns
    has_cooldown: OneBoolean


class OutcomeColumns(NamedTuple):
    """Outcomes of jobs, sorted by id: the order in which jobs are locked."""

    id: Text
    epoch: Integer
    after: Text
    """The status it leads to; null: retried, at the time given by ``delay`` or ``until``."""
    output: Bytea
    is_refunded: Boolean
    is_postponed: Boolean
    closes_limit: Text
    failure: Text
    percent: Double
    message: Text
    details: Bytea
    is_dropped: Boolean
    delay: Interval
    until: Moments
    hold_off: Interval


class SettleParams(NamedTuple):
    now: Now
    outcomes: OutcomeColumns


PARAMS: dict[str, type[Params]] = {
    "commit_runs": CommitParams,
    "settle_jobs": SettleParams,
    "submit_run": SubmitParams,
}
"""By the name of the statement that takes them."""
