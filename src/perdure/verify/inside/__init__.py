"""What no client needs to see, and a full audit does: read past the contract, never written.

The contract shows what belongs to a run, a job or a namespace. It does not show what belongs to
nothing any more, whether a wait is held, or the text of a lane.
"""
