"""Diagrams in Mermaid, which GitHub and many editors draw."""

from __future__ import annotations

import re

from perdure.model.text import visible_lines
from perdure.render.diagram import Diagram
from perdure.render.svg import SIGNS, STYLES

# Characters that Mermaid reads as markup or as the end of a label.
_MARKUP = re.compile(r'[#"<>&;`|\\\n\r\t]')

_SHAPES = {
    "task": ("[", "]"),
    "route": ("{", "}"),
    "map": ("[/", "/]"),
    "loop": ("([", "])"),
    "delay": ("(", ")"),
    "signal": ("{{", "}}"),
    "approval": ("[/", "\\]"),
    "child": ("[[", "]]"),
}


def mermaid(diagram: Diagram) -> str:
    """A ``flowchart TD``: one shape per node type, ports and names on the edges.

    Deterministic: equal diagrams yield equal output.
    """
    places = {node.id: f"n{number}" for number, node in enumerate(diagram.nodes, 1)}
    lines = ["flowchart TD"]
    for node in diagram.nodes:
        status = ""
        if node.mark is not None:
            status = " ".join(filter(None, [SIGNS[node.mark], node.mark, node.progress]))
        label = "<br/>".join(_escaped(line) for line in (node.id, *node.notes, status) if line)
        begin, end = _SHAPES[node.shape]
        lines.append(f'    {places[node.id]}{begin}"{label}"{end}')
    for edge in diagram.edges:
        arrow = "-.->" if edge.is_unusual else "==>" if edge.is_taken else "-->"
        if edge.label:
            arrow += f'|"{_escaped(edge.label)}"|'
        lines.append(f"    {places[edge.source]} {arrow} {places[edge.target]}")
    for mark, style in STYLES.items():
        nodes = [places[node.id] for node in diagram.nodes if node.mark is mark]
        if nodes:
            name = mark.replace(" ", "_")
            colors = f"fill:{style.fill},stroke:{style.stroke},color:{style.text}"
            lines += [f"    classDef {name} {colors}", f"    class {','.join(nodes)} {name}"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda found: f"#{ord(found[0])};", visible_lines(text))
