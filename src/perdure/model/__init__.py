"""What exists: frozen values that every other layer speaks in."""
