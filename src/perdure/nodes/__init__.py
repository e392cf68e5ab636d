"""The node kinds that come with Perdure, one a file, through the interface that a user would use."""
