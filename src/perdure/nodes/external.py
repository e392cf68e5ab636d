"""The ``external`` node type: wait for work done elsewhere, until it is reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from perdure.diagnostics import Fault
from perdure.model.check import NAME_MAX
from perdure.nodes.config import Span, duration_faults
from perdure.tasks.context import Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import Pause, paused


class External(NodeType):
    """Waits for ``client.runs.report`` without occupying a worker; its result is the output."""

    name = "external"
    takes_ports = True  # a report may choose one

    class Config(NodeConfig, rename={"for_": "for"}):
        for_: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
        """Who does the work; this is the name of the pause."""
        data: Any = None
        """Data for the external worker."""
        deadline: Span | None = None
        """The maximum wait; then the node's ``on_timeout`` applies."""

    def execute(self, config: Config, ctx: Context) -> Pause:
        checkpoint = {"for": config.for_, "data": config.data}
        return paused(checkpoint, name=config.for_, deadline=config.deadline)

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        return duration_faults(config, "deadline")
