"""The state store: what earlier runs did, in SQLite by default, or in PostgreSQL."""

from neve.state.rows import Output, Run
from neve.state.store import StateStore

__all__ = ["Output", "Run", "StateStore"]
