"""The state store: what earlier runs did, in SQLite by default or in any database that SQLAlchemy speaks to."""

from neve.state.rows import Output, Run
from neve.state.store import StateStore

__all__ = ["Output", "Run", "StateStore"]
