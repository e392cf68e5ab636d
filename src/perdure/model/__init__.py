"""Frozen values shared by all other layers."""
