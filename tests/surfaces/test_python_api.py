"""`import neve`: the calls, the builder, and the question that pipelines ask."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import neve
from neve.api import Neve
from neve.errors import BadRequestError, SettingsError, TableNotFoundError
from neve.operations.requests import CompactRequest
from neve.policy.model import knobs
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.planner import Request
from neve.table.units import MIB
from tests.builders.run_records import make_whole_record


def test_importing_it_loads_nothing_that_takes_time() -> None:
    heavy = ("pydantic", "numpy", "pyarrow", "pyiceberg", "pyspark", "yaml", "sqlalchemy", "rich", "typer")
    script = f"import sys, neve; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_every_call_stays_one_whatever_is_imported_after_it() -> None:
    script = """
import neve
from importlib import import_module
from importlib.util import find_spec
packages = [name for name in neve.__all__ if find_spec(f"neve.{name}")]
for name in packages:
    import_module(f"neve.{name}")
print(sorted(packages), [name for name in neve.__all__ if not callable(getattr(neve, name))])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['commit', 'table'] []\n"


def test_inspect_is_one_call(warehouse: Path) -> None:
    look = neve.inspect("db.v1", warehouse=warehouse, target_file_size="1 MiB")
    assert (look.table, look.data_files, look.target_file_size_bytes) == ("local.db.v1", 36, MIB)
    assert neve.inspect("db.v1", warehouse=warehouse, depth="summary").histogram is None


def test_plan_is_one_call(warehouse: Path) -> None:
    plan = neve.plan("db.floats", warehouse=str(warehouse), tier="major", kernel="spark")
    [group] = plan.groups
    assert (group.tier, group.kernel, len(group.files)) == (Tier.MAJOR, Kernel.SPARK, 5)
    assert neve.plan("db.floats", warehouse=warehouse, min_input_files=6).empty_reason == (
        "fewer small files than min-input-files (6)"
    )
    assert len(neve.plan("db.floats", warehouse=warehouse, min_input_files=6, force=True).groups) == 1


def test_the_builder_says_the_same_as_the_call(warehouse: Path) -> None:
    table = neve.table("db.v1", warehouse=warehouse)
    spoken = table.target_file_size("1 MiB").min_input_files(2).tier("minor").partition("country=d*").partition("country=f*")
    called = neve.plan(
        "db.v1",
        warehouse=warehouse,
        target_file_size="1 MiB",
        min_input_files=2,
        tier="minor",
        partitions=["country=d*", "country=f*"],
    )
    assert spoken.plan().groups == called.groups
    assert len(called.groups) > 0
    assert {group.partition[:9] for group in called.groups} <= {"country=d", "country=f"}
    assert called.policy.target_file_size_bytes == MIB


def test_every_word_gives_a_new_value(warehouse: Path) -> None:
    table = neve.table("db.floats", warehouse=warehouse)
    assert table.force() is not table
    assert dict(table.asked) == {}
    assert table.max_files(7).inspect().table == "local.db.floats"
    assert dict(table.knobs) == {}


def test_every_knob_is_a_word_and_can_be_completed() -> None:
    table = neve.table("db.t")
    names = [key.replace("-", "_") for key in knobs()]
    assert [name for name in names if name not in dir(table)] == []
    assert [dict(getattr(table, name)(1).knobs) for name in names] == [{key: 1} for key in knobs()]


def test_an_unknown_word_names_the_nearest() -> None:
    with pytest.raises(
        AttributeError, match=r"^neve\.table\(\.\.\.\) has no word 'target_file_sise'; did you mean target_file_size\?"
    ):
        neve.table("db.t").target_file_sise("1 MB")
    with pytest.raises(AttributeError, match=r"has no word 'compacte'; did you mean compact\?"):
        neve.table("db.t").compacte()
    with pytest.raises(BadRequestError, match=r"^Cannot set max_file: there is no such knob; did you mean max_files\?$"):
        neve.plan("db.t", max_file=1)


@pytest.mark.parametrize(
    ("word", "value", "known"), [("tier", "tiny", "minor, major, full"), ("kernel", "gpu", "copy, arrow, spark")]
)
def test_an_unknown_tier_or_kernel_is_refused_at_once(word: str, value: Any, known: str) -> None:
    with pytest.raises(BadRequestError, match=f"^Cannot use {word} '{value}': there are {known}$"):
        getattr(neve.table("db.t"), word)(value)


def test_a_value_out_of_range_is_refused_by_its_key(warehouse: Path) -> None:
    with pytest.raises(SettingsError, match="min-input-files"):
        neve.table("db.floats", warehouse=warehouse).min_input_files(0).plan()


def test_a_table_can_be_copied_and_sent(warehouse: Path) -> None:
    table = neve.table("db.floats", warehouse=warehouse).max_files(3)
    assert copy.copy(table) == pickle.loads(pickle.dumps(table)) == table  # noqa: S301


def test_a_connection_serves_several_calls(warehouse: Path) -> None:
    with neve.connect(warehouse=warehouse, settings={"policy.target-file-size": "1 MB"}) as opened:
        assert opened.inspect("db.v1").target_file_size_bytes == opened.inspect("db.floats").target_file_size_bytes == MIB


def test_a_connection_takes_requests_in_place_of_the_words_of_functions(warehouse: Path) -> None:
    with neve.connect(warehouse=warehouse) as opened:
        assert opened.plan("db.floats", request=Request(force=True, branch="main")).output_files == 1
        with pytest.raises(TypeError, match="force"):
            opened.plan("db.floats", force=True)  # type: ignore[call-arg]


def test_a_branch_is_passed_on_to_an_inspection(warehouse: Path) -> None:
    assert neve.inspect("db.floats", warehouse=warehouse, branch="main").branch == "main"
    inspections: list[Callable[[], object]] = [
        lambda: neve.inspect("db.floats", warehouse=warehouse, branch="audit"),
        lambda: neve.table("db.floats", warehouse=warehouse).branch("audit").inspect(),
    ]
    for look in inspections:
        with pytest.raises(BadRequestError, match="Cannot find branch audit"):
            look()


def test_compact_passes_on_what_is_wanted(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def compact(_: Neve, table: str, **options: Any) -> Any:
        asked.append((table, CompactRequest(**options)))
        return make_whole_record()

    monkeypatch.setattr(Neve, "compact", compact)
    words: dict[str, Any] = {"tier": "full", "kernel": "arrow", "where": "a > 1", "branch": "audit", "verify": "content"}
    query = "SELECT count(*) FROM db.v1"
    told = neve.compact("db.v1", warehouse=warehouse, partitions=["a=*"], force=True, probe_query=query, **words)
    assert told.stats is not None
    assert told.stats.files_removed == 245
    neve.table("db.v1", warehouse=warehouse).compact()
    neve.table("db.v1", warehouse=warehouse).tier("full").verify("content").probe_query(query).compact(tier="minor")
    neve.compact("db.v1", warehouse=warehouse, expire_snapshots=True, snapshot_retention_hours=168)
    assert asked == [
        ("db.v1", CompactRequest(**words, partitions=("a=*",), force=True, probe_query=query)),
        ("db.v1", CompactRequest()),
        ("db.v1", CompactRequest(tier="minor", verify="content", probe_query=query)),
        ("db.v1", CompactRequest(expire_snapshots=True, snapshot_retention_hours=168)),
    ]


def test_a_value_that_an_option_does_not_take_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(BadRequestError, match="Cannot use tier 'tiny': there are minor, major, full"):
        neve.compact("db.v1", tier="tiny", warehouse="nowhere")
    with pytest.raises(BadRequestError, match="Cannot use verify 'all': there are metadata, content"):
        neve.cluster("db.v1", "a", verify="all", warehouse="nowhere")


def test_a_dry_run_of_a_compaction_is_its_plan(warehouse: Path) -> None:
    with neve.connect(warehouse=warehouse) as opened:
        planned = opened.plan("db.floats", request=CompactRequest(force=True))
        for dry in (
            opened.compact("db.floats", force=True, dry_run=True),
            opened.compact("db.floats", CompactRequest(force=True, dry_run=True)),
            opened.compact("db.floats", request=Request(force=True), dry_run=True),
        ):
            assert dry.model_copy(update={"planned_at_ms": planned.planned_at_ms}) == planned


def test_after_write_looks_at_the_files_every_so_many_commits(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from neve.catalogs.reader import MetadataReader

    told = neve.after_write("db.floats", warehouse=warehouse, every=1)
    assert (told.looked, told.compaction_recommended, told.small_files_count, told.error) == (True, True, 5, None)
    assert told.reason == "5 files would become 1"
    monkeypatch.setattr(MetadataReader, "manifests", lambda _: pytest.fail("manifests were read"))
    cheap = neve.after_write("db.floats", warehouse=warehouse, every=1000)
    assert (cheap.looked, cheap.compaction_recommended, cheap.small_files_count) == (False, False, None)
    assert cheap.reason == "looked at every 1000 commits"
    assert neve.after_write("db.floats", warehouse=warehouse).reason == "looked at every 100 commits"
    assert neve.after_write("db.floats", warehouse=warehouse, every=1, advise=False).reason == "advise is off"


def test_after_write_leaves_the_pipeline_alone_unless_asked(warehouse: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = neve.after_write("db.nothing", warehouse=warehouse, every=5)
    assert (told.looked, told.compaction_recommended) == (False, False)
    assert told.error is not None
    assert told.error.startswith("TableNotFoundError: Cannot ")
    assert "after_write db.nothing" in caplog.text
    with pytest.raises(TableNotFoundError):
        neve.after_write("db.nothing", warehouse=warehouse, every=5, raise_errors=True)
    with pytest.raises(BadRequestError, match="Cannot look every 0 commits: at least 1 is needed"):
        neve.after_write("db.floats", warehouse=warehouse, every=0, raise_errors=True)
