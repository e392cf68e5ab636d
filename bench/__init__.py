"""Benchmarks: the cost of Perdure as a ratio to raw queries on the same database."""
