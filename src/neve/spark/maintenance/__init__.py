"""Expiry, orphan search, TTL, manifests, tags and statistics on Spark."""
