"""The flow builder: each call adds nodes, ``build()`` checks them all and makes the graph."""

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
    Function,
    InputOptions,
    NodeOptions,
    NodeTypeOptions,
    RouteOptions,
    TaskOptions,
)
from perdure.model import check
from perdure.model.graph import OnFailure
from perdure.model.times import Duration
from perdure.tasks.node_type import NodeType

if TYPE_CHECKING:
    # The type checkers know it, whether it is installed or not.
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
    """A flow in the making. Its methods add to it and return it.

    Each node follows the one before, or what ``after=`` names: ``"a"`` takes the output of node a,
    ``"a:port"`` only if it ended on that port (the key of a route, or the port that an
    ``on_error=``, ``on_timeout=``, ``on_reject=`` or ``on_max=`` names). A list or
    ``{name: node}`` gathers the outputs in one object, by node or by name, where a task follows;
    anything else takes the one output that is there. ``after=`` may name nodes that are added
    later. With ``inputs={name: source}`` a node takes what it names, from wherever before it.

    A node is called what ``name=`` says, else like its task. A flow that is not built may stand
    for its nodes in a branch, and needs no name then; a built one is a child flow, a run of its
    own. A plain function runs in the queue, and with the priority, of what comes before it, unless
    it is given others.

    Nothing is checked before :meth:`build`, which tells everything that is wrong at once.

    ``on_failure="finish"`` lets branches that have nothing to do with a failed node come to their
    end before the run fails.

    ``cooldown="1h"``: a run that is submitted within an hour after another one of the flow began,
    or was completed, is ``skipped``. Runs that other runs start are not.
    """

    name: str | None
    on_failure: OnFailure
    cooldown: Duration | None

    if TYPE_CHECKING:  # what a flow takes and gives is known of calls that are chained

        def __new__(
            cls,
            name: str | None = None,
            *,
            on_failure: OnFailure = "stop",
            cooldown: Duration | None = None,
        ) -> NewFlow[Any, Any]: ...

    else:

        def __init__(
            self,
            name: str | None = None,
            *,
            on_failure: OnFailure = "stop",
            cooldown: Duration | None = None,
        ) -> None:
            super().__init__()
            self.name = name
            self.on_failure = on_failure
            self.cooldown = cooldown

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

        The task gets one value: the output before it, or the run's input. ``gathers=False``
        takes the one output that is there out of several in ``after=[...]``. Options are
        ``retries``, ``timeout``, ``queue``, ``priority`` and ``tags``, which override the task's;
        ``on_error`` (``"fail"``, ``"continue"`` or a port); and ``undo``, a task that takes back
        what this one did.

        ``inputs={"order": "load.output", "name": "input.customer.name"}`` gives it arguments by
        name instead, from any node that comes before it, the run's input, or ``secret.NAME``;
        ``config`` then may say what it makes of them: ``{"text": "Dear {{ name }}"}``.
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
        """Add a node of an arbitrary graph. Without ``after=`` it gets the run's input.

        Otherwise as :meth:`then`; the next call follows this node.
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
        """Add a node of a node type: one that comes with it, by name, or one of yours.

        ``config`` are its settings, in which templates stand for inputs: ``{{ order.total }}``.
        They see only what ``inputs=`` names. The node is named after its type. Options are
        those of :meth:`then`.
        """
        given = {"type": type, "config": config, **options}
        return self._record("use", Draft(NODE_TYPE, given, name, after, gathers))

    def fork(self, branches: Mapping[str, Branch] | None = None, /, **more: Branch) -> Flow[I, Any]:
        """Run branches at the same time, each with the output before the fork.

        A branch is a task, a built flow, a ``Flow()`` with its nodes, a list of those, or None to
        hand the output on as it is. :meth:`join` brings them together; a fork at the end of a
        flow makes its result an object of the outputs by node.
        """
        return self._record("fork", ForkStep({**(branches or {}), **more}))

    def join(
        self,
        body: AnyTask | Function,
        *,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> Chain[I, Any]:
        """Call a task with an object of the outputs of all branches of the fork, by name."""
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
        """Take one branch: the one whose key ``key`` returns, else ``default``.

        ``key`` is a function of the output before it, or the key of that object. The branch gets
        that same output; None goes straight on. ``keys`` declares what may be returned, so that a
        branch that is missing is found now. What comes next follows whichever branch was taken.
        """
        draft = Draft(ROUTE, {"key": key, **options}, name, after)
        return self._record("route", RouteStep(draft, branches, default, keys))

    def map(
        self,
        body: Body,
        *,
        over: str | None = None,
        concurrency: int | None = None,
        name: str | None = None,
        after: After | None = None,
        **options: Unpack[NodeOptions],
    ) -> Chain[I, Any]:
        """Call a task, or run a child flow, for each item of a list; gives a list in its order.

        ``over`` is the key of the input under which the list is; without it the input is the
        list. ``on_error="continue"`` puts null in the place of an item that failed.
        """
        given = {"body": body, "over": over, "concurrency": concurrency, **options}
        return self._record("map", Draft(MAP, given, name, after))

    def loop(
        self,
        body: Body,
        *,
        until: Until,
        max_iterations: int = 50,
        on_max: str = "fail",
        name: str | None = None,
        after: After | None = None,
        **options: Unpack[NodeOptions],
    ) -> Chain[I, Any]:
        """Call a task, or run a child flow, again on its own output until that is done.

        ``until`` is asked about the output after each iteration: a function or task that returns
        True when it is done, a key of the output, or a condition on it. ``on_max`` says what
        follows the last iteration if it is not: ``"fail"``, ``"continue"`` with the last output,
        or a port.
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
        """Wait, holding nothing meanwhile, and hand the output before it on.

        ``until`` is a time, or a template that gives one: ``"{{ value.due_at }}"``, or of what
        ``inputs=`` name for it.
        """
        times = {"delay": delay, "until": until}
        own = {option: value for option, value in times.items() if value is not None}
        return self._record("delay", Draft(DELAY, {**own, **options}, name, after))

    def wait_for_signal(
        self,
        signal: str,
        *,
        timeout: Duration | None = None,
        on_timeout: str = "fail",
        where: Any = None,
        name: str | None = None,
        after: After | None = None,
        **options: Unpack[InputOptions],
    ) -> Chain[I, Any]:
        """Wait for a signal, holding nothing meanwhile; gives what came with it.

        ``where`` is a condition on what comes with it, in which values may be templates.
        ``on_timeout`` is ``"fail"``, ``"continue"`` with null, or a port. The node is called like
        the signal.
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
        """Wait for people to decide, holding nothing meanwhile; gives who decided what.

        ``title``, ``message`` and ``data`` are templates over the inputs; without ``inputs=``,
        ``value`` is the output before it. To approve goes on, to reject does what ``on_reject``
        says, any other of ``answers`` goes on from the port of its name. ``deadline`` with
        ``on_timeout``, ``reminders`` and ``escalate`` say what happens if nobody answers.
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
        **options: Unpack[InputOptions],
    ) -> Chain[I, Any]:
        """Run a built flow as a run of its own; gives its result."""
        given = {"body": flow, "on_error": on_error, "undo": undo, **options}
        return self._record("flow", Draft(FLOW, given, name, after))

    def build(self) -> BuiltFlow[I, O]:
        """Check everything, and make the flow that can be run.

        Raises ``InvalidFlow`` with all that is wrong, each fault with its node and place.
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
        flow = assembly.build(cursor, on_failure, cooldown)
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
        """The flow that plain data tells, in the format of flows as YAML.

        ``tasks`` are those that it may name, or flows whose tasks it may; ``node_types`` are yours,
        besides those that come with it; ``flows`` are those that it may run as children.
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
        """The flow that YAML or JSON in a text tells; otherwise as :meth:`from_dict`."""
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
