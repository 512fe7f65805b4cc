"""Deletes as files hold them: vectors, files of positions, files of keys; read, written, and applied to rows."""
