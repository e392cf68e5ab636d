"""Who does the work: claim, execute, commit, renew, keep house. The I/O shell around the rules."""
