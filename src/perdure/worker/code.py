"""The tasks and flows that this worker has code for, and what each node asks for around a call.

Templates are filled in here, once and on the worker, so that data is never read as a template and
secrets never leave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from perdure.diagnostics import Fault, declare, safe_repr
from perdure.errors import (
    CheckFailed,
    InvalidInput,
    Permanent,
    TemplateMissing,
    UnknownTask,
    fault_text,
)
from perdure.expr.condition import explain_failure, holds, parse_condition
from perdure.expr.template import TemplateUse, render, template_names
from perdure.flows.built import NOT_BUILT, BuiltFlow
from perdure.forms.schema import faults_of
from perdure.model.graph import ORDINARY, UNKNOWN_PORT, Call, Graph, LoopNode, OutputCheck, TaskNode
from perdure.model.ids import Key
from perdure.model.job import ClaimedJob
from perdure.model.partition import Partition
from perdure.model.payload import from_json
from perdure.tasks.node_type import TaskRegistry
from perdure.tasks.task import PlainFunction, Task
from perdure.worker.call import Arguments, CallScope
from perdure.worker.secrets import Secrets

SECRET = "secret"

CONDITION_NOT_MET = declare("node.condition_not_met", "{reason}")
INPUT_DOES_NOT_FIT = declare(
    "node.invalid_input", "node {node!r}: its input does not fit: {reasons}"
)
INPUTS_NOT_AN_OBJECT = declare(
    "node.inputs_not_an_object", "node {node!r}: its stored inputs are no object"
)
CONFIG_NOT_AN_OBJECT = declare(
    "node.config_not_an_object",
    "node {node!r}: its config must be an object, the arguments of its task by name, and is a "
    "{found}",
)
SECRET_WITHOUT_NAME = declare(
    "node.secret_without_name",
    "node {node!r}: template {template!r} must name a secret: {{ secret.NAME }}",
)


class TaskCode:
    """Everything that a worker has code for, and the secrets of that code."""

    def __init__(self, tasks: TaskRegistry, flows: FlowCode, secrets: Secrets) -> None:
        self.tasks = tasks
        self.flows = flows
        self.secrets = secrets

    def task_of(self, partition: Partition) -> Task[..., Any]:
        task = self.find(partition)
        if task is None:
            raise UnknownTask(name=partition.task, known=tuple(self.tasks))
        return task

    def find(self, partition: Partition) -> Task[..., Any] | None:
        """The task that runs jobs of this partition, if this worker has it."""
        if partition.flow:
            flow = self.flows.get(partition.flow)
            return None if flow is None else flow.tasks.get(partition.task)
        return self.tasks[partition.task] if partition.task in self.tasks else None  # noqa: SIM401


class FlowCode(dict[str, BuiltFlow]):
    """The flows that a worker has, with those that they start, by ``name@version``."""

    def __init__(self, flows: Iterable[BuiltFlow]) -> None:
        super().__init__()
        for flow in flows:
            if not isinstance(flow, BuiltFlow):
                raise InvalidInput(NOT_BUILT.fault(("flows",), value=safe_repr(flow)))
            self.update(flow.with_children())
        rules = {text: _rules_of_nodes(flow) for text, flow in self.items()}
        self._rules = {text: of_nodes for text, of_nodes in rules.items() if of_nodes}

    def rules_of(self, job: ClaimedJob) -> NodeRules | None:
        """What the job's node asks for around the call of its body, if anything."""
        if not self._rules or job.node is None:
            return None
        of_nodes = self._rules.get(job.partition.flow)
        if of_nodes is None:
            return None
        key = Key.parse(job.node.key)
        return of_nodes.get(key.node) if key.part in ("", "poll") else None

    def inline_check(self, graph: Graph, key: Key) -> Task[..., Any] | None:
        """The function that tells whether a loop is done, if it may be called at once.

        A plain function may. A task has its own settings and may take long, so it gets a job.
        """
        node = graph.nodes.get(key.node)
        if not isinstance(node, LoopNode) or not isinstance(node.body, Call) or key.part:
            return None
        flow = self.get(graph.text)
        check = None if flow is None else flow.tasks.get(node.check.task)
        if not isinstance(check, PlainFunction):
            return None
        return None if check.is_async or check.context_parameter is not None else check

    @property
    def tasks(self) -> list[Task[..., Any]]:
        return [task for flow in self.values() for task in flow.tasks.values()]

    @property
    def queues(self) -> list[str]:
        """The queues of all jobs of these flows."""
        nodes = [node for flow in self.values() for node in flow.graph.nodes.values()]
        names = ("call", "body", "check", "undo", "notify")
        calls = [getattr(node, name, None) for node in nodes for name in names]
        return list(dict.fromkeys(call.queue for call in calls if isinstance(call, Call)))


class NodeRules:
    """Inputs, config, schemas, check and ports of one task node in one version of a flow."""

    def __init__(self, node: TaskNode, graph: Graph) -> None:
        self.node = node
        self._graph = graph

    @cached_property
    def prepares_in_thread(self) -> bool:
        """Whether the arguments take too long to be made on the event loop."""
        uses_secrets = any(input.secret for input in self.node.inputs) or any(
            use.name == SECRET for use in self._templates
        )
        return self.node.input_schema is not None or uses_secrets

    @property
    def checks_output(self) -> bool:
        """Whether the output takes too long to be checked on the event loop."""
        return self.node.output_schema is not None or self.node.check is not None

    @cached_property
    def _templates(self) -> list[TemplateUse]:
        try:
            return template_names(self.node.config)
        except InvalidInput:  # rendering raises it, within an attempt
            return []

    def arguments(self, args: list[Any], kwargs: dict[str, Any], scope: CallScope) -> Arguments:
        """The arguments of the body as plain values, from the stored call.

        Raises ``Permanent`` for what no retry would change, and ``TemplateSkips`` if the node is
        to be skipped.
        """
        node = self.node
        given = args[0] if args else None
        if node.inputs:
            if not isinstance(given, dict):
                raise Permanent(INPUTS_NOT_AN_OBJECT.fault(node=node.id))
            secrets = {each.name: scope.secret(each.secret) for each in node.inputs if each.secret}
            given = scope.inputs = {**given, **secrets} if secrets else given
        if node.input_schema is not None and (faults := faults_of(node.input_schema, given)):
            listed = "; ".join(map(fault_text, faults))
            raise Permanent(INPUT_DOES_NOT_FIT.fault(node=node.id, reasons=listed))
        if node.config is None:
            if node.type:
                return [{}], {}
            return ([], dict(scope.inputs)) if node.inputs else (args, kwargs)
        config = self._rendered_config(scope)
        if node.type:
            return [config], {}
        if not isinstance(config, dict):
            found = type(config).__name__
            raise Permanent(CONFIG_NOT_AN_OBJECT.fault(node=node.id, found=found))
        return [], config

    def _rendered_config(self, scope: CallScope) -> Any:
        node, graph = self.node, self._graph
        nameless = next((use for use in self._templates if use.whole_path == (SECRET,)), None)
        if nameless is not None:
            raise Permanent(SECRET_WITHOUT_NAME.fault(node=node.id, template=nameless.text))
        names = {
            **scope.inputs,
            "run": {"id": scope.run_id, "flow": graph.name, "version": graph.version},
            "node": {"id": node.id},
            SECRET: _SecretsByName(scope),
        }
        try:
            # A paused node was not skipped; a poll of it can no longer change that.
            on_missing = "error" if scope.is_poll else node.on_missing
            return render(node.config, names, on_missing)
        except TemplateMissing as error:
            raise Permanent(*error.of_node(node.id).faults) from error
        except InvalidInput as error:
            raise Permanent(*(fault.under("nodes", node.id) for fault in error.faults)) from error

    def warnings(self, output: bytes) -> tuple[str, ...]:
        """What advisory checks find in an output; ``CheckFailed`` if it cannot be accepted."""
        node = self.node
        if not self.checks_output:
            return ()
        value = from_json(output)
        if node.output_schema is not None and (faults := faults_of(node.output_schema, value)):
            raise CheckFailed(*faults, node=node.id, what="output_schema")
        faults = [] if node.check is None else _check_faults(node.check, value)
        if faults and node.check is not None and not node.check.is_advisory:
            raise CheckFailed(*faults, node=node.id, what="check")
        return tuple(map(fault_text, faults))

    def refuse_port(self, port: str) -> None:
        if port != ORDINARY and port not in self.node.ports:
            known = self.node.ports
            raise Permanent(UNKNOWN_PORT.fault(node=self.node.id, port=port, known=known))


def _rules_of_nodes(flow: BuiltFlow) -> dict[str, NodeRules]:
    """By node id, for those nodes that are more than a call with one value."""
    rules = {}
    for node in flow.graph.nodes.values():
        if isinstance(node, TaskNode):
            checks = (node.input_schema, node.output_schema, node.check)
            if not node.is_plain or node.ports or any(each is not None for each in checks):
                rules[node.id] = NodeRules(node, flow.graph)
    return rules


def _check_faults(check: OutputCheck, output: Any) -> list[Fault]:
    faults = [] if check.schema is None else faults_of(check.schema, output)
    if check.condition is not None:
        condition = parse_condition(check.condition)
        if not holds(condition, output):
            faults.append(CONDITION_NOT_MET.fault(reason=explain_failure(condition, output)))
    return faults


class _SecretsByName(Mapping[str, str]):
    """Resolves each secret when a template comes to it. A missing one fails in any case."""

    def __init__(self, scope: CallScope) -> None:
        self._scope = scope

    def __getitem__(self, name: str) -> str:
        return self._scope.secret(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
