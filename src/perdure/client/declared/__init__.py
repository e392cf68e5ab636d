"""Flows as YAML or JSON: read with the line of everything, checked, compiled like Python's."""
