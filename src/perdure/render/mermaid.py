"""A picture in the language of Mermaid, which GitHub and many editors draw."""

from __future__ import annotations

import re

from perdure.render.diagram import Picture, PictureEdge, PictureNode
from perdure.render.svg import SIGNS, STYLES

# What Mermaid would read as markup, or as the end of a label.
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


def mermaid(picture: Picture) -> str:
    """A ``flowchart TD``: one shape for each kind of node, ports and names on the edges.

    The same for equal pictures.
    """
    places = {node.id: f"n{number}" for number, node in enumerate(picture.nodes, 1)}
    lines = ["flowchart TD"]
    lines += [f"    {places[node.id]}{_shape(node)}" for node in picture.nodes]
    for edge in picture.edges:
        lines.append(f"    {places[edge.source]} {_arrow(edge)} {places[edge.target]}")
    return "\n".join([*lines, *_marked(picture, places)]) + "\n"


def _shape(node: PictureNode) -> str:
    begin, end = _SHAPES[node.shape]
    status = ""
    if node.mark is not None:
        status = " ".join(filter(None, [SIGNS[node.mark], node.mark, node.progress]))
    return f'{begin}"{_label(node.id, *node.notes, status)}"{end}'


def _arrow(edge: PictureEdge) -> str:
    line = "-.->" if edge.is_unusual else "==>" if edge.is_taken else "-->"
    return f'{line}|"{_escaped(edge.label)}"|' if edge.label else line


def _marked(picture: Picture, places: dict[str, str]) -> list[str]:
    """The colours of the marks that there are."""
    lines = []
    for mark, style in STYLES.items():
        nodes = [places[node.id] for node in picture.nodes if node.mark is mark]
        if nodes:
            name = mark.replace(" ", "_")
            colours = f"fill:{style.fill},stroke:{style.stroke},color:{style.text}"
            lines += [f"    classDef {name} {colours}", f"    class {','.join(nodes)} {name}"]
    return lines


def _label(*lines: str) -> str:
    return "<br/>".join(_escaped(line) for line in lines if line)


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda found: f"#{ord(found[0])};", text)
