"""What a plan and the record of a dry run say about the metadata that they rest on. Pure."""

from __future__ import annotations

from pydantic import Field

from neve.table.frozen import Frozen


class Preview(Frozen):
    """A plan, or a record that may be one of a dry run."""

    metadata_from_cache: bool | None = Field(default=None, exclude_if=lambda known: known is None)
    """Whether nothing was read from storage: the catalog answered, and the rest came from the cache. None if it is no dry run;
    such records are stored, as they always were, without it."""
