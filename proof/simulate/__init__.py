"""The deterministic simulator: real clients, workers and engine in a world made from a seed.

One event loop simulates many processes. Time is simulated, and the seed decides which actor runs
next, which crash and freeze, and where, how the network treats calls and hints, and what clients
do. The same seed gives the same history, so that every finding can be replayed step by step.
"""
