"""Upkeep besides the rewrite, one file per operation."""
