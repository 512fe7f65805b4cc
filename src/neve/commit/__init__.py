"""The one way to change a table: the lease, the conflict check, the commit, and the journal."""
