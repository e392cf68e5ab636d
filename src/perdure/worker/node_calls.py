"""What a task node asks for around the call of its body: inputs, config, schemas, check, ports.

Templates are filled in here, once and on the worker, so that data is never read as a template and
secrets never leave it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from perdure.diagnostics import Fault, declare
from perdure.errors import CheckFailed, InvalidInput, Permanent, TemplateMissing, fault_text
from perdure.expr.condition import explain_failure, holds, parse_condition
from perdure.expr.template import TemplateUse, render, template_names
from perdure.flows.built import BuiltFlow
from perdure.forms.schema import faults_of
from perdure.model.graph import ORDINARY, Check, Graph, TaskNode
from perdure.model.payload import from_json
from perdure.tasks.result import UNKNOWN_PORT
from perdure.worker.calls import Arguments, BodyCall

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


class NodeRules:
    """Of one task node in one version of a flow."""

    def __init__(self, node: TaskNode, graph: Graph) -> None:
        self.node = node
        self._graph = graph

    @cached_property
    def prepares_aside(self) -> bool:
        """Whether the arguments take too long to be made on the event loop."""
        return self.node.input_schema is not None or self._uses_secrets

    @property
    def concludes_aside(self) -> bool:
        """Whether the output takes too long to be looked at on the event loop."""
        return self.node.output_schema is not None or self.node.check is not None

    @cached_property
    def _uses_secrets(self) -> bool:
        return any(input.secret for input in self.node.inputs) or any(
            use.name == SECRET for use in self._templates
        )

    @cached_property
    def _templates(self) -> list[TemplateUse]:
        try:
            return template_names(self.node.config)
        except InvalidInput:  # rendering will say so, for one execution
            return []

    def arguments(self, args: list[Any], kwargs: dict[str, Any], call: BodyCall) -> Arguments:
        """What to call the body with, as plain values, from the stored call.

        Raises ``Permanent`` for what will not fit another time either, and ``TemplateSkips`` if
        the node is not to count.
        """
        given = args[0] if args else None
        if self.node.inputs:
            given = call.inputs = self._inputs(given, call)
        schema = self.node.input_schema
        if schema is not None and (faults := faults_of(schema, given)):
            listed = "; ".join(map(fault_text, faults))
            raise Permanent(INPUT_DOES_NOT_FIT.fault(node=self.node.id, reasons=listed))
        if self.node.config is not None:
            return self._configured(call)
        if self.node.kind:
            return [{}], {}
        return ([], dict(call.inputs)) if self.node.inputs else (args, kwargs)

    def warnings(self, output: bytes) -> tuple[str, ...]:
        """What advisory checks find in an output; ``CheckFailed`` if it cannot be accepted."""
        node = self.node
        if node.output_schema is None and node.check is None:
            return ()
        value = from_json(output)
        if node.output_schema is not None and (faults := faults_of(node.output_schema, value)):
            raise CheckFailed(*faults, node=node.id, what="output_schema")
        faults = [] if node.check is None else _check_faults(node.check, value)
        if faults and node.check is not None and not node.check.is_advisory:
            raise CheckFailed(*faults, node=node.id, what="check")
        return tuple(map(fault_text, faults))

    def refuse_port(self, port: str) -> None:
        if port == ORDINARY or port in self.node.ports:
            return
        raise Permanent(UNKNOWN_PORT.fault(node=self.node.id, port=port, known=self.node.ports))

    def _inputs(self, given: Any, call: BodyCall) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise Permanent(INPUTS_NOT_AN_OBJECT.fault(node=self.node.id))
        secrets = {each.name: call.secret(each.secret) for each in self.node.inputs if each.secret}
        return {**given, **secrets} if secrets else given

    def _configured(self, call: BodyCall) -> Arguments:
        config = self._rendered(call)
        if self.node.kind:
            return [config], {}
        if not isinstance(config, dict):
            raise Permanent(
                CONFIG_NOT_AN_OBJECT.fault(node=self.node.id, found=type(config).__name__)
            )
        return [], config

    def _rendered(self, call: BodyCall) -> Any:
        nameless = next((use for use in self._templates if use.whole_path == (SECRET,)), None)
        if nameless is not None:
            raise Permanent(SECRET_WITHOUT_NAME.fault(node=self.node.id, template=nameless.text))
        scope = {
            **call.inputs,
            "run": {"id": call.run_id, "flow": self._graph.name, "version": self._graph.version},
            "node": {"id": self.node.id},
            SECRET: _SecretsByName(call),
        }
        try:
            # A node that paused has been counted; to ask after it cannot change that.
            on_missing = "error" if call.is_poll else self.node.on_missing
            return render(self.node.config, scope, on_missing)
        except TemplateMissing as error:
            raise Permanent(*error.of_node(self.node.id).faults) from error
        except InvalidInput as error:
            raise Permanent(
                *(fault.under("nodes", self.node.id) for fault in error.faults)
            ) from error


class _SecretsByName(Mapping[str, str]):
    """Each is resolved when a template comes to it. A missing one fails in any case."""

    def __init__(self, call: BodyCall) -> None:
        self._call = call

    def __getitem__(self, name: str) -> str:
        return self._call.secret(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def rules_of(flow: BuiltFlow) -> dict[str, NodeRules]:
    """By the ids of those nodes that are more than a call with one value."""
    return {
        node.id: NodeRules(node, flow.graph)
        for node in flow.graph.nodes.values()
        if isinstance(node, TaskNode) and _has_rules(node)
    }


def _has_rules(node: TaskNode) -> bool:
    if not node.is_plain or node.ports:
        return True
    return any(each is not None for each in (node.input_schema, node.output_schema, node.check))


def _check_faults(check: Check, output: Any) -> list[Fault]:
    faults = [] if check.schema is None else faults_of(check.schema, output)
    if check.condition is not None:
        condition = parse_condition(check.condition)
        if not holds(condition, output):
            faults.append(CONDITION_NOT_MET.fault(reason=explain_failure(condition, output)))
    return faults
