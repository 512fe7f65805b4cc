"""Two real processes share a state store, one of them in namespaces of its own with another host name: it is stopped in the
middle of a run, the other one resumes the run, and the first one goes on. Nothing is lost, whatever the moment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
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
from tests.builders.table_contents import duckdb_rows
from tests.builders.table_integrity import lost_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--uts"]
STALLED_RUN = """
import sys
from neve.api import Neve
from neve.spark.table.bridge import TableBridge
from neve.errors import NeveError
from neve.operations import rewrite_run as run
from neve.rewrite.planner import Request
from neve.settings import load_settings
from neve.state import StateStore

warehouse, state, table, name = sys.argv[1:]
run.BATCH_GROUPS = 2
owner = StateStore if name in ("written", "settled") else TableBridge
real = getattr(owner, name)

def stalling(*args, **words):
    setattr(owner, name, real)
    print("stalled", flush=True)
    sys.stdin.readline()
    return real(*args, **words)

def noted(*args, **words):
    journal(*args, **words)
    setattr(owner, name, stalling)

if name == "refresh":  # the table is loaded when the lease is taken, too: meant is the load before the commit
    journal, StateStore.written = StateStore.written, noted
else:
    setattr(owner, name, stalling)
settings = load_settings(environ={}, flags={"state.url": f"sqlite:///{state}", "spark.driver-memory": "1 GB"})
with Neve.open(settings, warehouse=warehouse, environ={}) as neve:
    try:
        print("ended", neve.compact(table, request=Request(force=True)).outcome)
    except NeveError as error:
        print("stopped", type(error).__name__, error)
"""


def require_namespaces() -> None:
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare --pid --uts needs more rights than this process has")


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
        vars(neve.connection)["spark"] = spark
        yield neve


class OtherHost:
    """A run in another process, which stalls at its first call of this name."""

    def __init__(self, warehouse: Path, state: Path, table: str, call: str) -> None:
        python = [sys.executable, "-c", STALLED_RUN, str(warehouse), str(state), table, call]
        command = [*UNSHARE, "sh", "-c", 'hostname otherhost && exec "$@"', "sh", *python]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process: subprocess.Popen[str] = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
        assert self.process.stdout is not None
        if (line := self.process.stdout.readline()) != "stalled\n":
            raise AssertionError(f"{line}{self.process.communicate()}")
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii").split()
        self.pid = int(children[0])

    def stop(self) -> None:
        """Stops the whole process, its heartbeat included; what it waits for is there when it goes on."""
        assert self.process.stdin is not None
        os.kill(self.pid, signal.SIGSTOP)
        while " T " not in Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8"):
            pass
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def go_on(self) -> str:
        """What the process says at its end."""
        os.kill(self.pid, signal.SIGCONT)
        said, _ = self.process.communicate(timeout=300)
        return said.strip()

    def kill(self) -> None:
        self.process.kill()  # the namespace goes with its first process, and the first process with this one
        self.process.communicate()


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
    require_namespaces()
    state, before = tmp_path / "state.db", duckdb_rows(catalog.load_table(table))
    other = OtherHost(warehouse, state, table, call)
    try:
        other.stop()
        with here(spark, warehouse, state) as neve:
            (found,) = neve.unfinished()
            message = (
                rf"^Cannot resume run {found.run_id[:8]} over .*: otherhost:1 is at work on it, and its heartbeat is valid"
            )
            with pytest.raises(LeaseHeldError, match=message):
                neve.require_resumable(found)
            with pytest.raises(LeaseHeldError, match=r"\(otherhost:1\) is at work on it"):
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
