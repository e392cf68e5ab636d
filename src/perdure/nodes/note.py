"""The ``note`` node type: a message for people who watch the run."""

from __future__ import annotations

from typing import Any

from perdure.model.payload import to_json
from perdure.tasks.context import Context
from perdure.tasks.node_type import NodeConfig, NodeType


class Note(NodeType):
    """Publishes a message: it becomes the node's progress and output."""

    name = "note"

    class Config(NodeConfig):
        text: Any
        """Values other than strings are written as JSON, as in any template."""

    def execute(self, config: Config, ctx: Context) -> str:
        given = config.text
        text = given if isinstance(given, str) else to_json(given, "text").decode()
        ctx.progress(100, text)
        return text
