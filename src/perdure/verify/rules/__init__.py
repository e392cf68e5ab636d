"""What must hold, one rule a function. A rule reads and tells; it changes nothing."""
