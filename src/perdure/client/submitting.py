"""From a flow and an input to a run: what is refused, and what an id that is taken means."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, get_args

from msgspec.structs import replace

from perdure.client.access import Access
from perdure.client.run_acts import RunActs
from perdure.client.run_ids import new_run_id
from perdure.client.run_input import check_input
from perdure.diagnostics import declare, safe_repr
from perdure.engine.plan import PlanContext, start_run
from perdure.errors import (
    EventLogCorrupt,
    InvalidInput,
    RunEnded,
    RunExists,
    RunNotFound,
    UnknownFlow,
)
from perdure.flows.built import NOT_BUILT, BuiltFlow
from perdure.model import check
from perdure.model.ids import RunId
from perdure.model.payload import from_json, to_json
from perdure.model.run import NewRun, OnExisting, Submitted
from perdure.model.trigger import CancelRun
from perdure.model.value import Value

AnyFlow = BuiltFlow | str

_log = logging.getLogger("perdure.client")

TWO_VERSIONS = declare(
    "flow.two_versions",
    "there are two versions of flow {flow!r}",
    "Keep one, and pass the other to submit() itself",
)
OTHER_FLOW = declare(
    "run.other_flow",
    "run {run_id!r} exists already, and its flow is {existing!r}, not {flow!r}",
    "Choose another id",
)


class Submission(Value):
    """A run that may be submitted: everything about it was checked."""

    flow: BuiltFlow
    input: bytes
    """As JSON."""
    run: NewRun
    on_conflict: OnExisting

    @property
    def id(self) -> RunId:
        return self.run.id


class Submitting:
    """The part of a client that begins runs."""

    def __init__(
        self,
        access: Access,
        acts: RunActs,
        flows: Iterable[BuiltFlow],
        on_conflict: OnExisting,
        aging: timedelta,
    ) -> None:
        self._access = access
        self._acts = acts
        self._flows = _by_name(flows)
        self._on_conflict = _on_conflict(on_conflict)
        self._aging_ms = round(aging / timedelta(milliseconds=1))
        for flow in self._flows.values():
            acts.graphs.add(flow.graphs)

    @property
    def aging_ms(self) -> int:
        return self._aging_ms

    @property
    def flow_names(self) -> tuple[str, ...]:
        return tuple(self._flows)

    def flow_named(self, flow: AnyFlow) -> BuiltFlow:
        """The flow that is meant; passing it is enough, its name needs it to be known here."""
        if isinstance(flow, str):
            known = self._flows.get(flow)
            if known is None:
                raise UnknownFlow(flow=flow, known=tuple(sorted(self._flows)))
            return known
        return checked_flow(flow)

    def prepared(
        self, flow: AnyFlow, input: Any, id: str | None, on_conflict: OnExisting | None
    ) -> Submission:
        """Check everything that can be checked before anything is written."""
        self._access.own("runs.submit")
        meant = self.flow_named(flow)
        what = f"the input of flow {meant.name!r}"
        data = to_json(input, what, self._access.storing.payload_max_bytes)
        check_input(meant, from_json(data))
        return Submission(
            flow=meant,
            input=data,
            run=self._new_run(meant, new_run_id(id), data),
            on_conflict=self._on_conflict if on_conflict is None else _on_conflict(on_conflict),
        )

    async def submit(self, submission: Submission) -> Submitted:
        namespace = self._access.own("runs.submit")
        store = await self._access.store.opened()
        await self._acts.graphs.save(store, namespace, submission.flow.graphs)
        if submission.on_conflict == "terminate_existing":
            return await self._replace(submission)
        run = replace(submission.run, on_existing=submission.on_conflict)
        submitted = await store.runs.submit(run)
        if submitted.run.flow != submission.flow.name:
            raise InvalidInput(
                OTHER_FLOW.fault(
                    ("id",),
                    run_id=submission.id,
                    existing=submitted.run.flow,
                    flow=submission.flow.name,
                )
            )
        return submitted

    async def _replace(self, submission: Submission) -> Submitted:
        """End the run that has the id, as an operator would, and take its place."""
        store = await self._access.store.opened()
        namespace = self._access.own("runs.submit")
        while True:
            existing = (await store.queries.get_runs([(namespace, submission.id)]))[0]
            if existing is None:
                try:
                    return await store.runs.submit(submission.run)
                except RunExists:
                    continue  # somebody was faster, and is to be replaced
            try:
                reason = "replaced by a new run of this id"
                await self._acts.cancel(submission.id, CancelRun(reason=reason))
            except (RunEnded, RunNotFound):
                pass  # there is nothing left to end
            except (EventLogCorrupt, UnknownFlow) as error:
                # Nothing can be decided about it any more; the store removes it all the same.
                _log.warning("run %r is replaced without being cancelled: %s", existing.id, error)
            new = self._new_run(submission.flow, submission.id, submission.input, replaced=True)
            return await store.runs.submit(replace(new, on_existing="terminate_existing"))

    def _new_run(
        self, flow: BuiltFlow, id: RunId, input: bytes, *, replaced: bool = False
    ) -> NewRun:
        graphs, codec = self._acts.graphs, self._access.codec
        graphs.add(flow.graphs)
        context = PlanContext(self._access.namespace, graphs.known, codec)
        return start_run(context, id, flow.graph, input, aging_ms=self._aging_ms, replaced=replaced)


def _on_conflict(given: Any) -> OnExisting:
    policy: OnExisting = check.choice(given, "on_conflict", get_args(OnExisting))
    return policy


def checked_flow(flow: Any) -> BuiltFlow:
    if not isinstance(flow, BuiltFlow):
        raise InvalidInput(NOT_BUILT.fault(value=safe_repr(flow)))
    return flow


def flow_name(flow: AnyFlow | None) -> str | None:
    """The name of a flow that things are looked for by."""
    name = flow.name if isinstance(flow, BuiltFlow) else flow
    return check.optional(check.name, name, "flow")


def _by_name(flows: Iterable[BuiltFlow]) -> dict[str, BuiltFlow]:
    known: dict[str, BuiltFlow] = {}
    for flow in check.listed(flows, "flows", "flows"):
        other = known.setdefault(checked_flow(flow).name, flow)
        if other.version != flow.version:
            raise InvalidInput(TWO_VERSIONS.fault(("flows",), flow=flow.name))
    return known
