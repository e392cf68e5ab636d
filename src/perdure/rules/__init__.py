"""What follows: pure decisions. No I/O, no clock, no randomness, no await."""
