"""One module per operation on a table."""
