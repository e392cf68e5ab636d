"""``python -m perdure.demo``: a small workload, two real workers, and one of them is killed."""
