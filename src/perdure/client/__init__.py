"""Who asks for work and watches it, and what a task is written with."""
