"""How Perdure proves itself: simulated histories, mutants, chaos, bad input and their evidence.

For those who work on Perdure. None of it is installed.
"""
