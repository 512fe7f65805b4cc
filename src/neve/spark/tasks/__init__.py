"""Rewrites, content checks and delete resolution as Spark jobs."""
