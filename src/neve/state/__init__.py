"""The state store: what earlier runs did, in SQLite by default, or in PostgreSQL."""

from neve.state.rows import Run, StoredOutput
from neve.state.store import StateStore

__all__ = ["Run", "StateStore", "StoredOutput"]
