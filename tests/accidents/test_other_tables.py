"""Files in one table's directory that only another table names: imported, written there once, or reached through a link."""

from __future__ import annotations

from typing import Any

from neve.operations.file_index import FileIndex
from tests.accidents.sites import Make, Site
from tests.accidents.unguarded import accident, answering

NO_INDEX = answering(FileIndex.needed, "iter(())")
GUARD = "an index over every table of every catalog shows which files others need"


def guarded(words: str) -> Any:
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
