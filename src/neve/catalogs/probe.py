"""What `neve doctor` asks of a catalog and its warehouse: does it answer, can it be read, can it be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from uuid import uuid4

from neve.catalogs.errors import endpoint_of, reading, writing
from neve.catalogs.opening import IcebergCatalog, pyiceberg_properties, revealed
from neve.settings.catalog import CatalogSettings

_ENOUGH = 1000


def probe_catalog(catalog: IcebergCatalog) -> str:
    """Counts tables, up to a point."""
    found = sum(1 for _ in islice(catalog.tables(), _ENOUGH))
    return f"{catalog.name} answers, {'at least ' if found == _ENOUGH else ''}{found} tables"


def probe_of_warehouse(settings: CatalogSettings, environ: Mapping[str, str]) -> Callable[[], str] | None:
    """A probe, or None where only the catalog knows the place: a REST catalog's warehouse may be a mere name."""
    warehouse = revealed(settings, environ, lenient=True).warehouse
    if not warehouse or "/" not in warehouse:
        return None
    return lambda: _write_and_read(settings, environ)


def _write_and_read(settings: CatalogSettings, environ: Mapping[str, str]) -> str:
    """Writes a small file, reads it back, removes it."""
    from pyiceberg.io import load_file_io

    warehouse = str(revealed(settings, environ).warehouse)
    location = f"{warehouse.rstrip('/')}/.neve-doctor-{uuid4().hex}"
    properties = pyiceberg_properties(settings, environ)
    io, endpoint = load_file_io(properties, location), endpoint_of(properties)
    with writing(location, endpoint=endpoint):
        with io.new_output(location).create() as stream:
            stream.write(b"neve")
        try:
            with reading(location, endpoint=endpoint), io.new_input(location).open() as stream:
                answer = bytes(stream.read())
        finally:
            io.delete(location)
    return (
        f"{warehouse} can be read and written" if answer == b"neve" else f"{warehouse} gave back other bytes than were written"
    )
