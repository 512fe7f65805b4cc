"""`--warehouse PATH`: a directory as a catalog, without any configuration.

A directory with our SQLite catalog in it is opened by that; one laid out by a hadoop catalog is read as such. Looking never
creates anything: only `create=True`, which the demo and the sample generator pass, makes a new warehouse.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from neve.catalogs.storage import scheme
from neve.errors import BadRequestError, CorruptMetadataError
from neve.settings.catalog import CatalogSettings
from neve.table.location import address

DATABASE = "catalog.db"
DEFAULT_NAME = "local"


def database_in(warehouse: str) -> Path:
    """Where the SQLite catalog of a warehouse directory lies."""
    return local_path(warehouse) / DATABASE


def local_path(location: str) -> Path:
    """The directory behind a path or a file URL, absolute."""
    return Path(address(location).local_path).expanduser().resolve()


def open_warehouse(location: str, *, create: bool = False) -> tuple[str, CatalogSettings]:
    """The catalog's name and description."""
    if scheme(location) != "file":
        return DEFAULT_NAME, CatalogSettings.model_validate({"type": "hadoop", "warehouse": location})
    directory = local_path(location)
    if create:
        directory.mkdir(parents=True, exist_ok=True)
    if not directory.is_dir():
        raise BadRequestError(
            f"Cannot open warehouse {location}: there is no such directory",
            hint="`neve demo` makes one with sample tables to try things on.",
        )
    if create or (directory / DATABASE).exists():
        name = _catalog_name(directory / DATABASE) if (directory / DATABASE).exists() else DEFAULT_NAME
        return name, CatalogSettings.model_validate({"type": "sql", "warehouse": str(directory)})
    if any(directory.glob("*/*/metadata/v*.metadata.json")) or any(directory.glob("*/*/metadata/version-hint.text")):
        return DEFAULT_NAME, CatalogSettings.model_validate({"type": "hadoop", "warehouse": str(directory)})
    raise BadRequestError(
        f"Cannot open warehouse {location}: it holds neither {DATABASE} nor tables of a hadoop catalog",
        hint="Point --warehouse at the directory that holds the namespaces, or describe the catalog in neve.yaml.",
    )


def _catalog_name(database: Path) -> str:
    """A SQL catalog keeps its name with each table, and only that name finds them again."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            names = [row[0] for row in connection.execute("SELECT DISTINCT catalog_name FROM iceberg_tables ORDER BY 1")]
    except sqlite3.OperationalError:  # no such table yet: nothing was ever written
        return DEFAULT_NAME
    except sqlite3.DatabaseError as error:
        raise CorruptMetadataError(
            f"Cannot open catalog {database}: {error}", hint="The file is not a SQLite database."
        ) from error
    if len(names) > 1:
        raise BadRequestError(
            f"Cannot open warehouse by its directory: {database.name} holds {len(names)} catalogs ({', '.join(names)})",
            hint="Describe the one you mean in neve.yaml, under its own name.",
        )
    return names[0] if names else DEFAULT_NAME
