"""What a table is: its state, files, deletes, metrics and partitions as values. Pure."""
