"""The part of a client that is about runs: submit them, read them, and act on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from perdure.client.access import Access
from perdure.client.answering import AsyncAnswering
from perdure.client.checking import StrandedVersion, stranded
from perdure.client.explaining import explain
from perdure.client.forking import ForkPoint, checked_point, encoded_patch, fork
from perdure.client.migrating import migrate
from perdure.client.run_handles import AsyncRunHandle
from perdure.client.run_ids import REASON_MAX, new_run_id, run_id
from perdure.client.run_records import RunMoved, RunRecord, run_record
from perdure.client.submitting import AnyFlow, Submission, Submitting, checked_flow, flow_name
from perdure.diagnostics import safe_repr
from perdure.flows.built import BuiltFlow
from perdure.model import check
from perdure.model.ids import RunId
from perdure.model.payload import to_json
from perdure.model.run import OnExisting, RunFilter, RunStatus
from perdure.model.trigger import CancelRun, PauseRun, ResumeRun, RetryRun, SendSignal
from perdure.operations.insight.explain import Explanation

RUNS_PAGE_MAX = 1_000


class AsyncRuns(AsyncAnswering):
    """What a client does with runs. Every act is recorded as an event of its run."""

    def __init__(
        self,
        access: Access,
        flows: Iterable[BuiltFlow],
        on_conflict: OnExisting,
        aging: timedelta,
    ) -> None:
        super().__init__(access)
        self._submitting = Submitting(access, self._acts, flows, on_conflict, aging)

    async def submit(
        self,
        flow: AnyFlow,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
    ) -> AsyncRunHandle:
        """Begin a run of a flow. When this returns, the run is durable.

        ``flow`` is one that was built, or the name of one of the client's ``flows``. ``id`` is
        your own for this run, else one is made up. ``on_conflict`` says what it means when a run
        has that id already, live or ended: ``"fail"`` raises ``RunExists``, ``"use_existing"``
        gives that run, ``"terminate_existing"`` cancels it and takes its place.
        """
        return await self._submit(self._submitting.prepared(flow, input, id, on_conflict))

    def run_handle(self, id: str, flow: AnyFlow | None = None) -> AsyncRunHandle:
        """A handle on a run that was submitted elsewhere; ``flow`` lets it give typed results."""
        meant = None if flow is None else self._submitting.flow_named(flow)
        return AsyncRunHandle(self, self._access, run_id(id), meant)

    async def run(self, id: str) -> RunRecord:
        """The record of one run."""
        return run_record(await self._acts.found(run_id(id)))

    async def runs(
        self,
        *,
        status: str | None = None,
        flow: AnyFlow | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[RunRecord]:
        """Matching runs, newest first; ``before`` an id is the next page."""
        size = check.integer(limit, "limit", 1, RUNS_PAGE_MAX)
        wanted = self._run_filter(status, flow)
        if before is not None:
            last = await self._acts.found(run_id(before))
            wanted = RunFilter(
                namespace=wanted.namespace,
                status=wanted.status,
                flow=wanted.flow,
                before=(last.created_at, last.id),
            )
        store = await self._access.store.opened()
        return [run_record(run) for run in await store.queries.list_runs(wanted, size)]

    async def count_runs(self, *, status: str | None = None, flow: AnyFlow | None = None) -> int:
        """How many runs match."""
        wanted = self._run_filter(status, flow)
        store = await self._access.store.opened()
        return await store.queries.count_runs(wanted)

    async def signal(
        self, id: str, name: str, payload: Any = None, *, by: str | None = None
    ) -> RunMoved:
        """Bring a run a signal, which it keeps until a node takes it.

        A name that no node of its flow waits for is refused, and so is a run that has ended.
        """
        what = f"the payload of signal {safe_repr(name)}"
        data = to_json(payload, what, self._access.storing.payload_max_bytes)
        signal = SendSignal(name=check.name(name, "signal"), payload=data, by=_by(by))
        return await self._acts.signal(run_id(id), signal)

    async def pause(self, id: str, *, reason: str | None = None, by: str | None = None) -> RunMoved:
        """Start nothing of a run until it is unpaused.

        What is running is taken from its workers and starts again afterwards. Signals that come
        meanwhile are kept. Pausing a paused run changes nothing.
        """
        asked = PauseRun(reason=_reason(reason), by=_by(by))
        return await self._acts.act(run_id(id), asked)

    async def unpause(self, id: str, *, by: str | None = None) -> RunMoved:
        """Let a paused run go on where it stood."""
        return await self._acts.act(run_id(id), ResumeRun(by=_by(by)))

    async def cancel(
        self,
        id: str,
        *,
        reason: str | None = None,
        by: str | None = None,
        compensate: bool = False,
    ) -> RunMoved:
        """End a run and the runs below it.

        With ``compensate`` what it completed is undone first, by the undo tasks of its nodes, in
        reverse order: it is ``compensating`` until then.
        """
        asked = CancelRun(reason=_reason(reason), by=_by(by), compensates=bool(compensate))
        return await self._acts.cancel(run_id(id), asked)

    async def fork(
        self,
        id: str,
        *,
        after: int | str | None = None,
        patch: Mapping[str, Any] | None = None,
        new_id: str | None = None,
        by: str | None = None,
    ) -> AsyncRunHandle:
        """Begin a new run with the past of another one, live or ended, which stays as it is.

        ``after`` is the node after whose completion, or the number of the event after which, the
        two part; without it the past is all there is. ``patch`` has new outputs of nodes that
        were completed by then, for those that come after. The log says where it came from.
        """
        point = ForkPoint(run=run_id(id), after=checked_point(after), by=_by(by))
        outputs = encoded_patch(patch, self._access.storing.payload_max_bytes)
        submitted = await fork(self._access, self._acts, point, new_run_id(new_id), outputs)
        return AsyncRunHandle(self, self._access, submitted.run.id, is_new=submitted.is_new)

    async def migrate(self, id: str, *, to: AnyFlow, by: str | None = None) -> RunMoved:
        """Let a run go on in another version of its flow.

        Raises ``MigrationRefused`` with everything that stands against it: a node that the run
        has reached and that is gone or different, or a job that a worker is executing.
        """
        flow = self._submitting.flow_named(to)
        return await migrate(self._acts, run_id(id), flow, _by(by))

    async def explain(self, id: str) -> Explanation:
        """Why a run is where it is, and what would help: in one sentence, and part by part.

        If there is no run of this id, the same of the job of this id.
        """
        return await explain(self._acts, run_id(id))

    async def stranded(self, flows: Iterable[BuiltFlow]) -> list[StrandedVersion]:
        """The unended runs that workers with these flows could not go on with, by version.

        Each version comes with the nearest one among ``flows``, and each run with what stands
        against migrating it there.
        """
        meant = [checked_flow(flow) for flow in check.listed(flows, "flows", "flows")]
        return await stranded(self._acts, self._access.visible, meant)

    async def _retry_run(self, id: str, by: str | None) -> RunMoved:
        return await self._acts.retry(run_id(id), RetryRun(by=_by(by)))

    async def _submit(self, submission: Submission) -> AsyncRunHandle:
        submitted = await self._submitting.submit(submission)
        return AsyncRunHandle(
            self, self._access, RunId(submission.id), submission.flow, is_new=submitted.is_new
        )

    def _run_filter(self, status: str | None, flow: AnyFlow | None) -> RunFilter:
        return RunFilter(
            namespace=self._access.visible,
            status=check.optional(check.choice, status, "status", RunStatus),
            flow=flow_name(flow),
        )


def _by(by: str | None) -> str | None:
    return check.optional(check.name, by, "by")


def _reason(reason: str | None) -> str | None:
    return check.optional(check.text, reason, "reason", REASON_MAX)
