"""Shared by the SQL backends: statements, migrations, row mapping and transfer."""
