"""``external``: somebody else does the work, and reports when it is done."""

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
    """Waits, holding nothing, until ``client.runs.report`` brings the result, its output."""

    name = "external"
    takes_ports = True  # a report may choose one

    class Config(NodeConfig, rename={"for_": "for"}):
        for_: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
        """Who is to do it: the name of the pause."""
        data: Any = None
        """What they need to know."""
        deadline: Span | None = None
        """How long to wait at most; then the node goes on as its ``on_timeout`` says."""

    def execute(self, config: Config, ctx: Context) -> Pause:
        checkpoint = {"for": config.for_, "data": config.data}
        return paused(checkpoint, name=config.for_, deadline=config.deadline)

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        return duration_faults(config, "deadline")
