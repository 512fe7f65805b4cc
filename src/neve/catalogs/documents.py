"""A table's metadata document as a catalog loads it, caught on its way to PyIceberg, which need not understand it.

Every metadata file that a catalog reads passes through `read_metadata`, every answer of a REST catalog through `seen`. Inside
`watching`, loading ends there: our own parser (`table.document_state`) reads the document.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neve.errors import CorruptMetadataError
from neve.table.document import FILE_NAME, Document, read_document
from neve.table.location import address


@dataclass
class Watched:
    """The table document that was read."""

    location: str = ""
    document: Document | None = None
    data: bytes = b""
    """The metadata file as it is stored; empty if a REST catalog handed the document out."""
    io: Any = None
    """What the metadata file was read by; None if a REST catalog handed it out."""
    is_absent: bool = False
    """Whether the metadata file is missing, or has no bytes."""
    answer: Document = field(default_factory=dict)
    """The answer of a REST catalog around the document, with what it grants for the table's files."""


class Enough(Exception):  # noqa: N818 - no error
    """The document was read, and nobody wants PyIceberg to parse it."""


_watched: ContextVar[Watched | None] = ContextVar("neve_watched_document", default=None)


@contextmanager
def watching() -> Iterator[Watched]:
    """Ends the loading of a table inside the block with `Enough` as soon as its document is read, by this thread."""
    found = Watched()
    token = _watched.set(found)
    try:
        yield found
    finally:
        _watched.reset(token)


def seen(document: Document, location: str, answer: Document | None = None) -> None:
    """Notes a document, with the answer of a catalog that it is part of. Raises Enough where somebody watches."""
    if (watched := _watched.get()) is not None:
        watched.location, watched.document, watched.answer = location, document, answer or {}
        raise Enough


def read_metadata(file: Any, file_io: Any) -> Document:
    """The document of a table's metadata file, given as an input file of PyIceberg's kind."""
    location, watched = file.location, _watched.get() or Watched()
    watched.location, watched.io = location, file_io
    try:
        with file.open() as stream:
            data = bytes(stream.read())
    except FileNotFoundError:
        watched.is_absent = True
        raise
    watched.data, watched.is_absent = data, not data
    document = read_document(data, location)
    seen(document, location)
    return document


def other_metadata(watched: Watched) -> list[str]:
    """Files with content that lie beside the metadata file that was asked for, manifests included, metadata files last.

    Raises CorruptMetadataError where nobody can tell: a disk on which even the table's parent directory is missing may not be
    mounted.
    """
    from neve.catalogs.file_io import LiteralFileIO, entries_of, has_odd_key

    directory = watched.location.rpartition("/")[0]
    if has_odd_key(directory):
        raise CorruptMetadataError(f"Cannot read metadata {watched.location}: it is missing")
    if address(directory).kind == "file":
        parent = Path(address(directory).local_path).parent.parent
        if not parent.is_dir():
            raise CorruptMetadataError(
                f"Cannot read metadata {watched.location}: it is missing, and so is the directory {parent}",
                hint="Its disk may not be mounted. If the table is gone, drop its entry in the catalog.",
            )
    found = entries_of(LiteralFileIO(watched.io.properties), directory)
    names = sorted((bool(FILE_NAME.search(name)), name) for name, size in found if size)
    return [f"{directory}/{name}" for _, name in names]
