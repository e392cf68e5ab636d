"""Everything that is wrong with a definition: its graph, its inputs, and what its nodes say."""

from __future__ import annotations

from collections.abc import Mapping, Set

from perdure.errors import FaultText
from perdure.model.graph import ApprovalNode, Definition
from perdure.rules.approval_check import approval_faults
from perdure.rules.flow_faults import flow_fault
from perdure.rules.graph_check import NODES_MAX, check_graph
from perdure.rules.input_check import check_inputs
from perdure.rules.settings_check import setting_faults


def check_definition(
    definition: Definition,
    labels: Mapping[str, str] | None = None,
    reads: Mapping[str, Set[str]] | None = None,
    ended: Set[tuple[str, str]] = frozenset(),
) -> list[FaultText]:
    """All faults; ``labels`` are what nodes are called in them, by id.

    ``reads`` are the inputs that kinds look at by themselves, besides their templates, by node.
    ``ended`` are ports, each with its node, that nothing is meant to follow.
    """
    labels = labels or {}
    faults = check_graph(definition, labels, ended)
    if len(definition.nodes) > NODES_MAX:
        return faults
    faults += check_inputs(definition, labels, reads or {})
    for node in definition.nodes:
        label = labels.get(node.id, f"node {node.id!r}")
        faults += [flow_fault(label, each, node.id) for each in setting_faults(node)]
        if isinstance(node, ApprovalNode):
            faults += [flow_fault(label, each, node.id) for each in approval_faults(node)]
    return faults
