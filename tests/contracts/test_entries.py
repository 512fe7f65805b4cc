"""One behavior suite over every adapter of `ports.TableEntry`: Iceberg's Java, and plain Python on SQL and REST catalogs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from neve.catalogs.entries import PlainEntry
from neve.catalogs.opening import IcebergCatalog
from neve.catalogs.rest_entries import RestEntries
from neve.catalogs.sql_entries import SqlEntries
from neve.errors import CatalogUnreachableError, StorageError, TableGoneError, TableNotFoundError
from neve.kernels.streams import LocalSink
from neve.ports import TableEntry
from neve.settings import CatalogSettings
from neve.table.location import address
from neve.table.state import TableName
from stack.proxy import FaultProxy, drop, drop_answer
from tests.builders.catalog_descriptions import Described, Server, describe
from tests.builders.table_entries import EntrySite

NUMBERS = count(1)
KEY = "neve.lease"


def java(request: pytest.FixtureRequest) -> EntrySite:
    from neve.spark.table.bridge import TableBridge

    spark, warehouse = request.getfixturevalue("spark"), request.getfixturevalue("warehouse")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.entries")
    catalog = IcebergCatalog("local", CatalogSettings(type="sql", warehouse=str(warehouse)), environ={})
    name = TableName(catalog="local", namespace=("entries",), name=f"t{next(NUMBERS)}")
    return EntrySite(name, catalog.client, lambda: TableBridge(spark, name), (TableBridge, "swapped"))


def sqlite(request: pytest.FixtureRequest) -> EntrySite:
    directory = request.getfixturevalue("tmp_path") / "warehouse"
    directory.mkdir()
    return python(Described({"type": "sql", "warehouse": str(directory)}), SqlEntries)


def postgres(request: pytest.FixtureRequest) -> EntrySite:
    return python(described("postgres", request), SqlEntries)


def rest(request: pytest.FixtureRequest) -> EntrySite:
    return python(described("rest", request), RestEntries)


def described(family: str, request: pytest.FixtureRequest) -> Described:
    server: Server = request.getfixturevalue("stack_server")
    tmp_path: Path = request.getfixturevalue("tmp_path")
    return describe(family, server, tmp_path)


def python(description: Described, entries: Any) -> EntrySite:
    from neve.context.connection import Connection
    from neve.settings import load_settings

    model = description.model
    connection = Connection(load_settings(environ={}), {"lake": model}, "lake", environ=description.environ, clock=None)  # type: ignore[arg-type]
    name = TableName(catalog="lake", namespace=(f"db_{uuid4().hex[:12]}",), name="t")
    client = description.open().client
    client.create_namespace(name.namespace)

    def open_entry() -> TableEntry:
        found = connection.entry(name)
        assert isinstance(found, PlainEntry)
        return found

    return EntrySite(name, client, open_entry, (entries, "send"), is_exclusive=entries is SqlEntries)


@pytest.fixture(
    params=[
        pytest.param(java, marks=pytest.mark.spark, id="java"),
        pytest.param(sqlite, id="sqlite"),
        pytest.param(postgres, marks=pytest.mark.stack, id="postgres"),
        pytest.param(rest, marks=pytest.mark.stack, id="rest"),
    ]
)
def site(request: pytest.FixtureRequest) -> EntrySite:
    make: Callable[[pytest.FixtureRequest], EntrySite] = request.param
    found = make(request)
    found.create()
    return found


def test_an_entry_tells_what_other_clients_see(site: EntrySite) -> None:
    site.set(a="1")
    entry, table = site.open(), site.load()
    assert entry.uuid() == str(table.metadata.table_uuid)
    assert (entry.location(), entry.metadata_location()) == (table.location(), table.metadata_location)
    assert entry.properties() == table.properties
    site.set(a="2")
    assert entry.metadata_location() == table.metadata_location  # as it was loaded
    entry.refresh()
    assert (entry.properties()["a"], entry.metadata_location()) == ("2", site.load().metadata_location)


def test_a_missing_table_has_no_entry(request: pytest.FixtureRequest) -> None:
    with pytest.raises(TableNotFoundError, match=r"^Cannot load table lake\.db_\w+\.t: there is no such table$"):
        sqlite(request).open()


def test_properties_change_only_if_they_are_as_expected_and_rows_stay(site: EntrySite) -> None:
    entry = site.open()
    before = site.load()
    assert entry.swap_property(KEY, None, "mine")
    assert (site.properties(), entry.properties()[KEY]) == ({KEY: "mine"}, "mine")
    assert entry.metadata_location() == site.load().metadata_location
    assert not entry.swap_property(KEY, None, "other")
    assert not entry.swap_property(KEY, "other", None)
    assert entry.swap_properties({KEY: "mine"}, {KEY: None, "a": "1", "b": "2"})
    assert not entry.swap_properties({KEY: None, "a": "2"}, {"b": None})
    assert site.properties() == {"a": "1", "b": "2"}
    after = site.load()
    assert (after.metadata.snapshots, after.metadata.refs) == (before.metadata.snapshots, before.metadata.refs)
    assert after.scan().to_arrow().num_rows == 10


def test_a_commit_of_another_writer_in_between_is_kept(site: EntrySite) -> None:
    entry = site.open()

    def append() -> None:
        site.set(theirs="1")
        site.load().append(site.load().scan().to_arrow())

    with site.struck(append):
        assert entry.swap_property(KEY, None, "mine")
    assert site.properties() == {KEY: "mine", "theirs": "1"}
    assert site.load().scan().to_arrow().num_rows == 20


def test_a_swap_of_the_same_property_in_between_wins_where_the_catalog_compares(site: EntrySite) -> None:
    entry = site.open()
    with site.struck(lambda: site.set(**{KEY: "theirs"})):
        # The REST protocol cannot require the value of a property; the lease is checked again before each removal.
        assert entry.swap_property(KEY, None, "mine") is not site.is_exclusive
    assert site.properties() == {KEY: "theirs" if site.is_exclusive else "mine"}
    entry.refresh()
    assert entry.properties()[KEY] == site.properties()[KEY]


@pytest.mark.parametrize(("lands", "sends"), [(True, 1), (False, 3)], ids=["landed", "not landed"])
def test_whether_a_change_landed_whose_answer_was_lost_is_found_out(site: EntrySite, lands: bool, sends: int) -> None:
    entry = site.open()
    with site.struck(lost=2, lands=lands) as sent:
        assert entry.swap_property(KEY, None, "mine")
    assert (site.properties(), len(sent)) == ({KEY: "mine"}, sends)
    with site.struck(lost=2, lands=lands) as sent:
        assert entry.swap_property(KEY, "mine", None)
    assert (site.properties(), len(sent)) == ({}, sends)


def test_a_catalog_that_never_answers_is_not_asked_for_ever(site: EntrySite) -> None:
    entry = site.open()
    with (
        site.struck(lost=99, lands=False) as sent,
        pytest.raises(CatalogUnreachableError, match=f"^Cannot set property {KEY}: "),
    ):
        entry.swap_property(KEY, None, "mine")
    assert (site.properties(), len(sent)) == ({}, 4)


@pytest.mark.parametrize("at", ["before the load", "before the send"])
@pytest.mark.parametrize("strike", [EntrySite.drop, EntrySite.rename, EntrySite.replace])
def test_a_table_that_is_gone_stays_gone_and_no_other_is_changed(
    site: EntrySite, strike: Callable[[EntrySite], object], at: str
) -> None:
    entry = site.open()
    if at == "before the load":
        strike(site)
    with (
        site.struck(None if at == "before the load" else lambda: strike(site)),
        pytest.raises(TableGoneError, match=rf"^Cannot go on with {site.name}: (it was dropped|another table has its name)"),
    ):
        entry.swap_property(KEY, None, "mine")
    with pytest.raises(TableGoneError):
        entry.refresh()
    if strike is EntrySite.replace:
        assert site.properties() == {}
    if strike is EntrySite.drop:
        site.create()  # a new table of the name is another one
        with pytest.raises(TableGoneError):
            entry.swap_property(KEY, None, "mine")
        assert (site.properties(), entry.follow()) == ({}, None)


def test_a_renamed_table_is_followed(site: EntrySite) -> None:
    entry = site.open()
    assert entry.swap_property(KEY, None, "mine")
    new = site.rename()
    with pytest.raises(TableGoneError):
        entry.refresh()
    assert entry.follow() == f"{site.name.catalog}.{site.name.namespace[0]}.{new}"
    assert entry.swap_property(KEY, "mine", None)
    assert site.properties(new) == {}


@pytest.mark.stack
@pytest.mark.parametrize("lands", [True, False], ids=["landed", "not landed"])
def test_a_connection_that_breaks_at_a_commit_of_a_rest_catalog_costs_nothing(
    request: pytest.FixtureRequest, fault_proxy: Callable[[str], FaultProxy], lands: bool
) -> None:
    description = described("rest", request)
    proxy = fault_proxy(str(description.settings["uri"]))
    site = python(Described({**description.settings, "uri": proxy.url}, description.environ), RestEntries)
    site.create()
    entry = site.open()
    proxy.faults.add((drop_answer if lands else drop)(methods="POST", path=f"/tables/{site.name.name}$", times=1))
    assert entry.swap_property(KEY, None, "mine")
    assert site.properties() == {KEY: "mine"}


def test_a_database_that_fails_after_it_changed_the_row_has_changed_it(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, real = sqlite(request), SqlEntries._updated
    site.create()
    entry = site.open()

    def updated(self: SqlEntries, row: Mapping[str, str]) -> int:
        real(self, row)
        raise OSError("connection reset")

    monkeypatch.setattr(SqlEntries, "_updated", updated)
    assert entry.swap_property(KEY, None, "mine")
    assert (site.properties(), site.load().scan().to_arrow().num_rows) == ({KEY: "mine"}, 10)


def test_a_metadata_file_that_cannot_be_written_changes_nothing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = sqlite(request)
    site.create()
    entry, before = site.open(), site.load().metadata_location

    def full(self: LocalSink, data: bytes) -> None:  # noqa: ARG001
        raise StorageError("Cannot write: the disk is full")

    monkeypatch.setattr(LocalSink, "write", full)
    with pytest.raises(CatalogUnreachableError, match=f"^Cannot set property {KEY}: Cannot write: the disk is full$"):
        entry.swap_property(KEY, None, "mine")
    directory = Path(address(before).local_path).parent
    assert (site.load().metadata_location, [path for path in directory.iterdir() if "partial" in path.name]) == (before, [])
