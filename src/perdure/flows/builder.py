"""``Flow``, the builder: each call adds nodes; ``build()`` checks them and returns the flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Unpack, cast, get_args

from perdure.diagnostics import Source, declare
from perdure.errors import InvalidFlow, InvalidInput, node_of
from perdure.flows.assembly import After, Assembly, FlowCursor
from perdure.flows.built import BuiltFlow
from perdure.flows.nodes import (
    UNNAMED,
    AnyNodeType,
    Body,
    Branch,
    BuilderStep,
    BuilderSteps,
    Draft,
    ForkStep,
    JoinStep,
    RouteKey,
    RouteStep,
    Until,
    add_steps,
)
from perdure.flows.options import (
    APPROVAL,
    DELAY,
    FLOW,
    LOOP,
    MAP,
    NODE_TYPE,
    ROUTE,
    SIGNAL,
    TASK,
    AnyTask,
    ApprovalOptions,
    BodyOptions,
    ChildOptions,
    Function,
    InputOptions,
    NodeTypeOptions,
    RouteOptions,
    TaskOptions,
)
from perdure.flows.settings import FlowOptions, run_settings
from perdure.model import check
from perdure.model.graph import OnFailure
from perdure.model.settings import NO_SETTINGS
from perdure.model.times import Duration
from perdure.tasks.node_type import NodeType

if TYPE_CHECKING:
    # Type checkers bundle it; it need not be installed.
    from typing_extensions import TypeVar

    from perdure.flows.typed import Chain, NewFlow

    I = TypeVar("I", default=Any)  # noqa: E741
    O = TypeVar("O", default=Any)  # noqa: E741
else:
    from typing import TypeVar

    I = TypeVar("I")  # noqa: E741
    O = TypeVar("O")  # noqa: E741

NEEDS_NAME = declare("flow.needs_name", "a flow needs a name", 'Pass one: Flow("orders")')
NAME_RESERVED = declare(
    "flow.name_reserved", "flow name {flow!r} must not contain '@', which precedes the version"
)


class Flow(BuilderSteps, Generic[I, O]):
    """Builds a flow. Its methods add nodes and return the flow.

    Each node follows the previous one, or the nodes in ``after=``: ``"a"`` takes the output of
    node a, ``"a:port"`` only if it ended on that port (the key of a route, or the port named by
    ``on_error=``, ``on_timeout=``, ``on_reject=`` or ``on_max=``). For a task, a list or
    ``{name: node}`` gathers the outputs in one object, by node or by name; other nodes take the
    one output that is present. ``after=`` may name nodes that are added later. With
    ``inputs={name: source}``, a node takes named inputs from any earlier node.

    A node's id is ``name=``, or the name of its task. In a branch, an unbuilt flow contributes its
    nodes and needs no name; a built flow is a child flow with its own run. A plain function
    inherits the queue and priority of the node before it, unless set.

    Nothing is checked before :meth:`build`, which reports all faults at once.

    ``on_failure="finish"`` lets branches that do not depend on a failed node finish before the run
    fails.

    ``cooldown="1h"`` skips a run submitted less than an hour after another run of the flow
    started or completed. Child runs are not skipped.

    ``max_running=4`` queues further runs while four are in progress; with
    ``Concurrency(2, key="{{ input.tenant }}")`` runs are counted by a key. Child runs do not count.

    ``priority``, ``queue``, ``tags``, ``timeout``, ``timeout_counts_waiting``, ``max_attempts``,
    ``max_running`` and ``sticky`` are defaults of its runs, which ``submit`` may override. They are
    not part of the version.
    """

    name: str | None
    on_failure: OnFailure
    cooldown: Duration | None
    settings: FlowOptions

    if TYPE_CHECKING:  # input and output types are known for chained calls

        def __new__(
            cls,
            name: str | None = None,
            *,
            on_failure: OnFailure = "stop",
            cooldown: Duration | None = None,
            **settings: Unpack[FlowOptions],
        ) -> NewFlow[Any, Any]: ...

    else:

        def __init__(
            self,
            name: str | None = None,
            *,
            on_failure: OnFailure = "stop",
            cooldown: Duration | None = None,
            **settings: Unpack[FlowOptions],
        ) -> None:
            super().__init__()
            self.name = name
            self.on_failure = on_failure
            self.cooldown = cooldown
            self.settings = settings

    def __repr__(self) -> str:
        return f"<Flow {self.name or UNNAMED!r}, not built>"

    def then(
        self,
        body: Body | Flow[Any, Any],
        *,
        name: str | None = None,
        after: After | None = None,
        gathers: bool | None = None,
        **options: Unpack[TaskOptions],
    ) -> Flow[I, Any]:
        """Call a task, or run a child flow. A lambda or plain function needs ``name=``.

        The task gets one value: the previous output, or the run's input. ``gathers=False`` takes
        the one output that is present out of several in ``after=[...]``. The options ``retries``,
        ``timeout``, ``queue``, ``priority`` and ``tags`` override the task's; ``on_error`` is
        ``"fail"``, ``"continue"`` or a port; ``undo`` is a task that compensates this one.

        ``inputs={"order": "load.output", "name": "input.customer.name"}`` passes named arguments
        instead, from any earlier node, the run's input, or ``secret.NAME``. ``config`` can build
        arguments from them with templates: ``{"text": "Dear {{ name }}"}``.
        """
        return self._record("then", Draft(TASK, {"body": body, **options}, name, after, gathers))

    def node(
        self,
        id: str,
        body: Body,
        *,
        after: After | None = None,
        gathers: bool | None = None,
        **options: Unpack[TaskOptions],
    ) -> Flow[I, Any]:
        """Add a node of an arbitrary graph. Without ``after=``, it gets the run's input.

        Otherwise like :meth:`then`; the next call follows this node.
        """
        draft = Draft(TASK, {"body": body, **options}, id, after, gathers, is_start=True)
        return self._record("node", draft)

    def use(
        self,
        type: AnyNodeType,
        config: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        after: After | None = None,
        gathers: bool | None = None,
        **options: Unpack[NodeTypeOptions],
    ) -> Chain[I, Any]:
        """Add a node of a node type: a built-in one by name, or one of yours.

        ``config`` has its settings, with templates for inputs: ``{{ order.total }}``. Templates
        can only use names in ``inputs=``. The node is named after its type. Options are those of
        :meth:`then`.
        """
        given = {"type": type, "config": config, **options}
        return self._record("use", Draft(NODE_TYPE, given, name, after, gathers))

    def fork(self, branches: Mapping[str, Branch] | None = None, /, **more: Branch) -> Flow[I, Any]:
        """Run branches in parallel, each with the output before the fork.

        A branch is a task, a built flow, a ``Flow()`` with its nodes, a list of those, or None to
        pass the output on unchanged. :meth:`join` combines them. If a flow ends with a fork, its
        result is an object of the outputs by node.
        """
        return self._record("fork", ForkStep({**(branches or {}), **more}))

    def join(
        self,
        body: AnyTask | Function,
        *,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> Chain[I, Any]:
        """Call a task with an object of the outputs of all branches of the fork, by branch."""
        return self._record("join", JoinStep(Draft(TASK, {"body": body, **options}, name)))

    def route(
        self,
        key: AnyTask | Function | str,
        branches: Mapping[Any, Branch],
        default: Branch = None,
        *,
        keys: Sequence[RouteKey] | None = None,
        name: str | None = None,
        after: After | None = None,
        **options: Unpack[RouteOptions],
    ) -> Chain[I, Any]:
        """Take the branch whose key ``key`` returns, else ``default``.

        ``key`` is a function of the previous output, or a property of it. The branch gets the
        same output; a branch of None skips ahead. ``keys`` declares the possible keys, so that
        ``build()`` finds missing branches. The next node follows whichever branch was taken.
        """
        draft = Draft(ROUTE, {"key": key, **options}, name, after)
        return self._record("route", RouteStep(draft, branches, default, keys))

    def map(
        self,
        body: Body,
        *,
        over: str | None = None,
        concurrency: int | None = None,
        items_max: int | None = None,
        name: str | None = None,
        after: After | None = None,
        **options: Unpack[BodyOptions],
    ) -> Chain[I, Any]:
        """Call a task, or run a child flow, for each item of a list; outputs a list in its order.

        ``over`` is the property of the input that has the list; by default the input is the list.
        At most ``concurrency`` items are unfinished at once, 1,000 by default. A list with more
        than ``items_max`` items, 100,000 by default, fails the node. ``on_error="continue"``
        outputs null for a failed item.
        """
        own = {"over": over, "concurrency": concurrency, "items_max": items_max}
        return self._record("map", Draft(MAP, {"body": body, **own, **options}, name, after))

    def loop(
        self,
        body: Body,
        *,
        until: Until,
        max_iterations: int = 50,
        on_max: str = "fail",
        name: str | None = None,
        after: After | None = None,
        **options: Unpack[BodyOptions],
    ) -> Chain[I, Any]:
        """Call a task, or run a child flow, repeatedly on its own output until it is done.

        ``until`` checks the output after each iteration: a function or task that returns True, a
        property of the output, or a condition on it. ``on_max`` applies if the last iteration is
        not done: ``"fail"``, ``"continue"`` with the last output, or a port.
        """
        own = {"until": until, "max_iterations": max_iterations, "on_max": on_max}
        return self._record("loop", Draft(LOOP, {"body": body, **own, **options}, name, after))

    def delay(
        self,
        delay: Duration | None = None,
        *,
        until: str | datetime | None = None,
        name: str | None = None,
        after: After | None = None,
        **options: Unpack[InputOptions],
    ) -> Chain[I, Any]:
        """Wait without occupying a worker, and pass the previous output on.

        ``until`` is a time, or a template that renders to one, such as ``"{{ value.due_at }}"`` or
        with names in ``inputs=``.
        """
        times = {"delay": delay, "until": until}
        own = {option: value for option, value in times.items() if value is not None}
        return self._record("delay", Draft(DELAY, {**own, **options}, name, after))

    def wait_for_signal(
        self,
        signal: str,
        *,
        timeout: Duration | None = None,
        on_timeout: str | Mapping[str, Any] = "fail",
        where: Any = None,
        name: str | None = None,
        after: After | None = None,
        **options: Unpack[InputOptions],
    ) -> Chain[I, Any]:
        """Wait for a signal without occupying a worker; outputs its payload.

        ``where`` is a condition on the payload, whose values may be templates. ``on_timeout`` is
        ``"fail"``, ``"continue"`` with null, a port, or the output: ``{"default": value}``. The
        node is named after the signal.
        """
        own = {"signal": signal, "timeout": timeout, "on_timeout": on_timeout, "where": where}
        return self._record("wait_for_signal", Draft(SIGNAL, {**own, **options}, name, after))

    def approve(
        self,
        title: str,
        *,
        name: str | None = None,
        after: After | None = None,
        **options: Unpack[ApprovalOptions],
    ) -> Chain[I, Any]:
        """Wait for people to decide without occupying a worker; outputs the decision.

        ``title``, ``message`` and ``data`` are templates over the inputs; without ``inputs=``,
        ``value`` is the previous output. Approval continues, rejection applies ``on_reject``, and
        any other of ``answers`` continues on the port of its name. ``deadline`` with
        ``on_timeout``, ``reminders`` and ``escalate`` apply while the approval is open.
        """
        return self._record("approve", Draft(APPROVAL, {"title": title, **options}, name, after))

    def flow(
        self,
        flow: BuiltFlow,
        *,
        name: str | None = None,
        after: After | None = None,
        on_error: str = "fail",
        undo: AnyTask | Function | None = None,
        **options: Unpack[ChildOptions],
    ) -> Chain[I, Any]:
        """Run a built flow as a child run; outputs its result.

        ``priority``, ``queue``, ``tags`` and ``timeout`` are settings of the child run. They
        override the defaults of its flow and the inherited settings. With ``delay``, it is queued
        for that long before it starts.
        """
        given = {"body": flow, "on_error": on_error, "undo": undo, **options}
        return self._record("flow", Draft(FLOW, given, name, after))

    def build(self) -> BuiltFlow[I, O]:
        """Check the flow and return it ready to run.

        Raises ``InvalidFlow`` with all faults, each with its node and place.
        """
        assembly = Assembly(self.name if isinstance(self.name, str) else UNNAMED)
        assembly.nesting.append(self)
        assembly.attempt((), lambda: _check_name(self.name), None)
        on_failure: OnFailure = assembly.attempt(
            (),
            lambda: check.choice(self.on_failure, "on_failure", get_args(OnFailure)),
            "stop",
        )
        cursor = add_steps(self, assembly, FlowCursor())
        cooldown = assembly.attempt((), lambda: cooldown_ms(self.cooldown), 0)
        settings = assembly.attempt(
            (), lambda: run_settings(self.settings, FlowOptions), NO_SETTINGS
        )
        flow = assembly.build(cursor, on_failure, cooldown, settings)
        if flow is None:
            faults = (
                replace(fault, source=Source(call=assembly.places[node]))
                if fault.source is None and (node := node_of(fault)) in assembly.places
                else fault
                for fault in assembly.faults
            )
            raise InvalidFlow(*faults, flow=assembly.flow)
        return flow

    @staticmethod
    def from_dict(
        data: Mapping[str, Any],
        *,
        tasks: Iterable[AnyTask | BuiltFlow] = (),
        node_types: Iterable[NodeType | type[NodeType]] = (),
        flows: Iterable[BuiltFlow] = (),
    ) -> BuiltFlow:
        """Build a flow from plain data in the format of YAML flows.

        ``tasks`` are the tasks it may name, or flows whose tasks it may name; ``node_types`` are
        yours, in addition to the built-in ones; ``flows`` may be used as child flows.
        """
        from perdure.flows.yaml.load import flow_from_dict

        return flow_from_dict(data, tasks=tasks, node_types=node_types, flows=flows)

    @staticmethod
    def from_yaml(
        text: str,
        *,
        tasks: Iterable[AnyTask | BuiltFlow] = (),
        node_types: Iterable[NodeType | type[NodeType]] = (),
        flows: Iterable[BuiltFlow] = (),
    ) -> BuiltFlow:
        """Build a flow from YAML or JSON text; otherwise like :meth:`from_dict`."""
        from perdure.flows.yaml.load import flow_from_text

        return flow_from_text(text, tasks=tasks, node_types=node_types, flows=flows)

    def _record(self, method: str, step: BuilderStep) -> Chain[Any, Any]:
        self._steps.append((method, step))
        return cast("Chain[Any, Any]", self)


def cooldown_ms(cooldown: Duration | None) -> int:
    if cooldown is None:
        return 0
    span = check.span(cooldown, "cooldown", is_positive=True)
    return max(1, round(span / timedelta(milliseconds=1)))


def _check_name(name: str | None) -> None:
    if name is None:
        raise InvalidInput(NEEDS_NAME.fault(("name",)))
    if "@" in check.name(name, "name", label="flow name"):
        raise InvalidInput(NAME_RESERVED.fault(("name",), flow=name))
