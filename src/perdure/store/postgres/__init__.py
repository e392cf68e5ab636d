"""PostgreSQL: the store that many machines share."""
