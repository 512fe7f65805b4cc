"""Two real processes share a state store, one of them in namespaces of its own: it is stopped in the middle of a run, the other
one resumes the run, and the first one goes on. Nothing is lost, whatever the moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from neve.api import Neve
from neve.errors import LeaseHeldError
from neve.rewrite.record import RunOutcome
from neve.samples import SAMPLES, Target
from neve.settings import load_settings
from tests.builders.killed_operations import DAY, Ahead
from tests.builders.other_host import OtherHost
from tests.builders.table_contents import duckdb_rows
from tests.builders.table_integrity import lost_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def catalog(warehouse: Path) -> Iterator[SqlCatalog]:
    with closing(SqlCatalog("local", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=str(warehouse))) as opened:
        yield opened


@pytest.fixture
def table(catalog: SqlCatalog) -> str:
    """Five partitions of fifty files."""
    namespace = f"hosts_{uuid4().hex[:12]}"
    catalog.create_namespace(namespace)
    SAMPLES["stream"].build(Target(catalog=catalog, namespace=namespace), seed=7)
    return f"{namespace}.stream"


@contextmanager
def here(spark: SparkSession, warehouse: Path, state: Path, *, days: float = 0) -> Iterator[Neve]:
    """Neve in this process; its clock may be ahead, so that nobody waits for a heartbeat to end."""
    settings = load_settings(environ={}, flags={"state.url": f"sqlite:///{state}"})
    with Neve.open(settings, warehouse=str(warehouse), environ={}, clock=Ahead(days)) as neve:
        neve.connection.session = spark
        yield neve


@pytest.mark.parametrize(
    "call",
    [
        "refresh",  # written and journaled: the other host commits these very files, and here they look superseded
        pytest.param("rewrite", marks=pytest.mark.slow),  # all checks have passed, and the commit is about to be sent
        pytest.param("written", marks=pytest.mark.slow),  # files exist that the journal does not know
        pytest.param("settled", marks=pytest.mark.slow),  # a commit has landed that the journal does not know
    ],
)
def test_a_stalled_run_is_resumed_elsewhere_after_its_heartbeat_and_stops_without_harm(
    call: str, spark: SparkSession, warehouse: Path, tmp_path: Path, catalog: SqlCatalog, table: str
) -> None:
    state, before = tmp_path / "state.db", duckdb_rows(catalog.load_table(table))
    other = OtherHost(warehouse, state, table, call)
    try:
        other.stop()
        with here(spark, warehouse, state) as neve:
            (found,) = neve.unfinished()
            message = (
                rf"^Cannot resume run {found.run_id[:8]} over .*: {other.shown} is at work on it, and its heartbeat is valid"
            )
            with pytest.raises(LeaseHeldError, match=message):
                neve.require_resumable(found)
            with pytest.raises(LeaseHeldError, match=rf"\({other.shown}\) is at work on it"):
                neve.resume(found.run_id)
        with here(spark, warehouse, state, days=600_000 / DAY) as neve:
            record = neve.resume(found.run_id)
            assert record.outcome is RunOutcome.DONE, record.groups
            said = other.go_on()
            assert said.startswith(f"stopped RunTakenOverError Cannot go on with run {found.run_id[:8]}"), said
            assert neve.unfinished() == ()
            assert neve.run(found.run_id).outcome == "done"
    finally:
        other.kill()
    loaded = catalog.load_table(table)
    assert lost_files(loaded) == []
    assert duckdb_rows(loaded) == before
    assert "neve.lease" not in loaded.properties
