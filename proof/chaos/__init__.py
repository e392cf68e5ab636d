"""Chaos tests: worker and client processes on a real store, under faults.

A nemesis kills and freezes processes, crashes the database, cuts and stalls connections, fills the
disk and shifts the clock. All processes record outside the store what they did and which responses
they got. At the end the records are compared with the store.
"""
