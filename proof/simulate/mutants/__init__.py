"""Mutants: the real code with one defect each, to show that the simulator finds it."""

from __future__ import annotations

from proof.simulate.mutants import engine, jobs
from proof.simulate.mutants.patch import MUTANTS, mutated

__all__ = ["MUTANTS", "engine", "jobs", "mutated"]
