"""Tasks: the decorator, what a task body gets, and how a call becomes a job."""
