"""A whole store in one file, and from the file into another store, where its work goes on."""
