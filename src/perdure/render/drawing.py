"""The pictures of a flow, each in one call."""

from __future__ import annotations

from perdure.model.graph import Graph
from perdure.render.diagram import picture_of
from perdure.render.mermaid import mermaid
from perdure.render.svg import svg


def flow_mermaid(graph: Graph) -> str:
    return mermaid(picture_of(graph))


def flow_svg(graph: Graph) -> str:
    return svg(picture_of(graph))
