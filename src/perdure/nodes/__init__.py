"""The node types that come with Perdure, one a file, made as a user would make them."""
