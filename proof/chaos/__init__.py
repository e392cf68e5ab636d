"""Chaos on the real thing: worker and client processes on a real store, while faults happen.

A nemesis kills and freezes processes, crashes the database, cuts and holds connections, fills
the disk and turns the clock. All processes note outside the store what they did and what they
were told. At the end the notes are held against the store.
"""
