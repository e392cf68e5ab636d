"""A flow that was built: its graph, and the code behind its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

from perdure.diagnostics import declare
from perdure.model.graph import Definition, Graph
from perdure.tasks.task import Task

if TYPE_CHECKING:
    # The type checkers know it, whether it is installed or not.
    from typing_extensions import TypeVar

    I_contra = TypeVar("I_contra", contravariant=True, default=Any)
    O_co = TypeVar("O_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    I_contra = TypeVar("I_contra")
    O_co = TypeVar("O_co")

NOT_BUILT = declare("flow.not_built", "{value} is not a built flow", "Call .build() on the Flow")


class BuiltFlow(Generic[I_contra, O_co]):
    """What ``Flow(...).build()`` makes. Does not change; its version is that of its graph.

    It takes ``I`` and gives ``O``, where they are known.
    """

    def __init__(
        self,
        definition: Definition,
        tasks: Mapping[str, Task[..., Any]],
        flows: Mapping[str, BuiltFlow],
    ) -> None:
        self.graph = Graph(definition)
        self.tasks = tasks
        """By the names that the calls of its nodes use, key functions and checks included."""
        self.flows = flows
        """The flows that its nodes start, by ``name@version``."""

    def __repr__(self) -> str:
        return f"<flow {self.graph.text}>"

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def version(self) -> str:
        return self.graph.version

    def mermaid(self) -> str:
        """A picture of it as text, which GitHub and many editors draw."""
        from perdure.render.diagram import diagram_of

        return diagram_of(self.graph).mermaid()

    def svg(self) -> str:
        """A picture of it that every browser shows, and that needs nothing else."""
        from perdure.render.diagram import diagram_of

        return diagram_of(self.graph).svg()

    def to_dict(self) -> dict[str, Any]:
        """The flow as plain data, from which ``Flow.from_dict`` makes it again."""
        from perdure.flows.yaml.dump import flow_data

        return flow_data(self)

    def to_yaml(self) -> str:
        """The flow as YAML, from which ``load_flow`` makes it again, in the same version."""
        from perdure.flows.yaml.dump import dumped

        return dumped(self.to_dict())

    @property
    def graphs(self) -> list[Graph]:
        """Its graph, and those of all flows below it."""
        return [flow.graph for flow in self.with_children().values()]

    def with_children(self) -> dict[str, BuiltFlow]:
        """This flow and all below it, by ``name@version``."""
        found: dict[str, BuiltFlow] = {}
        to_visit = [self]
        while to_visit:
            flow = to_visit.pop()
            if flow.graph.text not in found:
                found[flow.graph.text] = flow
                to_visit.extend(flow.flows.values())
        return found
