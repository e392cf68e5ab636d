"""What flows, and Perdure itself, are tested with. Nothing in production imports it."""
