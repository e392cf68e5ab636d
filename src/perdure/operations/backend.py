"""Shared state of operations: store, namespace, codec, known tasks and flows, waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, get_args

from perdure.diagnostics import declare, safe_repr
from perdure.engine.cached_run import CachedRun
from perdure.engine.plan import Plan
from perdure.engine.runs import Graphs, RunEngine
from perdure.errors import AmbiguousRun, DuplicateTask, InvalidInput, RunNotFound, UnknownFlow
from perdure.flows.built import NOT_BUILT, BuiltFlow
from perdure.model import check
from perdure.model.ids import RunId
from perdure.model.job import ALL_NAMESPACES, Inserted, NewJob
from perdure.model.payload import PAYLOAD_MAX_BYTES, Codec, PlainCodec, to_json
from perdure.model.run import OnExisting, Run, RunFilter
from perdure.model.trigger import Trigger
from perdure.operations.lazy_store import LazyStore
from perdure.operations.waiting import waiting_for_jobs, waiting_for_runs
from perdure.store.admission import AGING_DEFAULT
from perdure.store.batching import Batcher
from perdure.store.contract import Store
from perdure.tasks.calls import Storing
from perdure.tasks.node_type import TaskRegistry, as_task
from perdure.tasks.task import Task

AnyTask = Task[..., Any] | str
AnyFlow = BuiltFlow | str

INSERT_BATCH_MAX = 1_000
"""Maximum number of single enqueues per insert."""
UNREAD_SIGNALS_MAX = 1_000
"""Signals of one name that a run keeps until a node takes them."""
NAMED_MAX = 20
"""Namespaces listed in the error if several have a run with the same id."""

NAMESPACE_REQUIRED = declare(
    "client.namespace_required",
    "{operation} needs a single namespace (got '*')",
    "Name one with `namespace`",
)
TWO_VERSIONS = declare(
    "flow.two_versions",
    "there are two versions of flow {flow!r}",
    "Keep one, and pass the other to submit() itself",
)


class Backend:
    """Shared by all groups of operations of one client, and by its handles."""

    def __init__(
        self,
        store: str | Store,
        *,
        namespace: str,
        tasks: Iterable[Task[..., Any]] = (),
        flows: Iterable[BuiltFlow] = (),
        on_conflict: OnExisting = "fail",
        aging: timedelta = AGING_DEFAULT,
        payload_max_bytes: int = PAYLOAD_MAX_BYTES,
        unread_signals_max: int = UNREAD_SIGNALS_MAX,
        codec: Codec | None = None,
    ) -> None:
        self.namespace = check.name(namespace, "namespace")
        self.codec = codec or PlainCodec()
        self.payload_max_bytes = check.integer(payload_max_bytes, "payload_max_bytes", 1)
        self.storing = Storing(codec=self.codec, payload_max_bytes=self.payload_max_bytes)
        self.unread_signals_max = check.integer(unread_signals_max, "unread_signals_max", 1)
        self.aging = aging
        self.on_conflict = checked_policy(on_conflict)
        self.tasks = TaskRegistry(tasks)
        self.flows = _flows_by_name(flows)
        self.graphs = Graphs(graph for flow in self.flows.values() for graph in flow.graphs)
        self.place = LazyStore(store)
        self.store = self.place.opened
        """Return the store, opened on first use."""
        self.job_waits = waiting_for_jobs(self.place)
        self.run_waits = waiting_for_runs(self.place)
        self.subscriptions: set[asyncio.Task[None]] = set()
        self.inserts: Batcher[NewJob, Inserted] = Batcher(
            self._insert_batch, batch_max=INSERT_BATCH_MAX
        )

    async def close(self) -> None:
        # The handler that closes the client returns afterwards, and its subscription ends then.
        others = self.subscriptions - {asyncio.current_task()}
        for subscription in others:
            subscription.cancel()
        if others:
            await asyncio.wait(others)
        await self.inserts.flush()
        await self.job_waits.close()
        await self.run_waits.close()
        await self.place.close()

    async def _insert_batch(self, jobs: list[NewJob]) -> list[Inserted]:
        return await (await self.store()).jobs.insert(jobs)

    @property
    def visible(self) -> str | None:
        """The namespace to read; None for an operator's client, which reads all."""
        return None if self.namespace == ALL_NAMESPACES else self.namespace

    def require_namespace(self, operation: str) -> str:
        """Return the namespace, for an operation that cannot span all of them."""
        if self.namespace == ALL_NAMESPACES:
            raise InvalidInput(NAMESPACE_REQUIRED.fault(operation=operation))
        return self.namespace

    def json(self, value: Any, what: str) -> bytes:
        return to_json(value, what, self.payload_max_bytes)

    def task(self, task: AnyTask) -> Task[..., Any]:
        """Return the task; a name must be registered with the client."""
        if isinstance(task, str):
            return self.tasks[task]
        base = as_task(task).base
        if base.name in self.tasks and self.tasks[base.name] is not base:
            raise DuplicateTask(name=base.name)
        return task

    def flow(self, flow: AnyFlow) -> BuiltFlow:
        """Return the flow; a name must be registered with the client."""
        if not isinstance(flow, str):
            return checked_flow(flow)
        known = self.flows.get(flow)
        if known is None:
            raise UnknownFlow(flow=flow, known=tuple(sorted(self.flows)))
        return known

    async def engine(self) -> RunEngine:
        return RunEngine(await self.store(), self.graphs, self.codec)

    async def find_run(self, id: RunId) -> Run:
        """Return the run with this id. If several namespaces have one, it is ambiguous and
        refused."""
        store = await self.store()
        if self.visible is not None:
            [run] = await store.queries.get_runs([(self.visible, id)])
            runs = [] if run is None else [run]
        else:
            runs = await store.queries.list_runs(RunFilter(id=id), NAMED_MAX)
        if not runs:
            raise RunNotFound(run_id=id)
        if len(runs) > 1:
            raise AmbiguousRun(run_id=id, namespaces=tuple(sorted(run.namespace for run in runs)))
        return runs[0]

    async def namespace_of(self, id: RunId) -> str:
        return (await self.find_run(id)).namespace if self.visible is None else self.visible

    async def load_run(self, id: RunId) -> CachedRun:
        engine = await self.engine()
        return await engine.load(await self.namespace_of(id), id)

    async def command(self, run: CachedRun, command: Trigger) -> Plan:
        """Apply a command to a loaded run; after a conflict, reload it and apply it again."""
        return await (await self.engine()).apply_to(run, command)


def checked_flow(flow: Any) -> BuiltFlow:
    if not isinstance(flow, BuiltFlow):
        raise InvalidInput(NOT_BUILT.fault(value=safe_repr(flow)))
    return flow


def checked_policy(on_conflict: Any) -> OnExisting:
    policy: OnExisting = check.choice(on_conflict, "on_conflict", get_args(OnExisting))
    return policy


def flow_name(flow: AnyFlow | None) -> str | None:
    """The flow name by which to filter a list."""
    name = flow.name if isinstance(flow, BuiltFlow) else flow
    return check.optional(check.stored_name, name, "flow")


def _flows_by_name(flows: Iterable[BuiltFlow]) -> dict[str, BuiltFlow]:
    known: dict[str, BuiltFlow] = {}
    for flow in check.listed(flows, "flows", "flows"):
        other = known.setdefault(checked_flow(flow).name, flow)
        if other.version != flow.version:
            raise InvalidInput(TWO_VERSIONS.fault(("flows",), flow=flow.name))
    return known
