"""Diagrams and timelines as Mermaid, SVG and text."""
