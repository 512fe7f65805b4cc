"""What a database URL says before any database library is loaded: whether it is a SQLite file, which, and its directory."""

from __future__ import annotations

from pathlib import Path

from neve.errors import StateError

MEMORY = ("sqlite://", "sqlite:///:memory:")


def sqlite_file(url: str) -> Path | None:
    """The file behind a SQLite URL; None for other databases and for one in memory."""
    scheme, _, rest = url.partition("://")
    if scheme.partition("+")[0] != "sqlite" or url in MEMORY:
        return None
    return Path(rest.removeprefix("/").partition("?")[0])


def identity(file: Path | None) -> tuple[int, int] | None:
    """What stays the same as long as it is the same file; None if there is none."""
    try:
        found = None if file is None else file.stat()
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def make_directory(directory: Path) -> None:
    """Makes the directory of a SQLite file."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(
            f"Cannot create state store directory {directory}: {error.strerror}",
            hint="Make its parent writable, or set state.url.",
        ) from error
