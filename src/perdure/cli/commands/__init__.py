"""One module for each group of commands. Each is imported when one of its commands is called."""
