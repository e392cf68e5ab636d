"""Durable jobs for Python: SQLite to start with, PostgreSQL to share."""

from perdure.client.blocking import Client, JobHandle
from perdure.client.client import AsyncClient
from perdure.client.context import Context
from perdure.client.flow import Flow
from perdure.client.handles import AsyncJobHandle
from perdure.client.queue import AsyncJobQueue, JobQueue, QueuedJob
from perdure.client.records import AbortOutcome, Depth, GroupAbort, JobRecord, JobUpdate
from perdure.client.task import task
from perdure.errors import (
    Aborted,
    AttemptTimeout,
    DeadlineExceeded,
    DuplicateTask,
    FingerprintTaken,
    IllegalTransition,
    InvalidInput,
    InvalidStoreUrl,
    JobCancelled,
    JobDead,
    JobDisabled,
    JobEnded,
    JobFailed,
    JobNotFound,
    NoResult,
    PayloadNotSerialisable,
    PayloadTooLarge,
    PerdureError,
    Permanent,
    ResultTimeout,
    RetryLater,
    SchemaMismatch,
    StaleClaim,
    StoreError,
    StoreUnreachable,
    UnknownTask,
)
from perdure.model.failure import Failure
from perdure.model.job import Job, Progress, Status
from perdure.model.limit import Concurrency, Rate, Spacing
from perdure.model.payload import Codec
from perdure.model.retry import Retry
from perdure.model.task import Task
from perdure.worker.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "AbortOutcome",
    "Aborted",
    "AsyncClient",
    "AsyncJobHandle",
    "AsyncJobQueue",
    "AttemptTimeout",
    "Client",
    "Codec",
    "Concurrency",
    "Context",
    "DeadlineExceeded",
    "Depth",
    "DuplicateTask",
    "Failure",
    "FingerprintTaken",
    "Flow",
    "GroupAbort",
    "IllegalTransition",
    "InvalidInput",
    "InvalidStoreUrl",
    "Job",
    "JobCancelled",
    "JobDead",
    "JobDisabled",
    "JobEnded",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "JobQueue",
    "JobRecord",
    "JobUpdate",
    "NoResult",
    "PayloadNotSerialisable",
    "PayloadTooLarge",
    "PerdureError",
    "Permanent",
    "Progress",
    "QueuedJob",
    "Rate",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "SchemaMismatch",
    "Spacing",
    "StaleClaim",
    "Status",
    "StoreError",
    "StoreUnreachable",
    "Task",
    "UnknownTask",
    "Worker",
    "task",
]
