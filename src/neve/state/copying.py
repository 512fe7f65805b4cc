"""Copies of a SQLite database that is in use. Called before an upgrade and by `neve state backup`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def copy_database(file: Path, target: Path) -> None:
    """Copies what is committed, under a name that appears when the copy is whole. Raises OSError.

    By SQLite's backup, not as a file: what stands in the write-ahead log belongs to it, and others may be writing.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(part)) as copy:
            source.backup(copy)
        part.rename(target)
    except sqlite3.Error as error:
        raise OSError(str(error)) from error
    finally:
        part.unlink(missing_ok=True)


def free_name(stem: Path, suffix: str) -> Path:
    """A name that is not taken: the stem with the suffix, or with a number between them."""
    names = (stem.with_name(f"{stem.name}{f'.{n}' if n else ''}{suffix}") for n in range(1000))
    return next(name for name in names if not name.exists())
