"""Flows run here and now, on a store of their own that is gone afterwards."""
