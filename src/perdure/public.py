"""The public names of ``perdure``, imported from the modules that define them.

Nothing else may be imported here. ``X as X`` marks a name as public for type checkers.
"""

# ruff: noqa: I001 - it would split each import into one statement per name

from perdure.client.client import AsyncClient as AsyncClient
from perdure.client.handles import (
    AsyncJobHandle as AsyncJobHandle,
    AsyncRunHandle as AsyncRunHandle,
)
from perdure.client.queue import (
    AsyncJobQueue as AsyncJobQueue,
    JobQueue as JobQueue,
    QueuedJob as QueuedJob,
)
from perdure.client.sync import (
    Client as Client,
    JobHandle as JobHandle,
    RunHandle as RunHandle,
)
from perdure.diagnostics import (
    Action as Action,
    Fault as Fault,
    Finding as Finding,
    Severity as Severity,
)
from perdure.errors import (
    Aborted as Aborted,
    AlreadyAnswered as AlreadyAnswered,
    ApprovalChanged as ApprovalChanged,
    AmbiguousRun as AmbiguousRun,
    ApprovalDecided as ApprovalDecided,
    ApprovalNotFound as ApprovalNotFound,
    AttemptTimeout as AttemptTimeout,
    CheckFailed as CheckFailed,
    Conflict as Conflict,
    ContractMismatch as ContractMismatch,
    DeadlineExceeded as DeadlineExceeded,
    DuplicateTask as DuplicateTask,
    DefinitionCorrupt as DefinitionCorrupt,
    EventLogCorrupt as EventLogCorrupt,
    EventsGap as EventsGap,
    FingerprintTaken as FingerprintTaken,
    IllegalTransition as IllegalTransition,
    InvalidAnswer as InvalidAnswer,
    InvalidFlow as InvalidFlow,
    InvalidInput as InvalidInput,
    InvalidStoreUrl as InvalidStoreUrl,
    JobBelongsToRun as JobBelongsToRun,
    JobCancelled as JobCancelled,
    JobDead as JobDead,
    JobDisabled as JobDisabled,
    JobUnsuccessful as JobUnsuccessful,
    JobFailed as JobFailed,
    JobNotFound as JobNotFound,
    LoopExhausted as LoopExhausted,
    MailboxFull as MailboxFull,
    MigrationRefused as MigrationRefused,
    MissingSecret as MissingSecret,
    NodeNotFound as NodeNotFound,
    NodeNotWaiting as NodeNotWaiting,
    NoResult as NoResult,
    NotDecider as NotDecider,
    NotAllowed as NotAllowed,
    NotFound as NotFound,
    ExternalFailed as ExternalFailed,
    PayloadNotSerializable as PayloadNotSerializable,
    PayloadTooLarge as PayloadTooLarge,
    PerdureError as PerdureError,
    Permanent as Permanent,
    QueueAlreadyPaused as QueueAlreadyPaused,
    QueueNotPaused as QueueNotPaused,
    Rejected as Rejected,
    ResultTimeout as ResultTimeout,
    RetryLater as RetryLater,
    RunAlreadyPaused as RunAlreadyPaused,
    RunCancelled as RunCancelled,
    RunEnded as RunEnded,
    RunUnsuccessful as RunUnsuccessful,
    RunExists as RunExists,
    RunFailed as RunFailed,
    RunNotFound as RunNotFound,
    RunNotPaused as RunNotPaused,
    RunNotRetryable as RunNotRetryable,
    RunSkipped as RunSkipped,
    RunStuck as RunStuck,
    RunTimeout as RunTimeout,
    ScheduleAlreadyPaused as ScheduleAlreadyPaused,
    ScheduleNotFound as ScheduleNotFound,
    ScheduleNotPaused as ScheduleNotPaused,
    ScheduleUnreadable as ScheduleUnreadable,
    SchemaMismatch as SchemaMismatch,
    SecretNotGranted as SecretNotGranted,
    ClaimLost as ClaimLost,
    StoreError as StoreError,
    StoreUnreachable as StoreUnreachable,
    TaskError as TaskError,
    TemplateMissing as TemplateMissing,
    TooManySubscribers as TooManySubscribers,
    UnknownEvent as UnknownEvent,
    UnknownFlow as UnknownFlow,
    UnknownNodeType as UnknownNodeType,
    UnknownTask as UnknownTask,
    WaitTimedOut as WaitTimedOut,
    WorkerSuperseded as WorkerSuperseded,
)
from perdure.flows.builder import Flow as Flow
from perdure.flows.built import BuiltFlow as BuiltFlow
from perdure.flows.yaml.load import load_flow as load_flow
from perdure.inline import (
    run_flow as run_flow,
    run_flow_async as run_flow_async,
)
from perdure.model.facts import (
    EndedCounts as EndedCounts,
    FlowRuns as FlowRuns,
)
from perdure.model.failure import Failure as Failure
from perdure.model.job import (
    Job as Job,
    Progress as Progress,
    Status as Status,
)
from perdure.model.limit import (
    Concurrency as Concurrency,
    CustomLimit as CustomLimit,
    Limiter as Limiter,
    Rate as Rate,
    Spacing as Spacing,
)
from perdure.model.payload import Codec as Codec
from perdure.model.retry import Retry as Retry
from perdure.model.run import (
    RunStatus as RunStatus,
    WaitType as WaitType,
)
from perdure.model.schedule import (
    TickRecord as TickRecord,
    TickResult as TickResult,
    UnreadableSchedule as UnreadableSchedule,
)
from perdure.model.wait import (
    Report as Report,
    ReportStatus as ReportStatus,
)
from perdure.operations.insight.explain import Explanation as Explanation
from perdure.operations.insight.health import Health as Health
from perdure.operations.insight.lineage import (
    Lineage as Lineage,
    NodeLineage as NodeLineage,
    PartLineage as PartLineage,
    Use as Use,
    UseOrigin as UseOrigin,
)
from perdure.operations.page import Page as Page
from perdure.operations.records import (
    Answer as Answer,
    ApprovalRecord as ApprovalRecord,
    ApprovalStatus as ApprovalStatus,
    BroadcastResult as BroadcastResult,
    ChildRun as ChildRun,
    Enqueued as Enqueued,
    EventRecord as EventRecord,
    GroupChange as GroupChange,
    JobChange as JobChange,
    JobRecord as JobRecord,
    JobUpdate as JobUpdate,
    NodeRecord as NodeRecord,
    QueueStats as QueueStats,
    Reminder as Reminder,
    ReportOutcome as ReportOutcome,
    ReportReceipt as ReportReceipt,
    RunChange as RunChange,
    RunDetail as RunDetail,
    RunRecord as RunRecord,
    WorkerRecord as WorkerRecord,
    RunSnapshot as RunSnapshot,
    RunStarted as RunStarted,
    ScheduleRecord as ScheduleRecord,
    ScheduleStarted as ScheduleStarted,
    UnservedRun as UnservedRun,
    UnservedVersion as UnservedVersion,
    WaitRecord as WaitRecord,
)
from perdure.render.diagram import Diagram as Diagram
from perdure.render.timeline import Timeline as Timeline
from perdure.tasks.context import (
    CONTEXT as CONTEXT,
    AsyncContext as AsyncContext,
    BaseContext as BaseContext,
    Context as Context,
)
from perdure.tasks.node_type import (
    NodeType as NodeType,
    NodeConfig as NodeConfig,
)
from perdure.tasks.resource import resource as resource
from perdure.tasks.result import (
    complete as complete,
    failed as failed,
    paused as paused,
    skipped as skipped,
)
from perdure.tasks.task import (
    AsyncTask as AsyncTask,
    Task as Task,
    task as task,
)
from perdure.worker.burst import BurstResult as BurstResult
from perdure.worker.grants import Grant as Grant
from perdure.worker.worker import Worker as Worker
