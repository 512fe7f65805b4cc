"""What can be set: one small model per concern. Users write kebab-case keys, code reads snake_case attributes.

Built by `load_settings` only. Each model refuses unknown keys and says what its fields need of each other; single values are
checked before, layer by layer (`neve.settings.layers`). Catalogs have a file of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from neve.settings.catalog import CatalogSettings
from neve.settings.notifications import NotificationSettings
from neve.settings.secrets import Text
from neve.settings.section import ContradictionError, FreeText, Section, nearest
from neve.settings.service import ServiceSettings
from neve.table.units import GIB, MIB, Bytes, Seconds, parse_bytes


def _spark_memory(value: object) -> str:
    size = parse_bytes(value)
    if size < MIB:
        raise ValueError(f"{value!r} is less than 1 MB")
    return f"{size // GIB}g" if size % GIB == 0 else f"{size // MIB}m"


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


SparkMemory = Annotated[str, BeforeValidator(_spark_memory)]


class SparkSettings(Section):
    """The Spark that does the heavy work."""

    master: str = Field("local[*]", description="Any Spark master URL.", min_length=1)
    driver_memory: SparkMemory | None = Field(None, description="Heap of the driver; derived from the machine unless set.")
    executor_memory: SparkMemory | None = Field(None, description="Heap of an executor; Spark's own default unless set.")
    jars: tuple[str, ...] = Field((), description="Jar files to use instead of those that Neve would fetch.")
    java_home: str | None = Field(None, description="The Java to run Spark on; found by itself unless set.")
    class_archive: Literal["auto", "existing", "off"] = Field(
        "auto",
        description="The class archive that makes local starts faster: used and made in the background, used if it exists, or "
        "not used.",
    )
    conf: dict[str, FreeText] = Field(default={}, description="Spark properties, passed on as they are.")


class StateSettings(Section):
    """Where runs are remembered."""

    url: Text | None = Field(
        None, description="A database URL, SQLite or PostgreSQL; a SQLite file in the user's data directory unless set."
    )

    keep_seconds: Seconds = Field(365 * 86400, alias="keep", description="Runs that ended longer ago are forgotten.", gt=0)

    @property
    def database(self) -> Text:
        """The URL in effect; `reveal` it before use."""
        if self.url is not None:
            return self.url
        from platformdirs import user_data_path

        return Text(f"sqlite:///{user_data_path('neve', appauthor=False) / 'state.db'}")


class CacheSettings(Section):
    """The disk cache of immutable metadata files."""

    enabled: bool = Field(True, description="Whether metadata is kept on disk between runs.")
    directory: str | None = Field(None, description="Where; the user's cache directory unless set.", min_length=1)
    max_size_bytes: Bytes = Field(1 * GIB, alias="max-size", description="The most that the cache may hold.", gt=0)
    ttl_seconds: Seconds = Field(30 * 86400, alias="ttl", description="Entries unused for this long are dropped.", gt=0)

    @property
    def path(self) -> Path:
        """The directory in effect."""
        if self.directory is not None:
            return Path(self.directory).expanduser()
        from platformdirs import user_cache_path

        return user_cache_path("neve", appauthor=False) / "metadata"


class OrphanSettings(Section):
    """What is declared about files of tables that cannot be read, so that these need not stop the removal of files."""

    exclusive_prefixes: tuple[str, ...] = Field(
        (),
        description="Locations below which only tables that Neve can read have files; others that cannot be read are ignored.",
    )
    ignore_tables: tuple[str, ...] = Field(
        (), description="Tables, namespaces or catalogs, by full name, that have no files in the places of other tables."
    )
    dropped_tables: tuple[str, ...] = Field(
        (),
        description="UUIDs of tables that were dropped and whose files nobody needs. Where another table was created at their "
        "location, a search for orphans puts what they left there into the quarantine.",
    )


class InspectSettings(Section):
    """How tables are looked at."""

    python_max_files: int = Field(
        2_000_000, description="Tables with more live files are read by Spark; up to it plain Python is quicker.", ge=0
    )

    footer_sample: int = Field(
        20, description="Footers read for a plan where the metadata does not tell how files are cut; 0 reads none.", ge=0
    )


class CostSettings(Section):
    """What predictions go by: how fast one core works, and what things cost, in whatever currency."""

    copy_throughput: Bytes = Field(400 * MIB, description="What a core copies in a second.", gt=0)
    arrow_throughput: Bytes = Field(40 * MIB, description="What a core re-encodes in a second.", gt=0)
    spark_throughput: Bytes = Field(12 * MIB, description="What a core rewrites in a second through Spark.", gt=0)
    core_hour: float = Field(0.05, description="Price of a core for an hour.", ge=0)
    thousand_reads: float = Field(0.0004, description="Price of a thousand requests that read.", ge=0)
    thousand_writes: float = Field(0.005, description="Price of a thousand requests that write or list.", ge=0)
    version: str = Field("", description="A name for these prices, kept with every amount of money that they give.")


class LogSettings(Section):
    """What goes to standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        "warning", description="The least important message that is written."
    )
    format: Literal["text", "json"] = Field("text", description="Lines for people, or one JSON object per line.")


class Settings(Section):
    """Everything that can be set."""

    default_catalog: str | None = Field(
        None, description="The catalog of table names that name none; the only one unless set.", min_length=1
    )
    catalogs: dict[str, CatalogSettings] = Field(default={}, description="Catalogs by the name that tables call them.")
    policy: dict[str, Any] = Field(default={}, description="How tables should be kept: overrides of the knobs.")
    spark: SparkSettings = SparkSettings()
    state: StateSettings = StateSettings()
    cache: CacheSettings = CacheSettings()
    inspect: InspectSettings = InspectSettings()
    orphans: OrphanSettings = OrphanSettings()
    cost: CostSettings = CostSettings()
    notifications: NotificationSettings = NotificationSettings()
    service: ServiceSettings = ServiceSettings()
    log: LogSettings = LogSettings()
    profile: str | None = Field(None, description="The profile laid over this file, such as dev, staging or prod.")
    profiles: dict[str, dict[str, Any]] = Field(default={}, description="Named overrides of all of the above.")

    @model_validator(mode="after")
    def _default_catalog_exists(self) -> Self:
        if self.catalogs and self.default_catalog and self.default_catalog not in self.catalogs:
            close = nearest(self.default_catalog, self.catalogs)
            raise ContradictionError(f"names no catalog of these settings{close}", "default-catalog")
        return self

    @property
    def catalog_name(self) -> str | None:
        """The default catalog, or the only one there is; None where a name must say it."""
        if self.default_catalog or len(self.catalogs) != 1:
            return self.default_catalog
        return next(iter(self.catalogs))
