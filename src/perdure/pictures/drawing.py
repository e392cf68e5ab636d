"""The pictures of a flow, each in one call."""

from __future__ import annotations

from perdure.model.graph import Graph
from perdure.pictures.mermaid import mermaid
from perdure.pictures.picture import picture_of
from perdure.pictures.svg import svg


def flow_mermaid(graph: Graph) -> str:
    return mermaid(picture_of(graph))


def flow_svg(graph: Graph) -> str:
    return svg(picture_of(graph))
