"""``note``: a text for whoever follows the run."""

from __future__ import annotations

from typing import Any

from perdure.model.payload import to_json
from perdure.tasks.context import Context
from perdure.tasks.node_type import NodeConfig, NodeType


class Note(NodeType):
    """Says something: the text is the node's progress and its output."""

    name = "note"

    class Config(NodeConfig):
        text: Any
        """What is no text is written as JSON, as inside any text with templates."""

    def execute(self, config: Config, ctx: Context) -> str:
        given = config.text
        text = given if isinstance(given, str) else to_json(given, "text").decode()
        ctx.progress(100, text)
        return text
