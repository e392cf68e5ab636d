"""Clients and handles: enqueue jobs, submit runs, wait for results."""
