"""Flows and runs as pictures: from values to text, without a store, a clock or a font."""
