"""Flows as YAML: parse, load, dump, schema."""
