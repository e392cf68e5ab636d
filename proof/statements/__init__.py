"""Broken SQL statements, to show that the contract tests find them."""
