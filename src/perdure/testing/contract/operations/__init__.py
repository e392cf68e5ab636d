"""Random operations for the differential test."""
