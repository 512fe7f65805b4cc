"""When each file in the quarantine was last modified, so that one that is written again at the same path is not moved."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only: going back means restoring the copy."""
    op.add_column("quarantine", sa.Column("modified_ms", sa.BigInteger))
