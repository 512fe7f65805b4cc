"""Neve."""
