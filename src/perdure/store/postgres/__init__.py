"""The PostgreSQL store, for many machines."""
