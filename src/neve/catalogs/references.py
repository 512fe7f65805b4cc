"""Everything that one table's metadata names, over all snapshots and refs, read in plain Python.

Used for the file index and the search for orphans (implements `index_ports.TableVersion`). Only paths are decoded, from the
metadata file as plain JSON: a table need not be understood to be left alone.
"""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_URL, uuid5

from neve.catalogs.errors import endpoint_of, reading
from neve.catalogs.manifests import decode_manifest_list
from neve.errors import CorruptMetadataError, NeveError
from neve.maintenance.file_index import fingerprint
from neve.table.document import TableOutline, outline, read_document
from neve.table.state import Manifest

_UNKNOWN_LENGTH = -1
"""Of a manifest that a snapshot of format v1 names without a list."""


class TableReferences:
    """One table at one metadata version. `io` opens its files: a FileIO, or the files of a session.

    Manifests without a list count as those of a list, for which the metadata file itself stands.
    """

    def __init__(self, outline: TableOutline, io: Any) -> None:
        self.outline, self.io = outline, io
        location = outline.metadata_location
        self.uuid = outline.uuid or str(uuid5(NAMESPACE_URL, location))
        self.own = outline.places
        self.lists = (*filter(None, outline.manifest_lists.values()), *((location,) if outline.manifests else ()))
        self.files = (location, *outline.metadata_log, *outline.statistics)

    @property
    def fingerprint(self) -> str:
        """Changes when anything that the metadata names changes."""
        outline = self.outline
        snapshots = (f"{number} {path}" for number, path in outline.manifest_lists.items())
        return fingerprint(self.uuid, outline.metadata_location, (*snapshots, *outline.manifests), self.files)

    @property
    def trouble(self) -> str | None:
        """Why not all of its files can be found; None if they can."""
        unlisted = [number for number, path in self.outline.manifest_lists.items() if not path]
        return f"snapshot {unlisted[0]} has no manifest list; expire it" if unlisted else None

    def manifests(self, manifest_list: str) -> tuple[Manifest, ...]:
        """The manifests that a list names. Raises NeveError."""
        if manifest_list == self.outline.metadata_location:
            return tuple(_inline(path) for path in dict.fromkeys(self.outline.manifests))
        return decode_manifest_list(self._read(manifest_list))

    def read(self, path: str, length: int) -> bytes:
        """The bytes of a manifest. Raises NeveError, also where it is not as long as its list says."""
        data = self._read(path)
        if length not in (len(data), _UNKNOWN_LENGTH):
            raise CorruptMetadataError(
                f"Cannot decode manifest {path}: it has {len(data):,} bytes, its list says {length:,}",
                hint="The file was cut short or replaced.",
            )
        return data

    def at(self, metadata_location: str) -> TableReferences | None:
        """The table as another metadata file has it; None if that file is gone or empty. Raises NeveError."""
        try:
            data = self._read(metadata_location)
        except NeveError:
            if not self._has_content(metadata_location):
                return None
            raise
        if not data:  # as a writer leaves it that ran out of space
            return None
        return TableReferences(outline(read_document(data, metadata_location), metadata_location), self.io)

    def exists(self, path: str) -> bool:
        """Whether there is such a file. Raises NeveError where nobody can tell."""
        with reading(path):
            return bool(self.io.new_input(path).exists())

    def _has_content(self, path: str) -> bool:
        """Asked for by itself: some stores answer that a file which may not be read is not found."""
        with reading(path):
            file = self.io.new_input(path)
            return bool(file.exists()) and len(file) > 0

    def _read(self, location: str) -> bytes:
        endpoint = endpoint_of(getattr(self.io, "properties", {}))
        with reading(location, endpoint=endpoint), self.io.new_input(location).open(seekable=False) as stream:
            return bytes(stream.read())


def _inline(path: str) -> Manifest:
    return Manifest(
        path=path,
        length_bytes=_UNKNOWN_LENGTH,
        holds_deletes=False,
        spec_id=0,
        sequence_number=0,
        added_snapshot_id=None,
        live_files=None,
    )
