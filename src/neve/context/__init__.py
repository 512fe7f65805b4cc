"""What operations work with: the adapters of a connection, and of one table of it, opened at their first use."""
