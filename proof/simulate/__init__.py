"""The deterministic simulator: real clients, workers and engine in a world made from a seed.

One event loop is many processes. Time is simulated, and the seed decides whose turn it is, who
crashes where, who freezes, what the network does to calls and hints, and what clients ask
for. The same seed gives the same history, so whatever is found can be looked at step by step.
"""
