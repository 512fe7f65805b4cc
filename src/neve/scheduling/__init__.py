"""Decides what the service does next: which operation on which table, why, and within which limits. Pure."""
