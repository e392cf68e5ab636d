"""Named arguments of statements that take many; numbered when the statements are loaded."""

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
    OneDouble,
    OneInteger,
    OneInterval,
    OneJson,
    OneMoment,
    OneText,
    Params,
    Text,
    TextArray,
)


class JobColumns(NamedTuple):
    """New jobs."""

    id: Text
    namespace: Text
    queue: Text
    task: Text
    partition_key: Text
    job_group: Text
    fingerprint: Text
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


class InsertParams(NamedTuple):
    now: Now
    jobs: JobColumns


class InputColumns(NamedTuple):
    id: Text
    input: Bytea
    input_hash: Bigint


class InsertLikeParams(NamedTuple):
    """Jobs that differ only in their inputs."""

    now: Now
    inputs: InputColumns
    namespace: OneText
    queue: OneText
    task: OneText
    partition_key: OneText
    job_group: OneText
    policy: OneBytea
    priority: OneInteger
    max_attempts: OneInteger
    aging: OneDouble
    run_at: OneMoment
    delay: OneInterval
    deadline_at: OneMoment
    deadline: OneInterval


class FingerprintColumns(NamedTuple):
    """New jobs with their fingerprints."""

    id: Text
    namespace: Text
    queue: Text
    fingerprint: Text


class FindRivalsParams(NamedTuple):
    given: FingerprintColumns


class ReplacingColumns(NamedTuple):
    id: Text
    namespace: Text
    queue: Text
    fingerprint: Text
    failure: Text
    """The failure to record for the job that has the fingerprint now."""


class ReplaceRivalsParams(NamedTuple):
    now: Now
    given: ReplacingColumns


class ClaimFromOnePartitionParams(NamedTuple):
    now: Now
    namespace: OneText
    worker: OneText
    lease: OneInterval
    partition_key: OneText
    queue: OneText
    limit: OneBigint
    alone: OneBoolean
    incarnation: OneBigint


class PartitionColumns(NamedTuple):
    partition_key: Text
    queue: Text


class ClaimFromPartitionsParams(NamedTuple):
    now: Now
    namespace: OneText
    worker: OneText
    lease: OneInterval
    wanted: PartitionColumns
    limit: OneBigint
    front: OneBigint
    """How many jobs of each partition to read to bound the locked ones; 0: no bound."""
    alone: OneBoolean
    incarnation: OneBigint


class SkippedAllParams(NamedTuple):
    now: Now
    namespace: OneText
    worker: OneText
    wanted: PartitionColumns


class RoomColumns(NamedTuple):
    partition_key: Text
    room: Integer
    """How many of its jobs may start at most."""


class LimitCandidatesParams(NamedTuple):
    now: Now
    namespace: OneText
    worker: OneText
    wanted: RoomColumns


class ChosenColumns(NamedTuple):
    id: Text
    keys: Text
    """The keys of the limits that the job counts under, as JSON; null without any."""


class StartColumns(NamedTuple):
    """The new state of limits under which jobs start."""

    key: Text
    number: Integer
    span: Interval
    """The longest window in which starts are counted; null without one."""
    memory: Interval
    """For how long the key must be kept."""


class StartUnderLimitsParams(NamedTuple):
    now: Now
    namespace: OneText
    worker: OneText
    lease: OneInterval
    chosen: ChosenColumns
    starts: StartColumns
    alone: OneBoolean
    incarnation: OneBigint


class OutputColumns(NamedTuple):
    """Outputs of jobs, sorted by id: the order in which jobs are locked."""

    id: Text
    epoch: Integer
    output: Bytea


class SettleCompletedParams(NamedTuple):
    now: Now
    outcomes: OutputColumns
    is_hidden: OneBoolean


class OutcomeColumns(NamedTuple):
    """Outcomes of jobs, sorted by id: the order in which jobs are locked."""

    id: Text
    epoch: Integer
    after: Text
    """The status it leads to; null: ready again at the time given by ``delay`` or ``until``."""
    output: Bytea
    is_refunded: Boolean
    is_snoozed: Boolean
    closes_limit: Text
    failure: Text
    percent: Double
    message: Text
    details: Bytea
    is_hidden: Boolean
    delay: Interval
    until: Moments
    hold_off: Interval
    partition_key: Text
    """Another partition to move to; null: the same."""


class SettleParams(NamedTuple):
    now: Now
    outcomes: OutcomeColumns


class ProgressColumns(NamedTuple):
    """Progress of jobs, sorted by id: the order in which jobs are locked."""

    id: Text
    epoch: Integer
    percent: Double
    message: Text
    details: Bytea


class SaveProgressParams(NamedTuple):
    latest: ProgressColumns


class MoveStartParams(NamedTuple):
    now: Now
    id: OneText
    epoch: OneInteger
    within: OneInterval


class SaveStepParams(NamedTuple):
    id: OneText
    epoch: OneInteger
    owner: OneText
    name: OneText
    value: OneBytea


class AcceptParkedParams(NamedTuple):
    now: OneMoment
    id: OneText
    epoch: OneInteger
    worker: OneText
    is_repeated: OneBoolean


class ResumeParkedParams(NamedTuple):
    id: OneText
    epoch: OneInteger
    name: OneText
    value: OneBytea


class FirstEventColumns(NamedTuple):
    data: Bytea
    value: Bytea


class NodeJobColumns(NamedTuple):
    """Jobs of a run that is added with them."""

    id: Text
    namespace: Text
    queue: Text
    task: Text
    partition_key: Text
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
    """Random: lets a submission whose response was lost recognize its run."""
    parent_run: OneText
    parent_key: OneText
    summary: OneBytea
    events: FirstEventColumns
    jobs: NodeJobColumns
    has_cooldown: OneBoolean
    priority: OneInteger
    start_at: OneMoment
    start_delay: OneInterval
    """Both null if the run is not delayed."""
    place_key: OneText
    place_limit: OneInteger
    aging: OneDouble
    settings: OneBytea
    fresh: OneInterval
    """How recently its definition must have been used; null: no requirement."""
    former: OneMoment
    """When the run that it replaces was created."""
    step: OneInterval
    """A former time further ahead than this shows that the clock was set back."""


class ChildColumns(NamedTuple):
    """New runs, sorted by namespace and id: the order in which ids are inserted."""

    namespace: Text
    id: Text
    flow: Text
    version: Text
    status: Text
    number: Bigint
    parent_run: Text
    parent_key: Text
    summary: Bytea
    priority: Integer
    start_at: Moments
    start_delay: Interval
    settings: Bytea


class AddRunsParams(NamedTuple):
    now: Now
    step: OneInterval
    children: ChildColumns


class NewEventColumns(NamedTuple):
    serial: Bigint
    number: Bigint
    data: Bytea
    value: Bytea


class AddEventsParams(NamedTuple):
    now: Now
    events: NewEventColumns


class WaitColumns(NamedTuple):
    """New waits, sorted by run, namespace and key: the order in which waits are locked."""

    namespace: Text
    run_id: Text
    key: Text
    type: Text
    name: Text
    delay: Interval
    due_at: Moments
    deciders: Text
    """Each in PostgreSQL's array syntax."""
    detail: Bytea
    remaining: Bigint
    """Microseconds, of a timer whose clock is stopped; it has neither delay nor due_at."""


class OpenWaitsParams(NamedTuple):
    now: Now
    opened: WaitColumns


class EndedColumns(NamedTuple):
    """Ended children, sorted by the waits of their parents, in lock order."""

    namespace: Text
    run_id: Text
    """The id of the parent."""
    key: Text
    child: Text


class WakeParentsParams(NamedTuple):
    now: Now
    ended: EndedColumns


class CommitColumns(NamedTuple):
    """Steps of different runs, sorted by namespace and id: the order in which runs are locked."""

    namespace: Text
    run_id: Text
    expected: Bigint
    token: Bigint
    status: Text
    created_at: Moments
    number: Bigint
    """The run's last event after this commit."""
    summary: Bytea


class ClaimColumns(NamedTuple):
    """The jobs that these commits settle, sorted by id: the order in which jobs are locked."""

    commit: Integer
    """The position of its commit, from 1, as in all columns below."""
    id: Text
    epoch: Integer
    ends: Boolean
    next_spec: Integer
    """The position of the next job's spec; null without a next job."""
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
    """Attributes that jobs of one task share, sent once however many jobs are written.

    Half the cost of a large batch is encoding its columns, and jobs of runs differ in little.
    """

    namespace: Text
    queue: Text
    task: Text
    partition_key: Text
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
    """Jobs that are requeued after a failure."""

    commit: Integer
    id: Text
    failure: Text
    delay: Interval
    until: Moments
    hold_off: Interval
    is_snoozed: Boolean
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
    partitions: TextArray


class TakenOverColumns(NamedTuple):
    id: Text
    status: Text
    partition_key: Text


class TakeOverParams(NamedTuple):
    now: Now
    taken: TakenOverColumns


class FailureColumns(NamedTuple):
    """Jobs that failed without an attempt to settle them."""

    id: Text
    attempt: Integer
    worker: Text
    failure: Text


class AddFailuresParams(NamedTuple):
    now: Now
    failed: FailureColumns


class RetentionColumns(NamedTuple):
    status: Text
    span: Interval


class PruneJobsParams(NamedTuple):
    now: Now
    namespace: OneText
    completed: OneInterval
    """How long completed jobs are kept; null: forever."""
    disabled: OneInterval
    """The same for disabled ones."""
    kept: RetentionColumns
    limit: OneBigint


class EndedJobsParams(NamedTuple):
    namespace: OneText
    statuses: TextArray
    after_at: OneMoment
    after_id: OneText
    until: OneMoment
    queue: OneText
    task: OneText
    limit: OneBigint


class EndedRunsParams(NamedTuple):
    namespace: OneText
    statuses: TextArray
    after_at: OneMoment
    after_id: OneText
    until: OneMoment
    flow: OneText
    limit: OneBigint


class SaveSubscriberParams(NamedTuple):
    now: Now
    namespace: OneText
    id: OneText
    filter: OneBytea
    lease: OneInterval
    most: OneBigint


class LiveEventColumns(NamedTuple):
    event: Bytea


class PublishLiveEventsParams(NamedTuple):
    now: Now
    namespace: OneText
    kept: OneInterval
    published: LiveEventColumns


class PickOldRunsParams(NamedTuple):
    now: Now
    namespace: OneText
    kept: RetentionColumns
    limit: OneBigint


class RegisterWorkerParams(NamedTuple):
    now: Now
    id: OneText
    namespace: OneText
    info: OneJson
    lease: OneInterval
    counts: OneJson
    incarnation: OneBigint
    starts: OneBoolean


class CountColumns(NamedTuple):
    namespace: Text
    task: Text
    queue: Text
    name: Text
    value: Bigint


class KeepCountsParams(NamedTuple):
    counted: CountColumns


class ScheduleParams(NamedTuple):
    namespace: OneText
    name: OneText
    revision: OneBigint
    due_at: OneMoment
    definition: OneBytea
    state: OneBytea


PARAMS: dict[str, type[Params]] = {
    "add_events": AddEventsParams,
    "add_failures": AddFailuresParams,
    "add_runs": AddRunsParams,
    "claim_from_partitions": ClaimFromPartitionsParams,
    "claim_from_one_partition": ClaimFromOnePartitionParams,
    "skipped_all": SkippedAllParams,
    "commit_runs": CommitParams,
    "ended_jobs": EndedJobsParams,
    "ended_runs": EndedRunsParams,
    "find_rivals": FindRivalsParams,
    "insert_jobs": InsertParams,
    "insert_like_jobs": InsertLikeParams,
    "insert_schedule": ScheduleParams,
    "keep_counts": KeepCountsParams,
    "limit_candidates": LimitCandidatesParams,
    "accept_parked": AcceptParkedParams,
    "resume_parked": ResumeParkedParams,
    "move_start": MoveStartParams,
    "open_waits": OpenWaitsParams,
    "pick_old_runs": PickOldRunsParams,
    "prune_jobs": PruneJobsParams,
    "publish_live_events": PublishLiveEventsParams,
    "register_worker": RegisterWorkerParams,
    "replace_rivals": ReplaceRivalsParams,
    "save_progress": SaveProgressParams,
    "save_step": SaveStepParams,
    "save_subscriber": SaveSubscriberParams,
    "settle_completed": SettleCompletedParams,
    "settle_jobs": SettleParams,
    "start_under_limits": StartUnderLimitsParams,
    "submit_run": SubmitParams,
    "take_over": TakeOverParams,
    "update_schedule": ScheduleParams,
    "wake_parents": WakeParentsParams,
}
"""By statement name."""
