"""Entries of a `rest` catalog, whose server makes the metadata files. Used by `entries`.

A change requires the table's uuid, as Iceberg's Java does: the protocol has no requirement for properties. A change of the same
property by another process between our load and our change is overwritten, and both find out when they load the table again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from neve.catalogs.entries import Version
from neve.errors import CommitUnknownError, NeveError, NotUnderstoodError
from neve.table.document import Document, outline
from neve.table.property_change import refusal
from neve.table.state import TableName

if TYPE_CHECKING:
    from neve.catalogs.opening import IcebergCatalog

log = logging.getLogger(__name__)

_OWN_GRANTS = ("token", "credential", "urn:ietf:params:oauth")
"""Keys of a table's own configuration by which Java signs in for this table alone."""


class RestEntries:
    """Of one catalog."""

    def __init__(self, catalog: IcebergCatalog) -> None:
        self._catalog = catalog

    def load(self, name: TableName) -> Version:
        """As the server has it now."""
        return _version(name, self._catalog.watched(name).answer)

    def check(self, name: TableName, version: Version) -> None:
        """Raises NotUnderstoodError where Java signs in for the table alone, and for metadata that we do not know."""
        if any(key.startswith(_OWN_GRANTS) for key in version.source.get("config") or ()):
            raise NotUnderstoodError(f"Cannot change {name}: its catalog grants access to each table by itself")
        if (reason := refusal(version.source["metadata"], version.outline.metadata_location)) is not None:
            raise NotUnderstoodError(f"Cannot change {name}: {reason}")

    def send(self, name: TableName, base: Version, values: Mapping[str, str | None]) -> Version | None:
        """One commit."""
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

        from neve.catalogs.rest import REFUSALS

        with self._catalog.reaching(name):
            try:
                answer = self._catalog.client.change_properties(name.identifier, base.uuid, values)
            except (CommitFailedException, NoSuchTableError):
                return None
            except REFUSALS:
                raise
            except Exception as error:
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                raise CommitUnknownError(f"Cannot tell whether the commit landed: {reason}") from error
        try:
            return _version(name, answer)
        except NeveError as error:
            log.info("%s is loaded again: %s", name, error)
            return base  # it landed all the same

    def tables_in(self, namespace: tuple[str, ...]) -> list[TableName]:
        """The tables of a namespace."""
        return self._catalog.tables_in(namespace)


def _version(name: TableName, answer: Document) -> Version:
    document, location = answer.get("metadata"), answer.get("metadata-location")
    if not isinstance(document, dict) or not isinstance(location, str):
        raise NotUnderstoodError(f"Cannot load {name}: its catalog does not tell its metadata file")
    return Version(outline(document, location), answer)
