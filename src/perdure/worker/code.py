"""The tasks and flows that this worker has code for, and the inputs and checks of their nodes.

Templates are rendered here, once and on the worker, so that data is never read as a template and
secrets never leave the worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from perdure.expr.budget import CostBudget
from perdure.expr.condition import explain_failure, parse_condition
from perdure.expr.path import nested
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
from perdure.worker.grants import Grant, SecretUse
from perdure.worker.resources import NO_SOURCES, WorkerResources
from perdure.worker.secrets import MASK, Secrets

SECRET = "secret"

CONDITION_NOT_MET = declare("node.condition_not_met", "{reason}")
INPUT_DOES_NOT_FIT = declare(
    "node.invalid_input", "node {node!r}: its input does not match input_schema: {reasons}"
)
INPUTS_NOT_AN_OBJECT = declare(
    "node.inputs_not_an_object", "node {node!r}: its stored inputs are not an object"
)
CONFIG_NOT_AN_OBJECT = declare(
    "node.config_not_an_object",
    "node {node!r}: its config must be an object with the arguments of its task (got a {found})",
)
SECRET_WITHOUT_NAME = declare(
    "node.secret_without_name",
    "node {node!r}: template {template!r} must name a secret: {{ secret.NAME }}",
)


class TaskCode:
    """The tasks, flows, secrets and resources of a worker."""

    def __init__(
        self,
        tasks: TaskRegistry,
        flows: FlowCode,
        secrets: Secrets,
        grants: Sequence[Grant] = (),
        resources: WorkerResources = NO_SOURCES,
    ) -> None:
        self.tasks = tasks
        self.flows = flows
        self.secrets = secrets
        self.grants = grants
        self.resources = resources
        self.process_resources = resources.for_processes([*tasks.values(), *flows.tasks])

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
    """The flows of a worker and their child flows, by ``name@version``."""

    def __init__(self, flows: Iterable[BuiltFlow]) -> None:
        super().__init__()
        for flow in flows:
            if not isinstance(flow, BuiltFlow):
                raise InvalidInput(NOT_BUILT.fault(("flows",), value=safe_repr(flow)))
            for text, each in flow.with_children().items():
                # Of equal flows, one from Python: its author wrote the same uses of secrets.
                if text not in self or self[text].is_loaded:
                    self[text] = each
        rules = {text: _rules_of_nodes(flow) for text, flow in self.items()}
        self._rules = {text: of_nodes for text, of_nodes in rules.items() if of_nodes}

    def rules_of(self, job: ClaimedJob) -> NodeRules | None:
        """The rules of the job's node, if it has any."""
        if not self._rules or job.node is None:
            return None
        of_nodes = self._rules.get(job.partition.flow)
        if of_nodes is None:
            return None
        key = Key.parse(job.node.key)
        return of_nodes.get(key.node) if key.part in ("", "poll", "cancel") else None

    def inline_check(self, graph: Graph, key: Key) -> Task[..., Any] | None:
        """The function that checks whether a loop is done, if it can be called inline.

        A plain function can. A task has its own settings and may take long, so it gets a job.
        """
        node = graph.nodes.get(key.node)
        if not isinstance(node, LoopNode) or not isinstance(node.body, Call) or key.part:
            return None
        flow = self.get(graph.text)
        check = None if flow is None else flow.tasks.get(node.check.task)
        if not isinstance(check, PlainFunction):
            return None
        return None if check.is_async or check.injected else check

    @property
    def tasks(self) -> list[Task[..., Any]]:
        return [task for flow in self.values() for task in flow.tasks.values()]

    @property
    def queues(self) -> list[str]:
        """The queues of all jobs of these flows, unless ``submit`` names another."""
        nodes = [node for flow in self.values() for node in flow.graph.nodes.values()]
        names = ("call", "body", "check", "undo", "notify")
        calls = [getattr(node, name, None) for node in nodes for name in names]
        queues = [call.queue for call in calls if isinstance(call, Call)]
        defaults = [flow.settings.queue for flow in self.values() if flow.settings.queue]
        return list(dict.fromkeys([*queues, *defaults]))


class NodeRules:
    """Inputs, config, schemas, check and ports of one task node in one version of a flow."""

    def __init__(self, node: TaskNode, flow: BuiltFlow) -> None:
        self.node = node
        self._flow = flow
        self._graph = flow.graph

    @cached_property
    def prepares_in_thread(self) -> bool:
        """Whether preparing the arguments would block the event loop for too long."""
        uses_secrets = any(input.secret for input in self.node.inputs) or any(
            use.name == SECRET for use in self._templates
        )
        return self.node.input_schema is not None or uses_secrets

    @property
    def checks_output(self) -> bool:
        """Whether the output is checked, which would block the event loop for too long."""
        return self.node.output_schema is not None or self.node.check is not None

    @cached_property
    def _templates(self) -> list[TemplateUse]:
        try:
            return template_names(self.node.config)
        except InvalidInput:  # rendering raises it again, within an attempt
            return []

    def arguments(
        self, args: list[Any], kwargs: dict[str, Any], scope: CallScope, grants: Sequence[Grant]
    ) -> Arguments:
        """The arguments of the body as plain values, from the stored call.

        Raises ``Permanent`` for errors that no retry would fix, and ``TemplateSkips`` if the
        node is to be skipped.
        """
        node = self.node
        stored = args[0] if args else None
        named = _NamedSecrets(scope, self._use(grants))
        checked = stored
        if node.inputs:
            if not isinstance(stored, dict):
                raise Permanent(INPUTS_NOT_AN_OBJECT.fault(node=node.id))
            secrets = {each.name: named[each.secret] for each in node.inputs if each.secret}
            stored = scope.inputs = {**stored, **secrets} if secrets else stored
            # A schema must not see secrets: what it accepts would tell them to its author.
            checked = {**stored, **dict.fromkeys(secrets, MASK)}
        if node.input_schema is not None and (faults := faults_of(node.input_schema, checked)):
            listed = "; ".join(map(fault_text, faults))
            raise Permanent(INPUT_DOES_NOT_FIT.fault(node=node.id, reasons=listed))
        if node.config is None:
            if node.type:
                return [{}], {}
            return ([], dict(scope.inputs)) if node.inputs else (args, kwargs)
        config = self._rendered_config(scope, named)
        if node.type:
            return [config], {}
        if not isinstance(config, dict):
            found = type(config).__name__
            raise Permanent(CONFIG_NOT_AN_OBJECT.fault(node=node.id, found=found))
        return [], config

    def _rendered_config(self, scope: CallScope, named: _NamedSecrets) -> Any:
        node, graph = self.node, self._graph
        nameless = next((use for use in self._templates if use.whole_path == (SECRET,)), None)
        if nameless is not None:
            raise Permanent(SECRET_WITHOUT_NAME.fault(node=node.id, template=nameless.text))
        names = {
            **nested(scope.inputs),
            "run": {"id": scope.run_id, "flow": graph.name, "version": graph.version},
            "node": {"id": node.id},
            SECRET: named,
        }
        try:
            # A paused node was not skipped; auxiliary jobs can no longer change that.
            on_missing = "error" if scope.part else node.on_missing
            config = render(node.config, names, on_missing)
            named.check_destinations(config)
            return config
        except TemplateMissing as error:
            raise error.of_node(node.id) from None
        except InvalidInput as error:
            raise Permanent(*(fault.under("nodes", node.id) for fault in error.faults)) from error

    def _use(self, grants: Sequence[Grant]) -> SecretUse | None:
        """The use of secrets that grants decide about; None for a flow built in Python."""
        if not self._flow.is_loaded:
            return None
        return SecretUse(
            flow=self._graph.name,
            version=self._graph.text,
            node=self.node.id,
            task=self.node.type or self.node.call.task,
            destinations=self._flow.tasks[self.node.call.task].destinations,
            grants=grants,
        )

    def warnings(self, output: bytes) -> tuple[str, ...]:
        """The findings of advisory checks; raises ``CheckFailed`` if the output is not accepted."""
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
    """Rules by node id; none for a plain call with a single input."""
    rules = {}
    for node in flow.graph.nodes.values():
        if isinstance(node, TaskNode):
            checks = (node.input_schema, node.output_schema, node.check)
            if not node.is_plain or node.ports or any(each is not None for each in checks):
                rules[node.id] = NodeRules(node, flow)
    return rules


def _check_faults(check: OutputCheck, output: Any) -> list[Fault]:
    faults = [] if check.schema is None else faults_of(check.schema, output)
    if check.condition is not None:
        try:
            budget = CostBudget()
            condition = parse_condition(check.condition, budget=budget)
            if unmet := explain_failure(condition, output, budget):
                faults.append(CONDITION_NOT_MET.fault(reason=unmet))
        except InvalidInput as error:  # it costs too much
            faults += error.faults
    return faults


class _NamedSecrets(Mapping[str, str]):
    """Resolves the secrets that a node names, if it may use them. A missing one always raises."""

    def __init__(self, scope: CallScope, use: SecretUse | None) -> None:
        self._scope = scope
        self._use = use
        self._names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        if self._use is not None:
            self._use.check(name)
        self._names.add(name)
        return self._scope.secret(name)

    def check_destinations(self, config: Any) -> None:
        """Raise unless all secrets in use may be sent where the rendered config says."""
        if self._use is not None and self._use.destinations is not None and self._names:
            for destination in self._use.destinations(config):
                for name in sorted(self._names):
                    self._use.check(name, destination)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
