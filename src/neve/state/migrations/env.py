"""Alembic's entry: runs the migrations on the connection that `neve.state.migrate` hands over, inside its transaction."""

from __future__ import annotations

from alembic import context

from neve.state.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
context.run_migrations()
