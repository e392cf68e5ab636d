"""``python -m perdure.demo``: a flow on three worker processes, one of which is killed."""
