"""Pure rules behind explain, health, lineage and timelines."""
