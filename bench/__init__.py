"""What Perdure costs, as a ratio to the raw cost of the same rows on the same database."""
