"""Runs at work: their state in memory, decided on by the rules, committed to the store.

Workers and clients use it alike. It holds no decision of its own: it reads what a decision needs,
writes what was decided, and asks anew when somebody else was faster.
"""
