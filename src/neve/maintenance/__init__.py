"""Upkeep besides the rewrite, one file per operation. None is built yet; the import contracts already hold its place."""
