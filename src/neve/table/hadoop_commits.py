"""Where a hadoop catalog may be committed to: one rule for Neve's own Spark session and for a caller's. Pure.

A hadoop catalog commits by renaming a metadata file to the next version. Two writers cannot lose each other's commits only if
that rename never overwrites a file, or if all of them hold one lock.
"""

from __future__ import annotations

from neve.errors import BadRequestError
from neve.table.location import address

_OBJECT_STORES = frozenset({"s3", "gs", "abfss", "oss", "cosn", "obs"})


def refuse_unlocked(what: str, location: str, *, lock: str | None, default_filesystem: str, hint: str) -> None:
    """Raises BadRequestError unless the location is on the local disk or writers share a lock manager.

    Hadoop opens a location without a scheme on its default file system, so that decides for a plain path.
    """
    found = address(location if address(location).scheme else default_filesystem)
    if found.kind == "file" or lock:
        return
    if found.kind in _OBJECT_STORES:
        reason = "an object store cannot rename atomically"
    else:
        reason = f"Neve cannot verify that a rename on {found.scheme}:// never overwrites a file"
    raise BadRequestError(
        f"Cannot commit to {what}: it is in a hadoop catalog without a lock manager, and {reason}. Writers could lose each "
        "other's commits",
        hint=hint,
    )
