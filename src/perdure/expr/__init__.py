"""Templates, conditions, patterns and paths into JSON values."""
