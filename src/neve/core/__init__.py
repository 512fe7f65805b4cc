"""Decisions without IO: everything here is a pure function of its arguments."""
