"""All operations, by name."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.operations.approvals import Approvals
from perdure.operations.events import Events
from perdure.operations.external import Waits
from perdure.operations.flows import Flows
from perdure.operations.jobs import Jobs
from perdure.operations.operation import Group, Operation, operations_of
from perdure.operations.queues import Queues, Workers
from perdure.operations.runs import Runs
from perdure.operations.schedules import Schedules
from perdure.operations.store import StoreOperations

GROUPS: Mapping[str, type[Group]] = {
    "jobs": Jobs,
    "runs": Runs,
    "approvals": Approvals,
    "events": Events,
    "waits": Waits,
    "schedules": Schedules,
    "queues": Queues,
    "workers": Workers,
    "flows": Flows,
    "store": StoreOperations,
}

OPERATIONS: Mapping[str, Operation] = operations_of(GROUPS.values())

LOCAL: Mapping[str, tuple[str, ...]] = {
    "worker.run": ("module", "queues", "tags", "namespace"),
    "flows.validate": ("file",),
    "store.export": ("file",),
    "store.import": ("file",),
}
"""Commands without an operation and their parameters: they act on this machine, not on a store."""
