"""Removing orphans: no file goes that another table has, that somebody is about to commit, or that is named in another way."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from neve.catalogs import documents
from neve.catalogs.local_file_io import LocalFileIO
from neve.errors import NeveError
from neve.maintenance import orphans
from neve.maintenance.orphans import is_checkpoint, required_age, running_files
from neve.maintenance.quarantine import is_judged_file
from neve.operations.file_index import FileIndex
from neve.operations.other_versions import OtherVersions
from neve.operations.remove_orphans import _Search
from neve.rewrite.journal import JournaledGroup, JournaledRun
from neve.spark.maintenance import judging, reachable
from neve.spark.maintenance import orphans as search
from neve.spark.maintenance.orphans import SparkOrphanSearch
from neve.spark.maintenance.reachable import _Iceberg
from neve.spark.table.bridge import TableBridge
from neve.state import StateStore
from neve.storage.files import local_path
from neve.storage.s3 import S3Files
from neve.table import location
from tests.accidents.unguarded import accident, answering
from tests.builders.cleanup_tables import Make, Site, assert_there, iceberg, listed, rows, said, write_inventory
from tests.builders.spark_tables import Bench
from tests.builders.table_integrity import assert_whole

NEIGHBOURS = answering(_Search._look_around, "[]")
UUIDS = answering(OtherVersions.owners, "{}")
NO_INDEX = answering(FileIndex.needed, "iter(())")


@accident(
    "The orphan job removed the files of another table at the same location",
    evidence="iceberg #17213, amoro #4292",
    guard="every catalog is asked where its tables are and what they need; metadata of another table ends the search",
    behind=[NEIGHBOURS],
    without=[UUIDS, NO_INDEX],
    sees="lost files",
)
def test_two_tables_share_a_location(site: Site, sites: Make) -> None:
    other = sites(location=site.home)
    site.search()
    other.assert_whole(main=range(30))
    site.assert_whole(main=range(30))


@accident(
    "The orphan job removed the files of a table that its catalog does not know",
    evidence="iceberg #17213",
    guard="metadata of another table, told by its uuid, ends the search",
    without=[UUIDS],
    sees="lost files",
)
def test_a_table_of_another_catalog_is_at_the_same_location(site: Site, sites: Make) -> None:
    other = sites(location=site.home)
    elsewhere = other.load()
    with closing(other.bench.catalog()) as catalog:
        catalog.drop_table(("accidents", other.bench.name))
    site.search()
    assert_whole(elsewhere, {"main": range(30)})


@accident(
    "A table was in two catalogs, and the orphan job of one deleted what was committed in the other",
    evidence="iceberg #5718, where the other is a branch",
    guard="what versions of the table name that are not in its history is held for them",
    without=[answering(_Search._hold, "judged")],
    sees="lost files",
)
def test_a_table_is_in_two_catalogs(site: Site) -> None:
    name = site.bench.name
    with closing(site.bench.catalog()) as catalog:
        elsewhere = catalog.register_table(("accidents", f"{name}_b"), site.load().metadata_location)
        elsewhere.append(rows(range(50, 55)))
        catalog.drop_table(("accidents", f"{name}_b"))
    site.append(60, 61)
    site.age()
    site.search()
    assert_whole(elsewhere, {"main": [*range(30), *range(50, 55)]})


@accident(
    "A table was renamed, another was made under its name at its place, and one lost its files to the other's orphan job",
    evidence="iceberg #7052, #6890",
    guard="the same",
    without=[NEIGHBOURS, UUIDS, NO_INDEX],
    sees="lost files",
)
def test_a_table_is_renamed_and_made_anew(site: Site, sites: Make) -> None:
    name, renamed = site.bench.name, f"{site.bench.name}_old"
    with closing(site.bench.catalog()) as catalog:
        catalog.rename_table(("accidents", name), ("accidents", renamed))
    site.bench.name = renamed
    new = sites(name=name, ids=10)
    new.search()
    site.assert_whole(main=range(30))


@accident(
    "A table's files lay inside the location of another",
    evidence="iceberg #10436, #4265, #12278",
    guard="every catalog is asked for the places that a table writes to, its data path included; an index has all its files",
    behind=[NEIGHBOURS],
    without=[NO_INDEX],
    sees="lost files",
)
def test_a_table_writes_into_another_s_directory(site: Site, sites: Make) -> None:
    nested = sites({"write.data.path": f"{site.home}/data/nested"})
    site.age()
    site.search()
    nested.assert_whole(main=range(30))


@accident(
    "The prefix /t took the files of its sibling /t_2 along, in a list of files",
    evidence="iceberg #17448",
    guard="what lies inside a place is told by a slash; metadata of another table in the listing ends the search",
    behind=[answering(judging.is_below, "key.startswith(root.key)")],
    without=[UUIDS],
    sees="lost files",
)
def test_a_sibling_s_name_begins_alike(site: Site, sites: Make, tmp_path: Path) -> None:
    sibling = sites(name=f"{site.bench.name}_2")
    site.search(inventory=write_inventory(tmp_path / "i.parquet", listed(site.home, sibling.home)))
    sibling.assert_whole(main=range(30))
    site.assert_whole(main=range(30))


NEVER = re.compile("(?!)")
ANY_STORE = answering(judging.in_same_store, "[]")
CONTENT_ALONE = answering(_Iceberg.everything, "self.content(table)")
NO_DOUBT = said(search, "_VERDICT", search._VERDICT.replace("ELSE 'conflict'", "ELSE 'orphan'"))


@accident(
    "The orphan job removed files that a writer had not committed yet",
    evidence="iceberg #4194",
    guard="files younger than 3 days are not taken; a lower age needs a second flag",
    without=[answering(required_age, "seconds")],
    sees="lost files",
)
def test_a_writer_commits_after_the_search(site: Site) -> None:
    slow = site.write("data/slow.parquet", 30, days=2)
    site.search(older_than="1h")
    site.commit(slow)
    site.assert_whole(main=range(31))


@accident(
    "The orphan job compared with old metadata and removed what had been committed since",
    evidence="iceberg #16324",
    guard="the table is loaded anew after everything is listed",
    without=[answering(_Search._reload, "self.versions.reload()")],
    sees="lost files",
)
def test_a_writer_commits_between_listing_and_comparison(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, list_files = site.write("data/slow.parquet", 30), SparkOrphanSearch.list_files

    def struck(self: SparkOrphanSearch, *args: Any) -> None:
        list_files(self, *args)
        site.commit(slow)

    monkeypatch.setattr(SparkOrphanSearch, "list_files", struck)
    site.search()
    site.assert_whole(main=range(31))


@accident(
    "The orphan job removed what a run of the same system had written and not committed",
    evidence="iceberg #4194",
    guard="files of runs that have not ended are known from their journal, however old they are",
    without=[answering(running_files, "{}")],
    sees="lost files",
)
def test_a_run_is_resumed_after_the_search(site: Site) -> None:
    _, plan = site.bench.plan()
    written = site.write("data/neve-r1-0-00000.parquet", 30)
    groups = (JournaledGroup(group_id=0, output_prefix=f"file:{site.home}/data/neve-r1-0"),)
    with StateStore.open(site.neve.connection.state_url) as store:
        store.begin(JournaledRun(run_id="r1", owner="elsewhere:1", started_ms=1, plan=plan, groups=groups))
    site.search()
    site.commit(written)
    site.assert_whole(main=range(31))


@accident(
    "The listing spelled paths in another way than the table, so that all of its files were orphans",
    evidence="iceberg #4652",
    guard="paths are compared by what they mean",
    without=[answering(judging.key_of, "path")],
    sees="lost files",
)
def test_the_table_names_files_in_other_ways(site: Site) -> None:
    for number, home in enumerate(["file:", "file://"]):
        site.commit(site.write(f"data/{number}.parquet", 30 + number), home)
    site.age()
    site.search()
    site.assert_whole(main=range(32))


def name_elsewhere(site: Site, named: str, listed: str, tmp_path: Path) -> None:
    """The table names a file in one store, an inventory has it in another that may be the same."""
    place = f"{named}{site.home}/elsewhere"
    with site.load().transaction() as change:
        change.set_properties({"write.data.path": place})
    file = site.write("elsewhere/f.parquet", 30)
    site.commit(file, named)
    row = (f"{listed}{file.path}", file.size_bytes, 1_700_000_000_000)
    site.search(location=place, inventory=write_inventory(tmp_path / "inventory.parquet", [row]))
    assert_there(task.file.file_path for task in site.load().scan().plan_files())


@accident(
    "An Azure account has two host names, and the files under one were orphans under the other",
    evidence="iceberg #7884",
    guard="a file at another host is not in the place that is looked at; one that may be the same is a doubt, never an orphan",
    behind=[ANY_STORE],
    without=[NO_DOUBT],
    sees="lost files",
)
def test_a_store_has_two_host_names(site: Site, tmp_path: Path) -> None:
    account = "abfss://c@lake.{}.core.windows.net"
    name_elsewhere(site, account.format("dfs"), account.format("blob"), tmp_path)


@accident(
    "Files under s3a were orphans, since they were listed under s3",
    evidence="iceberg #4652",
    guard="s3, s3a and s3n are the same; schemes that nobody calls equal are a doubt",
    behind=[said(location, "SAME_SCHEMES", ())],
    without=[ANY_STORE, NO_DOUBT],
    sees="lost files",
)
def test_a_store_has_two_schemes(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(S3Files, "lifecycle", lambda *_: ("lake", "", []))
    name_elsewhere(site, "s3a://lake", "s3://lake", tmp_path)


@accident(
    "The orphan job deleted statistics and partition statistics",
    evidence="amoro #1959, trino #19965",
    guard="all files that the metadata names are known files, statistics of both kinds included",
    without=[CONTENT_ALONE, said(reachable, "_DATASETS", reachable._DATASETS[:1])],
    sees="lost files: .*numbers.puffin.*parts.parquet",
)
def test_a_table_has_statistics(site: Site) -> None:
    table = TableBridge(site.bench.spark, site.neve.connection.name(site.name)).table
    snapshot, classes = table.currentSnapshot().snapshotId(), iceberg(site)
    numbers, parts = site.plant("metadata/numbers.puffin"), site.plant("metadata/parts.parquet")
    blobs = site.bench.spark._jvm.java.util.ArrayList()
    table.updateStatistics().setStatistics(classes.GenericStatisticsFile(snapshot, numbers, 4, 4, blobs)).commit()
    of_parts = classes.ImmutableGenericPartitionStatisticsFile.builder().snapshotId(snapshot).path(parts).fileSizeInBytes(4)
    table.updatePartitionStatistics().setPartitionStatistics(of_parts.build()).commit()
    site.age()
    site.search(no_other_table_is_here=True)
    site.assert_whole(main=range(30))


@accident(
    "The orphan job deleted older metadata files and the version hint",
    evidence="amoro #1959",
    guard="the metadata's log is known; besides, metadata files and the hint are never orphans, by their names",
    behind=[CONTENT_ALONE],
    without=[said(orphans, "_METADATA", NEVER), said(orphans, "_BY_NAME", NEVER)],
    sees="lost files: .*metadata.json.*version-hint",
)
def test_a_table_has_a_log_of_metadata_and_a_hint(site: Site) -> None:
    hint, table = site.plant("metadata/version-hint.text", content=b"3"), site.load()
    site.search(no_other_table_is_here=True)
    assert_there([entry.metadata_file for entry in table.metadata.metadata_log] + [table.metadata_location, hint])
    site.assert_whole(main=range(30))


@accident(
    "A retried job wrote its file again at the path of an old leftover, and the orphan job removed the new file",
    evidence="a trial of Neve: the file was seconds old, and its writer committed it afterwards",
    guard="a file moves only if its size and its time of last modification are those that were judged",
    without=[answering(is_judged_file, "True")],
    sees="lost files",
)
def test_a_retried_job_writes_to_the_path_of_an_orphan(site: Site) -> None:
    site.write("data/batch-0001/part-0.parquet", 100)
    site.run()
    again = site.write("data/batch-0001/part-0.parquet", 100, 101, days=0)
    site.clock.days += 2
    site.neve.settle(site.name)
    site.commit(again)
    site.assert_whole(main=[*range(30), 100, 101])


@accident(
    "The orphan job removed a stream's checkpoint from the table's directory, and the stream wrote its rows twice",
    evidence="a trial of Neve, with checkpointLocation in the table's location",
    guard="files that are named as in a checkpoint of Spark or Flink end the search, and stay if they were recorded",
    without=[answering(is_checkpoint, "False")],
    sees="lost files: .*checkpoint/metadata",
)
def test_a_stream_has_its_checkpoint_in_the_table_s_directory(site: Site) -> None:
    names = ("metadata", "offsets/0", "commits/0", "sources/0/offsets/0", "state/0/0/1.delta")
    checkpoint = [site.plant(f"checkpoint/{name}", content=b"v1") for name in names]
    site.search()
    assert_there(checkpoint)
    site.assert_whole(main=range(30))


@accident(
    "A location was parsed as a URL: what follows `#` was cut off, and another file was removed in place of the orphan",
    evidence="the trials of issue 15; PyIceberg parses locations as URLs",
    guard="one parser for all locations, which takes nothing for a fragment, a query or an escape",
    # What would be moved is another file than the one that was listed, and a second guard notices that as well.
    without=[answering(local_path, 'location.removeprefix("file://").partition("#")[0]'), answering(is_judged_file, "True")],
    sees="lost files",
)
def test_an_orphan_s_name_goes_on_after_a_live_file_s(site: Site) -> None:
    live = sorted((site.home / "data").glob("*.parquet"))[0]
    orphan = Path(site.plant(f"data/{live.name}#1"))
    site.run()
    site.clear()
    assert not orphan.exists() or not live.exists()
    site.assert_whole(main=range(30))


def searched_beside(site: Site) -> None:
    """An orphan of this table is found, whatever other tables the catalog has."""
    orphan = site.plant("data/orphan.parquet")
    try:
        record = site.run()
    except NeveError as error:
        raise AssertionError(f"refused: {error}") from error
    assert [file.path for file in site.neve.quarantined(site.name)] == [orphan]
    assert record.taken == 1


@accident(
    "A valid table with a variant column was called corrupt, and no orphan of any other table was removed",
    evidence="the trials of issue 15; PyIceberg knows no variant",
    guard="metadata documents are read by a parser of our own, for which a type that it does not know is no damage",
    without=[answering(documents.seen, "None")],
    sees="refused: .*ValidationError",
)
def test_another_table_has_a_variant_column(site: Site, sites: Make) -> None:
    other = sites()
    file = Path(other.load().metadata_location)
    document = json.loads(file.read_text(encoding="utf-8")) | {"format-version": 3, "next-row-id": 0}
    document["schemas"][0]["fields"].append({"id": 3, "name": "v", "required": False, "type": "variant"})
    file.write_text(json.dumps(document), encoding="utf-8")
    searched_beside(site)
    inspected = site.neve.inspect(other.name)
    assert (inspected.columns, inspected.data_files) == (3, 3)


@accident(
    "One table whose location has a `#` in it stopped the removal of orphans for all tables of its catalog",
    evidence="the trials of issue 15; PyIceberg parses locations as URLs",
    guard="one parser for all locations, which takes nothing for a fragment, a query or an escape",
    without=[
        answering(
            LocalFileIO.new_input,
            "__import__('pyiceberg.io.pyarrow').io.pyarrow.PyArrowFileIO(self.properties).new_input(location)",
        )
    ],
    sees="refused: .*a#b.* is missing",
)
def test_another_table_s_location_has_a_number_sign(site: Site, bench: Bench, tmp_path: Path) -> None:
    bench.sql(f"CREATE TABLE {{}} (id BIGINT) USING iceberg LOCATION 'file://{tmp_path}/a#b?c'")
    searched_beside(site)
    assert site.neve.inspect(f"accidents.{bench.name}").columns == 1


@accident(
    "An entry of the catalog that has no files any more stopped the removal of orphans for all other tables",
    evidence="the trials of issue 15",
    guard="an entry whose metadata file is gone or empty, with no other metadata beside it, is nothing that anybody could read",
    without=[answering(documents.other_metadata, "[watched.location]")],
    sees="refused: .* and others are there",
)
def test_other_tables_are_empty_leftovers(site: Site, sites: Make) -> None:
    shutil.rmtree(sites(ids=0).home)
    Path(sites(ids=0).load().metadata_location).write_bytes(b"")
    searched_beside(site)
