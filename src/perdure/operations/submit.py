"""Submitting a run: checks, and what happens if its id exists already."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from perdure import clock
from perdure.diagnostics import declare, truncate
from perdure.engine.plan import PlanContext, start_run
from perdure.engine.run_view import too_many_items
from perdure.errors import (
    DefinitionCorrupt,
    EventLogCorrupt,
    InvalidInput,
    RunEnded,
    RunExists,
    RunNotFound,
    UnknownFlow,
    record_text,
)
from perdure.expr.budget import evaluate
from perdure.expr.path import MISSING, value_at
from perdure.flows.built import BuiltFlow
from perdure.flows.settings import RunOptions, settings_of
from perdure.model import check
from perdure.model.graph import (
    FAIL,
    MAP_ITEMS_MAX,
    Call,
    FlowNode,
    FlowRef,
    Graph,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    TaskNode,
    inputs_of,
)
from perdure.model.ids import RunId
from perdure.model.payload import from_json
from perdure.model.run import RUN_ID_MAX_BYTES, NewRun, OnExisting, Submitted
from perdure.model.settings import RunSettings
from perdure.model.trigger import CancelRun
from perdure.model.value import Value
from perdure.operations.backend import AnyFlow, Backend, checked_policy
from perdure.operations.cancel import cancel_run
from perdure.store.contract import Store
from perdure.tasks.options import check_option_names

_log = logging.getLogger("perdure.client")

CHILD_MARK = "/"
"""Separates a run's id from the suffix of a child's id."""

ID_TOO_LONG = declare(
    "run.id_too_long", "run id {id!r} has {size_bytes} bytes, more than the {most} allowed"
)
ID_RESERVED = declare(
    "run.id_reserved", "run id {id!r} must not contain {mark!r}, which separates child runs"
)
OTHER_FLOW = declare(
    "run.other_flow",
    "run {run_id!r} exists already, and its flow is {existing!r}, not {flow!r}",
    "Choose another id",
)


REPLACES_IN_TRANSACTION = declare(
    "run.replaces_in_transaction",
    "on_conflict='replace' is not possible in your transaction: the existing run would be "
    "cancelled immediately",
    "Pass 'fail' or 'use_existing'",
)


class Submission(Value):
    """A run that passed all checks and can be submitted."""

    flow: BuiltFlow
    id: RunId
    input: bytes
    """As JSON."""
    settings: RunSettings
    on_conflict: OnExisting


def run_id(id: Any) -> RunId:
    """Check the id of an existing run, which may be a child run."""
    return RunId(check.stored_name(id, "id", most=None, label="run id"))


def new_run_id(id: Any) -> RunId:
    """Check the caller's id for a new run, or make one."""
    if id is None:
        return RunId(clock.new_id())
    checked = RunId(check.name(id, "id", most=None, label="run id"))
    if (size := len(checked.encode())) > RUN_ID_MAX_BYTES:
        shown = truncate(checked, 60)
        raise InvalidInput(ID_TOO_LONG.fault(id=shown, size_bytes=size, most=RUN_ID_MAX_BYTES))
    if CHILD_MARK in checked:
        raise InvalidInput(ID_RESERVED.fault(id=checked, mark=CHILD_MARK))
    return checked


def prepare_submission(
    backend: Backend,
    flow: AnyFlow,
    input: Any = None,
    id: str | None = None,
    on_conflict: OnExisting | None = None,
    options: Mapping[str, Any] | None = None,
) -> Submission:
    """Check a submission before the run is made.

    Runs on the caller's thread: encoding the input runs the caller's code.
    """
    backend.require_namespace("runs.submit")
    check_option_names(options or {}, RunOptions)
    meant = backend.flow(flow)
    data = backend.json(input, f"the input of flow {meant.name!r}")
    value = from_json(data)
    _check_input(meant, value)
    settings = settings_of(meant, options or {}, value)
    backend.graphs.add(meant.graphs)
    return Submission(
        flow=meant,
        id=new_run_id(id),
        input=data,
        settings=settings,
        on_conflict=backend.on_conflict if on_conflict is None else checked_policy(on_conflict),
    )


async def submit_run(backend: Backend, submission: Submission) -> Submitted:
    run = await new_run(backend, submission)
    store = await backend.store()
    await backend.graphs.save(store, backend.namespace, submission.flow.graphs)
    try:
        return await _submit(backend, store, submission, run)
    except UnknownFlow:  # pruned since this client saved it
        await backend.graphs.save(store, backend.namespace, submission.flow.graphs, again=True)
        return await _submit(backend, store, submission, run)


async def _submit(backend: Backend, store: Store, submission: Submission, run: NewRun) -> Submitted:
    if submission.on_conflict == "replace":
        return await _replace(backend, submission, run)
    submitted = await store.runs.submit(replace(run, on_existing=submission.on_conflict))
    refuse_other_flow(submission, submitted)
    return submitted


async def definitions_within(
    backend: Backend, submission: Submission, *, again: bool = False
) -> Sequence[Graph]:
    """Save definitions before the caller's transaction; return those to save in it.

    They are named by their content, so one that remains after a rollback is harmless.
    """
    store = await backend.store()
    if store.has_one_writer:
        return submission.flow.graphs
    await backend.graphs.save(store, backend.namespace, submission.flow.graphs, again=again)
    return ()


async def transactional_run(backend: Backend, submission: Submission) -> NewRun:
    """The run to submit in a caller's transaction, in which no other run can be cancelled."""
    if submission.on_conflict == "replace":
        raise InvalidInput(REPLACES_IN_TRANSACTION.fault(("on_conflict",)))
    return replace(await new_run(backend, submission), on_existing=submission.on_conflict)


def refuse_other_flow(submission: Submission, submitted: Submitted) -> None:
    """Refuse an id that belongs to a run of another flow."""
    if submitted.run.flow != submission.flow.name:
        raise InvalidInput(
            OTHER_FLOW.fault(
                ("id",),
                run_id=submission.id,
                existing=submitted.run.flow,
                flow=submission.flow.name,
            )
        )


async def _replace(backend: Backend, submission: Submission, run: NewRun) -> Submitted:
    """Cancel the run with the id, as an operator would, and replace it."""
    store, id = await backend.store(), submission.id
    while True:
        [existing] = await store.queries.get_runs([(backend.namespace, id)])
        if existing is None:
            try:
                return await store.runs.submit(run)
            except RunExists:
                continue  # a concurrent submission won; replace that one
        try:
            former = await backend.load_run(id)
            await cancel_run(backend, former, CancelRun(reason="replaced by a new run of this id"))
        except (RunEnded, RunNotFound):
            pass  # nothing left to cancel
        except (DefinitionCorrupt, EventLogCorrupt, UnknownFlow) as error:
            # Its log is unusable, so nothing can be decided; the store removes it nevertheless.
            fields = {"run": id, "error": record_text(error)}
            _log.warning("run replaced without being cancelled", extra={"fields": fields})
        new = await new_run(backend, submission, replaced=True)
        return await store.runs.submit(replace(new, on_existing="replace"))


async def new_run(backend: Backend, submission: Submission, *, replaced: bool = False) -> NewRun:
    """The run as it starts; raises if the input would make it fail immediately."""
    start = partial(
        start_run,
        PlanContext(backend.namespace, backend.graphs.known, backend.codec),
        submission.id,
        submission.flow.graph,
        submission.input,
        aging_ms=round(backend.aging / timedelta(milliseconds=1)),
        replaced=replaced,
        settings=submission.settings,
    )
    return replace(await evaluate(start), needs_definition=True)


def _check_input(flow: BuiltFlow, value: Any) -> None:
    """Refuse an input that a first task of the flow would refuse."""
    for id in flow.graph.starts:
        try:
            _check_node(flow, flow.graph.nodes[id], value)
        except InvalidInput as error:
            error.add_place("nodes", id)
            raise


def _check_node(flow: BuiltFlow, node: Node, value: Any) -> None:
    if inputs := inputs_of(node):
        value = {each.name: value_at(value, each.path) for each in inputs if not each.secret}
        if MISSING in value.values():
            return  # the engine reports this
    match node:
        case TaskNode() if not node.is_plain:
            if not node.type and node.config is None:
                flow.tasks[node.call.task].check_types([], value)
        case TaskNode(gathers=False) | RouteNode():
            _check_call(flow, node.call, value)
        case LoopNode() | FlowNode():
            _check_call(flow, node.body, value)
        case MapNode():
            items = _items(node, value)
            most = MAP_ITEMS_MAX if node.items_max is None else node.items_max
            if len(items) > most:
                if node.on_error == FAIL:
                    raise InvalidInput(too_many_items(node.id, len(items), most))
                return  # the node fails, and the run continues
            for item in items:
                _check_call(flow, node.body, item)
        case _:
            pass  # passes it on, or takes no input


def _check_call(flow: BuiltFlow, body: Call | FlowRef, value: Any) -> None:
    if isinstance(body, FlowRef):
        _check_input(flow.flows[body.text], value)
    elif body.takes_input:
        flow.tasks[body.task].check_types([value], {})


def _items(node: MapNode, value: Any) -> list[Any]:
    """The items of the list, if it is one: the engine refuses anything else, with the reason."""
    if node.over is not None:
        value = value.get(node.over) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []
