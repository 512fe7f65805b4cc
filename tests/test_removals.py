"""No code path removes a file of a table but through the quarantine, and none takes rows away but where it is listed here.

`tests/builders/removal_calls.py` reads the source: every name that could remove a file or change a table destructively must be
in one of these lists, with the reason why it is allowed. A removal anywhere else fails this test. Use
`commit.unused_files.set_aside` for files that were never committed and `Quarantine.record_candidates` for others; never add a
line here for files of a table.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from neve import ports, ttl_ports
from tests.builders.removal_calls import FILES, ROWS, SQL, findings, in_package

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "neve"

# The one way by which files of a table leave: each of these takes or builds on a proof over all refs (`maintenance.removal`).
QUARANTINE = {
    "operations/quarantine_moves.py:Moving._discard": ({"move", "delete"}, "to the trash, with the proof"),
    "operations/quarantine_moves.py:Moving._delete_from_trash": ({"delete"}, "out of the trash, with the proof"),
    "storage/moves.py:StoredFiles.move": ({"move"}, "demands the proof"),
    "storage/moves.py:StoredFiles.delete": ({"delete"}, "demands the proof"),
    "storage/moves.py:_rename": ({"rename"}, "of move, which demands the proof, and of put_back, out of the trash only"),
    "storage/moves.py:_unlink": ({"unlink"}, "of delete, which demands the proof"),
    "storage/moves.py:_clear_trash": ({"rmdir"}, "empty directories of the trash"),
    "storage/s3.py:S3Files._move": ({"delete_object"}, "of move and put_back; the original goes after its copy was compared"),
    "storage/s3.py:S3Files._delete": ({"delete_objects"}, "of delete, which demands the proof; and a copy that came out wrong"),
    "storage/s3.py:S3Files._unmark": ({"delete_object"}, "takes a delete marker away, so that the file is back"),
}
# An output that nobody has been told of: the object that created it, in this process and this try, takes it back.
OWN_OUTPUTS = {
    "kernels/streams.py:LocalSink.close": ({"rename"}, "gives the file its name"),
    "kernels/streams.py:LocalSink.abort": ({"unlink"}, "its own partial file"),
    "kernels/streams.py:LocalSink.take_back": ({"unlink"}, "the file that this sink completed"),
    "storage/files.py:_RemoteSink.abort": ({"delete_file"}, "its own object"),
    "storage/files.py:_RemoteSink.take_back": ({"delete_file"}, "the object that this sink completed"),
    "cli/work.py:_destination": ({"unlink"}, "the partial result of this process, outside of tables"),
    "cli/work.py:_complete": ({"replace"}, "gives the result its name"),
}
# Directories of ours on this machine, in which no table lies.
OUR_DIRECTORIES = {
    "catalogs/cache.py:MetadataCache.find": ({"unlink"}, "our metadata cache"),
    "catalogs/cache.py:MetadataCache.keep": ({"replace"}, "our metadata cache"),
    "catalogs/cache.py:MetadataCache.sweep": ({"unlink"}, "our metadata cache"),
    "catalogs/probe.py:_write_and_read": ({"delete"}, "the file with a new name that doctor has just written"),
    "cli/demo_directory.py:_remove": ({"rmtree", "unlink"}, "a directory with the demo's marker file"),
    "spark/runtime/jars.py:_fetch": ({"rmtree"}, "our cache of jars"),
    "spark/runtime/jars.py:_place": ({"replace"}, "our cache of jars"),
    "spark/runtime/jars.py:_write": ({"replace"}, "our cache of jars"),
    "spark/runtime/launcher.py:_build": ({"rmtree"}, "our cache of Java classes"),
    "spark/runtime/launcher.py:_publish": ({"rename"}, "our cache of Java classes"),
    "spark/runtime/archive_store.py:staging": ({"rmtree"}, "our cache of Java classes"),
    "spark/runtime/archive_store.py:recording_options": ({"rename"}, "our cache of Java classes"),
    "spark/runtime/archive_store.py:publish": ({"rename", "unlink"}, "our cache of Java classes"),
    "spark/runtime/archive_store.py:_emptied": ({"rmtree"}, "our cache of Java classes"),
    "spark/runtime/archive_store.py:_remove_unused": ({"rmtree"}, "our cache of Java classes"),
    "state/copying.py:copy_database": ({"rename", "unlink"}, "the partial copy of the state store"),
    "samples/metadata.py:register": ({"drop_table"}, "a sample's name; its files stay"),
    "samples/target.py:Target.purge": ({"purge_table"}, "a sample table, asked for with replace=True"),
}
# The same words, and no file.
NO_FILES = {
    "service/submitting.py:write_result": ({"replace"}, "a result in a temporary directory of ours"),
    "cli/runs.py:RunsGroup.parse_args": ({"remove"}, "a list"),
    **{
        place: ({"expire_snapshots"}, "an option: Neve's own expiry after a compaction, which only records files")
        for place in ("cli/compact.py:", "operations/compact.py:_expiry")
    },
    "spark/table/bridge.py:TableBridge.swap_properties.load.send": ({"remove"}, "a Java map"),
    "spark/tasks/staging.py:staged": ({"remove"}, "Spark's cache of scan tasks"),
    "spark/table/deltas.py:commit_drop": ({"deleteFile"}, "an entry of a manifest (DeleteFiles, see DESTRUCTIVE)"),
    "spark/table/descriptions.py:Descriptions.numbers": ({"deleteFiles"}, "delete files of a scan's response"),
    "spark/table/descriptions.py:Descriptions.delete_files": ({"deleteFiles"}, "delete files of a scan's response"),
    "spark/maintenance/reachable.py:_Iceberg._action": (
        {"deleteReachableFiles"},
        "never executed: its protected readers are used",
    ),
    "operations/quarantine.py:run_settle": ({"delete"}, "an option of the quarantine, which removes with the proof alone"),
    "operations/ttl.py:_Delete.send": ({"delete"}, "rows (see DESTRUCTIVE)"),
    "operations/ttl.py:_Ttl._proved_or_undone": ({"remove"}, "a list"),
    "operations/ttl.py:_Ttl._roll_back": ({"remove"}, "a list"),
    **{
        f"state/{module}.py:": ({"delete"}, "rows of the state store")
        for module in ("file_index", "fleet", "job_queue", "notices", "policies", "pruning", "roles", "writing")
    },
}
REMOVALS = QUARANTINE | OWN_OUTPUTS | OUR_DIRECTORIES | NO_FILES

# Statements that take rows, files or snapshots out of a table's metadata. Each goes through the table that was loaded, whose
# uuid Iceberg compares whenever it loads it again, or compares the uuid itself where it can only name the table.
DESTRUCTIVE = {
    "spark/table/deltas.py:Exchange.operation": ({"newRewrite", "rewriteFiles"}, "replaces named files"),
    "spark/table/deltas.py:commit_row_delta": ({"newRowDelta", "removeDeletes"}, "exchanges named delete files"),
    "spark/table/deltas.py:commit_drop": ({"newDelete"}, "TTL: drops named files"),
    "spark/table/deltas.py:_commit_in_two": ({"newRowDelta"}, "adds delete files for new outputs"),
    "spark/table/bridge.py:TableBridge.roll_back": ({"setBranchSnapshot"}, "moves a branch that is where it was seen"),
    "spark/maintenance/expiry.py:without": ({"removeRef", "removeSnapshots"}, "named snapshots and refs, in memory"),
    "spark/maintenance/tags.py:SparkTags.change_tags": ({"removeRef"}, "named tags that are as they were seen"),
    "spark/maintenance/manifests.py:SparkManifests.write": ({"rewriteManifests"}, "staged, never committed"),
    "spark/maintenance/manifests.py:SparkManifests.commit": ({"rewriteManifests"}, "replaces named manifests"),
    "spark/maintenance/manifests.py:SparkManifests._replace": ({"deleteManifest"}, "replaces named manifests"),
    "spark/maintenance/manifests.py:SparkManifests._anew": ({"rewriteManifests"}, "the writing function of Iceberg's action"),
    "spark/maintenance/ttl.py:SparkPastRows.delete.send": ({"DELETE FROM"}, "TTL: rows past their time, sent by _destroy"),
    "samples/equality_deletes.py:_commit": ({"newRowDelta"}, "sample tables"),
    "samples/row_level.py:": ({"DELETE FROM", "UPDATE {"}, "sample tables"),
    "samples/row_level.py:_merge": ({"MERGE INTO"}, "sample tables"),
    "samples/target.py:Target.purge": ({"DROP TABLE"}, "a sample table, asked for with replace=True"),
    "spark/tasks/probe.py:Probe._timed": ({"overwrite"}, "Spark's sink that writes nothing"),
    "service/demo_writers.py:accounts": ({"MERGE INTO"}, "a table of `neve serve --demo`"),
    "table/spark_sql.py:move_back": ({"CALL"}, "a hint for people"),
}
NAMES_ONLY = {"spark/maintenance/ttl.py:SparkPastRows.delete", "spark/maintenance/ttl.py:SparkPastRows.drop"}
"""What takes rows away reaches its table by name, so it goes through `_destroy`, which compares uuid, branch and field id."""


def found_in(names: frozenset[str], sql: bool) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for where, name in (finding.key for finding in in_package(PACKAGE, names, SQL if sql else None)):
        found.setdefault(where, set()).add(name)
    return found


def test_nothing_removes_a_file_but_what_is_listed_here() -> None:
    allowed = {where: names for where, (names, _) in REMOVALS.items()}
    assert found_in(FILES, sql=False) == allowed


def test_nothing_changes_a_table_destructively_but_what_is_listed_here() -> None:
    allowed = {where: names for where, (names, _) in DESTRUCTIVE.items()}
    assert found_in(ROWS, sql=True) == allowed


def functions(module: str) -> dict[str, ast.FunctionDef]:
    """Functions and methods of a module, by name and class."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        found |= {f"{owner.name}.{node.name}": node for node in owner.body if isinstance(node, ast.FunctionDef)}
    return found


def calls_in(function: ast.FunctionDef) -> set[str]:
    called = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return {f.attr if isinstance(f, ast.Attribute) else f.id for f in called if isinstance(f, ast.Attribute | ast.Name)}


@pytest.mark.parametrize("where", sorted(NAMES_ONLY))
def test_a_statement_that_takes_rows_away_confirms_its_table_branch_and_field_first(where: str) -> None:
    module, _, name = where.partition(":")
    known = functions(module)
    assert "_destroy" in calls_in(known[name])
    assert {"refuse_redirects", "confirm_target"} <= calls_in(known["SparkPastRows._destroy"])


@pytest.mark.parametrize("where", sorted(where for where in DESTRUCTIVE if where.startswith("spark/table/deltas.py")))
def test_a_commit_that_takes_files_away_names_its_branch(where: str) -> None:
    function = functions("spark/table/deltas.py")[where.partition(":")[2]]
    parameters = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    assert parameters & {"onto", "branch"}
    assert calls_in(function) & {"apply", "toBranch"}


@pytest.mark.parametrize("store", ["StoredFiles", "LocalFiles", "S3Files"])
def test_every_storage_that_can_remove_files_checks_the_proof_first(store: str) -> None:
    module = "storage/s3.py" if store == "S3Files" else "storage/moves.py"
    for name, check in (("move", "require"), ("delete", "require"), ("put_back", "require_trash")):
        first = functions(module)[f"{store}.{name}"].body[1]  # after the docstring
        assert isinstance(first, ast.Expr)
        assert isinstance(first.value, ast.Call)
        assert isinstance(first.value.func, ast.Name)
        assert (first.value.func.id, name in {"move", "delete"}) == (
            check,
            ast.unparse(first.value).startswith("require(proof"),
        )


def test_the_port_demands_a_proof_and_no_other_port_can_remove() -> None:
    for name in ("move", "delete"):
        proof = inspect.signature(getattr(ports.FileStore, name)).parameters["proof"]
        assert (proof.annotation, proof.default) == ("Unreachable", inspect.Parameter.empty)
    removing = {
        f"{owner}.{name}"
        for owner, port in (vars(ports) | vars(ttl_ports)).items()
        if isinstance(port, type) and port.__module__ in ("neve.ports", "neve.ttl_ports")
        for name in vars(port)
        if name in FILES or "discard" in name
    }
    assert removing == {"FileStore.move", "FileStore.delete", "PastRows.delete"}


def test_only_the_quarantine_is_given_the_storage_that_can_remove() -> None:
    """Within `operations`, which no import contract divides."""
    importers = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module in {"neve.storage.moves", "neve.storage.s3"}
    }
    # storage_rules reads a bucket's lifecycle rules; storage_moves picks the store for a location.
    assert importers == {"operations/quarantine.py", "storage/moves.py", "storage/rules.py"}


def test_only_the_check_of_the_quarantine_makes_a_proof() -> None:
    makers = {finding.key[0] for finding in in_package(PACKAGE, frozenset({"judged", "_SEAL"})) if finding.name == "judged"}
    assert makers == {"operations/quarantine.py:_judged"}


BAD = {
    "os.unlink(path)": "unlink",
    "import os\nos.remove(path)": "remove",
    "Path(path).unlink(missing_ok=True)": "unlink",
    "from os import unlink as gone\ngone(path)": "unlink",
    "from shutil import rmtree": "rmtree",
    "for _ in map(os.unlink, paths): pass": "unlink",
    "shutil.rmtree(directory)": "rmtree",
    "os.replace(a, b)": "replace",
    "path.replace(other)": "replace",
    "path.rename(other)": "rename",
    "shutil.move(a, b)": "move",
    "filesystem.delete_file(key)": "delete_file",
    "filesystem.delete_dir_contents(key)": "delete_dir_contents",
    "fs.rm(path, recursive=True)": "rm",
    "client.delete_objects(Bucket=b, Delete=d)": "delete_objects",
    "client.delete_object(Bucket=b, Key=k)": "delete_object",
    "table.io().deleteFile(path)": "deleteFile",
    "getattr(io, 'deleteFile')(path)": "deleteFile",
    "methods.hidden(io, cls, 'deletePrefix', given)": "deletePrefix",
    "jvm.org.apache.hadoop.fs.FileSystem.get(conf).delete(path, True)": "delete",
    "table.expireSnapshots().cleanExpiredFiles(True).commit()": "cleanExpiredFiles",
    "catalog.purge_table(name)": "purge_table",
    "subprocess.run(['rm', '-rf', path])": "rm",
    "subprocess.run('rm -rf /data', shell=True)": "rm -rf /data",
    "self.tools.engine.discard = storage.delete": "delete",
}


@pytest.mark.parametrize("snippet", BAD)
def test_the_check_sees_a_removal_however_it_is_written(snippet: str) -> None:
    assert BAD[snippet] in [found.name for found in findings(snippet, "operations/rewrite_run.py", FILES)]


@pytest.mark.parametrize(
    ("snippet", "name"),
    [
        ("spark.sql(f'DELETE FROM {table}')", "DELETE FROM"),
        ("spark.sql('TRUNCATE TABLE t')", "TRUNCATE TABLE"),
        ("spark.sql(f'DROP TABLE {t} PURGE')", "DROP TABLE"),
        ("spark.sql(f'INSERT OVERWRITE {t} SELECT 1')", "INSERT OVERWRITE"),
        ("spark.sql(f'CALL {c}.system.expire_snapshots(1)')", "CALL"),
        ("spark.sql('CALL local.system.expire_snapshots(1)')", "CALL local.system."),
        ("table.newDelete().deleteFromRowFilter(f).commit()", "newDelete"),
        ("methods.call(table, 'newOverwrite')", "newOverwrite"),
        ("frame.write.format('iceberg').mode('overwrite').save(name)", "overwrite"),
    ],
)
def test_the_check_sees_a_destructive_statement_however_it_is_written(snippet: str, name: str) -> None:
    assert name in [found.name for found in findings(snippet, "operations/rewrite_run.py", ROWS, SQL)]


def test_the_check_names_the_function_and_spares_what_removes_nothing() -> None:
    text = '''
class Run:
    """Deletes nothing: os.unlink(path) is only talked about, and so is DELETE FROM."""

    def clean(self):
        text.replace("a", "b")
        replace(self, state=1)
        when.replace(tzinfo=UTC)
        kind = "delete"
        def inner():
            os.unlink(path)
'''
    assert [found.key for found in findings(text, "operations/rewrite_run.py", FILES, SQL)] == [
        ("operations/rewrite_run.py:Run.clean.inner", "unlink")
    ]
