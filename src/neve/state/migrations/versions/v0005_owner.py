"""The owner of a run: a token that each takeover raises, and until when its heartbeat is valid."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only: going back means restoring the copy."""
    op.add_column("runs", sa.Column("token", sa.BigInteger, nullable=False, server_default="1"))
    op.add_column("runs", sa.Column("until_ms", sa.BigInteger))
