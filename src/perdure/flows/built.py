"""``BuiltFlow``: the graph of a flow and the code of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

from perdure.diagnostics import Fault, declare
from perdure.model.graph import Definition, FlowRef, Graph, MapNode, Node
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.tasks.task import Task

if TYPE_CHECKING:
    # Type checkers bundle it; it need not be installed.
    from typing_extensions import TypeVar

    I_contra = TypeVar("I_contra", contravariant=True, default=Any)
    O_co = TypeVar("O_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    I_contra = TypeVar("I_contra")
    O_co = TypeVar("O_co")

STARTS_MAX = 100_000
_MAP_WEIGHT = 100
"""A map starts up to 1,000 child runs at once, but many maps of a flow seldom start together."""

STARTS_TOO_MANY = declare(
    "flow.starts_too_many",
    "its nodes and their child flows start {count} nodes at once, more than the {most} allowed",
    "Start fewer child flows in parallel",
)
NOT_BUILT = declare("flow.not_built", "{value} is not a built flow", "Call .build() on the Flow")


class BuiltFlow(Generic[I_contra, O_co]):
    """An immutable flow, ready to run: the result of ``Flow(...).build()``.

    The type parameters are its input and output, where known.
    """

    def __init__(
        self,
        definition: Definition,
        tasks: Mapping[str, Task[..., Any]],
        flows: Mapping[str, BuiltFlow],
        *,
        is_loaded: bool = False,
        settings: RunSettings = NO_SETTINGS,
    ) -> None:
        self.graph = Graph(definition)
        self.tasks = tasks
        """All tasks of its nodes by name, including key functions and checks."""
        self.flows = flows
        """Its child flows by ``name@version``."""
        nodes = (self.graph.nodes[id] for id in self.graph.starts)
        self._starts = sum(1 + _started_below(node, flows) for node in nodes)
        """How many nodes start with it, with those of its child runs; each map as one item."""
        self.is_loaded = is_loaded
        """Whether it was loaded from YAML, JSON or plain data: then it needs grants for secrets.

        Not part of the version, which is the same for equal definitions.
        """
        self.settings = settings
        """The defaults of its runs; not part of the version either."""

    def __repr__(self) -> str:
        return f"<flow {self.graph.text}>"

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def version(self) -> str:
        return self.graph.version

    def mermaid(self) -> str:
        """The diagram as Mermaid, which GitHub and many editors render."""
        from perdure.render.diagram import diagram_of

        return diagram_of(self.graph).mermaid()

    def svg(self) -> str:
        """The diagram as a self-contained SVG."""
        from perdure.render.diagram import diagram_of

        return diagram_of(self.graph).svg()

    def to_dict(self) -> dict[str, Any]:
        """The flow as plain data, for ``Flow.from_dict``."""
        from perdure.flows.yaml.dump import flow_data

        return flow_data(self)

    def to_yaml(self) -> str:
        """The flow as YAML; loading it gives the same version."""
        from perdure.flows.yaml.dump import dumped

        return dumped(self.to_dict())

    @property
    def graphs(self) -> list[Graph]:
        """Its graph and those of all descendant flows."""
        return [flow.graph for flow in self.with_children().values()]

    def with_children(self) -> dict[str, BuiltFlow]:
        """This flow and all its descendants, by ``name@version``.

        Of equal flows, one that was built in Python.
        """
        found: dict[str, BuiltFlow] = {}
        to_visit = [self]
        while to_visit:
            flow = to_visit.pop()
            known = found.get(flow.graph.text)
            if known is None or (known.is_loaded and not flow.is_loaded):
                found[flow.graph.text] = flow
                to_visit.extend(flow.flows.values())
        return found


def _started_below(node: Node, flows: Mapping[str, BuiltFlow]) -> int:
    """How many nodes start with a child run of this node; 0 if it has none."""
    body = getattr(node, "body", None)
    return flows[body.text]._starts if isinstance(body, FlowRef) else 0


def start_faults(definition: Definition, flows: Mapping[str, BuiltFlow]) -> list[Fault]:
    """Refuse flows whose child flows multiply: one commit writes all that starts at once.

    Three flows of a thousand parallel nodes, each the child of the nodes of the next, would
    otherwise start a billion.
    """
    count = 0
    for node in definition.nodes:
        below = _started_below(node, flows)
        is_mapped = below and isinstance(node, MapNode)
        count += 1 + below * (_MAP_WEIGHT if is_mapped else 1)
    return [STARTS_TOO_MANY.fault(count=count, most=STARTS_MAX)] if count > STARTS_MAX else []
