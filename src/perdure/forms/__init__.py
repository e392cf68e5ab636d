"""JSON Schema forms, validated within a cost budget."""
