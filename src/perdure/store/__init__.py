"""Stores: one contract, three backends. A store guards writes; it makes no decisions."""
