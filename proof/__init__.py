"""Proofs of Perdure's promises: simulation, mutants, chaos, fuzzing and their evidence.

For developers of Perdure; not installed.
"""
