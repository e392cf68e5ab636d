"""Flows: the builder, node options, checks of a definition."""
