"""Files in one table's directory that only another table names: imported, written there once, or reached through a link."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from neve.catalogs.hadoop import HadoopCatalog
from neve.operations.file_index import FileIndex
from neve.operations.remove_orphans import _Search
from neve.settings.catalog import CatalogSettings
from tests.accidents.unguarded import accident, answering
from tests.builders.cleanup_tables import Make, Site, assert_there

NO_INDEX = answering(FileIndex.needed, "iter(())")
GUARD = "an index over every table of every catalog shows which files others need"


def guarded(words: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return accident(words, evidence="issue 15, trial", guard=GUARD, without=[NO_INDEX], sees="lost files")


@guarded("A table once had its data path in another's directory, and the orphan job of that one removed its files")
def test_a_table_once_had_its_data_path_in_another_s_directory(site: Site, sites: Make) -> None:
    other = sites({"write.data.path": f"{site.home}/data/nested"})
    with other.load().transaction() as change:
        change.remove_properties("write.data.path")
    site.age()
    site.search()
    other.assert_whole(main=range(30))
    site.assert_whole(main=range(30))


@guarded("A table imported files that lay in another's directory, and the orphan job of that one removed them")
def test_a_table_imported_files_of_another_s_directory(site: Site, sites: Make) -> None:
    other = sites()
    other.commit(site.write("import/f.parquet", 30))
    site.search()
    other.assert_whole(main=range(31))


@guarded("A table reached files in another's directory through a link, and the orphan job of that one removed them")
def test_a_table_reaches_another_s_directory_through_a_link(site: Site, sites: Make) -> None:
    other = sites()
    file = site.write("shared/f.parquet", 30)
    (other.home / "elsewhere").symlink_to(site.home / "shared")
    other.commit(file._replace(path=f"{other.home}/elsewhere/f.parquet"))
    site.search()
    other.assert_whole(main=range(31))


@guarded("A table imported a file that waited in the quarantine, and the file was purged")
def test_a_table_takes_up_a_file_that_waits_in_the_quarantine(site: Site, sites: Make) -> None:
    other = sites()
    file = site.write("import/f.parquet", 30)
    site.run()
    other.commit(file)
    site.clear()
    other.assert_whole(main=range(31))


@accident(
    "A table could not be read for a while, and files that it had imported from another's directory were removed",
    evidence="issue 15, trial",
    guard="a table or namespace that cannot be read may need any file: orphans are not looked for until that is resolved",
    without=[answering(_Search._refuse_unreadable, "None")],
    sees="lost files",
)
def test_a_table_that_imported_files_cannot_be_read_for_a_while(site: Site, sites: Make) -> None:
    other = sites()
    other.commit(site.write("import/f.parquet", 30))
    metadata = Path(other.load().metadata_location)
    content = metadata.read_bytes()
    metadata.write_bytes(b"{")
    site.search()
    metadata.write_bytes(content)
    other.assert_whole(main=range(31))


HIDDEN = answering(
    HadoopCatalog.directories,
    "[(*parts, name) for name in self._names(parts, of_directories=True)"
    " if 'metadata' not in self._names((*parts, name), of_directories=True)]",
)


@accident(
    "A table named `metadata` hid its namespace in a hadoop catalog, and files that a table in it had imported were removed",
    evidence="trial",
    guard="a directory is a table by its metadata files alone, and every directory is searched for more tables",
    without=[HIDDEN],
    sees="lost files",
)
def test_a_table_named_metadata_is_beside_one_that_imported_files(site: Site, tmp_path: Path) -> None:
    spark, root = site.bench.spark, tmp_path / "hadoop"
    prefix = f"spark.sql.catalog.{(catalog := f'hadoop_{site.bench.name}')}"
    for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": str(root)}.items():
        spark.conf.set(prefix + key, value)
    for table in ("sales", "metadata"):
        spark.sql(f"CREATE TABLE {catalog}.n.{table} (id BIGINT, _day STRING) USING iceberg")
    file = site.write("import/f.parquet", 30)
    source = f"`parquet`.`{site.home}/import`"
    spark.sql(f"CALL {catalog}.system.add_files(table => 'n.sales', source_table => '{source}')")
    described = CatalogSettings.model_validate({"type": "hadoop", "warehouse": str(root)})
    site.neve.connection.described[catalog] = described
    site.search()
    assert_there([file.path])
    assert [row.id for row in spark.sql(f"SELECT id FROM {catalog}.n.sales").collect()] == [30]
