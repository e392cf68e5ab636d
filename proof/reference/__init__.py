"""A second interpreter of flows, to compare the engine with, and what drives both."""
