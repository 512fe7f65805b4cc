"""Parquet at the level of bytes: footers, pages, and the `copy` kernel."""
